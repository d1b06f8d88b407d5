"""The engine of one rank: takes collectives by name, negotiates them in the background, carries them out.

Three parties: whoever submits (the user's thread, autograd's), a thread that sends what was submitted once a
cycle has passed, and a thread that carries out what all ranks agreed on. Somebody who waits sends at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.engine.agreement import (
    ADASUM,
    ADD_SET,
    BARRIER,
    JOIN,
    LEAVE,
    REMOVE_SET,
    Agreement,
    Key,
    Request,
)
from horovod.engine.batches import Batch, make_batches
from horovod.engine.collectives import Collectives
from horovod.engine.entry import Again, Entry, Repeat
from horovod.engine.links import Link
from horovod.engine.negotiation import Decision, set_bits
from horovod.engine.settings import Settings
from horovod.engine.timeline import Timeline

PLANS_MAX = 256
CLOSE_TIMEOUT_S = 5.0
BUSY_CYCLES_MAX = 10


class Engine:
    """One rank's collectives.

    Args:
        link: to the coordinator.
        collectives: that carry out what was agreed.
        make_group: of ranks, called on all ranks at once; what a process set needs.
        timeline: that is written, silent unless it was started.
    """

    def __init__(
        self,
        link: Link,
        collectives: Collectives,
        settings: Settings,
        make_group: Callable[[tuple[int, ...]], Any],
        timeline: Timeline,
    ) -> None:
        self._link = link
        self.collectives = collectives
        self.settings = settings
        self._make_group = make_group
        self.timeline = timeline
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._finished = threading.Condition()
        self._table: dict[Key, Entry] = {}
        self._known: dict[Key, Repeat] = {}
        self.repeats: dict[str | None, Repeat] = {}
        self._agreed: dict[int, Agreement] = {}
        self._plans: dict[int, list[Batch]] = {}
        self._pending: list[Entry] = []
        self._sent: tuple[list[Repeat | None], int] = ([], 0)
        self._is_awake = False
        self._alarm = threading.Event()
        self._failure = ""
        self._closing = False
        self._counters: dict[Key, int] = {}
        self._threads = [
            threading.Thread(target=self._carry_out, name="horovod-engine", daemon=True),
            threading.Thread(target=self._send_in_cycles, name="horovod-cycle", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # Submitting ---------------------------------------------------------------------------------------------

    def automatic_name(self, kind: str, process_set: int) -> str:
        """Return the next name for a collective that has none: ``allreduce.noname.1``.

        Each process set counts alone, and anew after a join: before it ranks did different numbers of them.
        """
        with self._lock:
            key = process_set, kind
            number = self._counters[key] = self._counters.get(key, 0) + 1
        return f"{kind}.noname.{number}"

    def submit(self, entry: Entry) -> Entry:
        """Ask for a collective; a few microseconds.

        Raises:
            ValueError: one of this name is in flight.
            HorovodInternalError: the job has ended or has lost a rank.
        """
        # Each line is atomic: any thread may submit, and none waits for a lock. Once the name is taken nobody
        # agrees on it anew, so what is known of it is read after that, and so is a failure.
        if self._table.setdefault(entry.key, entry) is not entry:
            raise _in_flight(entry.key)
        if self._failure:
            self._table.pop(entry.key, None)
            raise HorovodInternalError(self._failure)
        known = self._known.get(entry.key)
        if known is not None and known.signature == entry.signature:
            entry.repeat = known
        self._pending.append(entry)
        if not self._is_awake:
            self._is_awake = True
            self._alarm.set()
        return entry

    def submit_again(self, repeat: Repeat, tensor: Any) -> Entry | None:
        """Ask for one of `repeats` with a tensor that its agreement holds for; half a microsecond.

        Returns:
            None where that agreement holds no more: `submit` knows what does.

        Raises:
            ValueError: one of this name is in flight.
        """
        entry = Again(repeat, tensor)
        if self._table.setdefault(repeat.key, entry) is not entry:
            raise _in_flight(repeat.key)
        if self.repeats.get(repeat.key[1]) is not repeat:  # as in `submit`
            self._table.pop(repeat.key, None)
            return None
        self._pending.append(entry)
        if not self._is_awake:
            self._is_awake = True
            self._alarm.set()
        return entry

    def wait(self, entry: Entry) -> Any:
        """Return a collective's result.

        Raises:
            HorovodInternalError: the ranks do not agree, or one was lost.
        """
        if not entry.is_done:
            self._send()
            with self._finished:
                while not entry.is_done and not self._failure:
                    self._finished.wait()
            if not entry.is_done:
                raise HorovodInternalError(self._failure)
        return entry.outcome()

    def ask(self, request: Request) -> int:
        """Ask for something without tensors, wait, and return the answer."""
        entry = Entry(request.key, None, lambda: request, (), (), None)
        result: int = self.wait(self.submit(entry))
        return result

    def _send(self) -> None:
        with self._send_lock:
            self._is_awake = False
            count = len(self._pending)
            entries = self._pending[:count]
            del self._pending[:count]
            if not entries:
                return
            repeats = [entry.repeat for entry in entries]
            before, bits = self._sent
            if repeats != before:
                bits = sum({repeat.bit for repeat in repeats if repeat is not None})
                self._sent = repeats, bits
            new = [entry.request() for entry in entries if entry.repeat is None] if None in repeats else []
            try:
                self._link.send(bits, new)
            except OSError as error:
                self._fail(f"rank 0's coordinator is gone: {error}")

    def _send_in_cycles(self) -> None:
        """Send once a cycle has passed in which nothing was submitted, or a few in which more was.

        Many tensors at once are then one message and one plan, whatever the processor's other work.
        """
        while not self._closing:
            self._alarm.wait()
            self._alarm.clear()
            for _ in range(BUSY_CYCLES_MAX):
                before = len(self._pending)
                time.sleep(self.settings.cycle_s)
                if len(self._pending) == before:
                    break
            if self.settings.mark_cycles:
                self.timeline.mark_cycle()
            self._send()

    # Carrying out -------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        import torch

        torch.set_grad_enabled(False)  # of this thread: tensors that require gradients are written in place
        while (decision := self._link.receive()) is not None:
            try:
                self._act(decision)
            except Exception as error:  # noqa: BLE001 - whoever waits must learn of it
                if not self._closing:
                    if not isinstance(error, RuntimeError) or os.environ.get("HOROVOD_LOG_LEVEL") == "debug":
                        traceback.print_exc(file=sys.stderr)
                    self._fail(f"a collective failed: {error}")
        self._fail("Horovod has been shut down: this rank left, or rank 0 did")

    def _act(self, decision: Decision) -> None:
        for batch in self._planned(decision.bits):
            self._run(batch)
        if decision.agreements:
            settings = self.settings
            batches = make_batches(
                decision.agreements, settings.fusion_bytes, fuse_groups=settings.group_fusion
            )
            for batch in batches:
                self._run(batch, is_new=True)

    def _planned(self, bits: int) -> list[Batch]:
        if not bits:
            return []
        plan = self._plans.get(bits)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            settings = self.settings
            plan = self._plans[bits] = make_batches(
                [self._agreed[number] for number in set_bits(bits)],
                settings.fusion_bytes,
                fuse_groups=settings.group_fusion,
            )
        return plan

    def _run(self, batch: Batch, *, is_new: bool = False) -> None:
        """Carry out a batch, and wake who waits for it."""
        made = batch.agreements[0]
        kind = made.request.kind
        if is_new:
            for one in batch.agreements:
                if one.number >= 0:
                    self._remember(one)
        if kind in (ADD_SET, REMOVE_SET) and not made.error:
            self._change_sets(made)
        entries = list(map(self._table.get, batch.keys))
        if made.error:  # also of a process set that is removed already
            self._finish(batch.keys, entries, made.error, invalid=made.invalid)
            return
        group = self.collectives.groups.get(made.request.process_set)
        if group is None or group.place < 0:
            return
        if self._failure:  # entries that are gone for it would pass for those of a rank that joined: zeros
            raise RuntimeError(self._failure)
        if kind == JOIN:
            with self._lock:
                self._counters.clear()
        if kind in (BARRIER, JOIN, ADD_SET, REMOVE_SET):
            for entry in entries:
                if entry is not None:
                    entry.finish(made.answer)
        elif made.request.device != "cuda":
            with self.timeline.activity(batch):
                self.collectives.run(batch, entries)
        else:
            with self.timeline.activity(batch), _device_of(entries):
                for entry in entries:
                    if entry is not None and entry.event is not None:
                        entry.event.wait()
                self.collectives.run(batch, entries)
                _wait_for_device()
        self._finish(batch.keys, entries, "")

    def _remember(self, made: Agreement) -> None:
        self._agreed[made.number] = made
        self._plans.clear()
        request = made.request
        entry = self._table.get(request.key)
        if entry is None or self._failure:
            return
        known = Repeat(request.key, 1 << made.number, entry.signature)
        self._known[request.key] = known
        if request.process_set != 0:
            return
        if entry.asked is not None and request.op != ADASUM and request.device == "cpu":
            (tensor,) = entry.inputs
            known.asked, known.shape, known.dtype = entry.asked, tensor.shape, tensor.dtype
            self.repeats[request.name] = known
        else:
            self.repeats.pop(request.name, None)

    def _change_sets(self, made: Agreement) -> None:
        groups = self.collectives.groups
        if made.request.kind == ADD_SET:
            groups[made.answer] = self._make_group(made.request.splits)
            return
        group = groups.pop(made.answer)
        self._known = {key: known for key, known in self._known.items() if key[0] != made.answer}
        if group.handle is not None:
            import torch.distributed as dist

            dist.destroy_process_group(group.handle)

    def _finish(
        self, keys: Iterable[Key], entries: Iterable[Entry | None], error: str, *, invalid: bool = False
    ) -> None:
        done = [(key, entry) for key, entry in zip(keys, entries, strict=True) if entry is not None]
        for key, _ in done:  # what this rank submits only now waits for an answer of its own
            self._table.pop(key, None)
        with self._finished:
            for _, entry in done:
                if error:
                    entry.error, entry.invalid = error, invalid
                entry.is_done = True
            self._finished.notify_all()

    def give_up(self, error: Exception) -> None:
        """Let everybody who waits have an error; called from another thread."""
        self._fail(str(error))

    def _fail(self, reason: str) -> None:
        """Tell everybody who waits, now and later, that nothing comes any more."""
        self._failure = self._failure or reason
        self.repeats.clear()
        table = self._table.copy()
        self._finish(table, table.values(), reason)

    def close(self) -> None:
        """Leave the job: what others wait for from this rank is an error there from now on."""
        self._send()
        self._closing = True
        with suppress(OSError):
            self._link.send(0, [Request("has shut down", LEAVE)])
        self._link.close()
        self._alarm.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT_S)
        self.timeline.stop()


def _in_flight(key: Key) -> ValueError:
    return ValueError(
        f"a collective named {key[1]} is in flight already: wait for it with synchronize(), or give "
        "this one another name"
    )


def _device_of(entries: Sequence[Entry | None]) -> Any:
    """Return a context in which the GPU of the tensors is the current one; CPUs need none."""
    first = next((entry for entry in entries if entry is not None and entry.event is not None), None)
    if first is None:
        return nullcontext()
    import torch

    return torch.cuda.device(first.inputs[0].device)


def _wait_for_device() -> None:
    import torch

    torch.cuda.current_stream().synchronize()
