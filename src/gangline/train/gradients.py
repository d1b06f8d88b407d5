"""DistributedDataParallel's gradients over shared memory: a communication hook and the thread behind it.

The hook hands every bucket to one thread, which sums the buckets in the order in which they came (the same on
all ranks) while backward goes on. Ranks of one node sum through shared memory; with several nodes their first
ranks then sum over gloo, and hand the result to the others of their node.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.train.environment import Ranks
from gangline.train.rendezvous import exchange
from gangline.train.shared_memory import (
    FOLDER,
    RANKS_MAX,
    SharedMemory,
    remove_leftovers,
    why_unsupported,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Adder = Callable[[list[Array], Array], None]

_ELEMENTS_AT_ONCE = 1 << 14
"""For half precision: below the size from which torch would start threads of its own for one operation."""


class Traffic:
    """Counts gradient buckets: whoever has begun more than it has ended waits for its peers."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.changed_at = self.ended_at = time.monotonic()

    def begin(self) -> None:
        """Count a bucket that was handed over."""
        self.begun += 1
        self.changed_at = time.monotonic()

    def end(self) -> None:
        """Count a bucket that came back."""
        self.ended += 1
        self.changed_at = self.ended_at = time.monotonic()

    def waits(self) -> bool:
        """Return whether a bucket is under way."""
        return self.begun > self.ended


class SharedGradients:
    """Averages gradient buckets between all ranks; ``begin`` is what a communication hook calls.

    Args:
        memory: shared with the other ranks of this node.
        ranks: this rank's place.
        leaders: torch process group of the nodes' first ranks; None when there is one node only.
        traffic: is told of every bucket.
    """

    def __init__(self, memory: SharedMemory, ranks: Ranks, leaders: Any, traffic: Traffic) -> None:
        self._memory = memory
        self._size = ranks.size
        self._leaders = leaders
        self._traffic = traffic
        self._work: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="gangline-gradients", daemon=True)
        self._thread.start()

    def begin(self, bucket: Any) -> Any:
        """Begin the average of a bucket and return its future; called by DistributedDataParallel's hook."""
        import torch

        future: Any = torch.futures.Future()
        self._traffic.begin()
        self._work.put((bucket.buffer(), future))
        return future

    def average(self, tensor: Any) -> None:
        """Replace a contiguous CPU tensor by its average over all ranks, now, in the calling thread.

        Must not run while buckets are under way.
        """
        flat, adder = as_array(tensor), adder_for(tensor, 1 if self._leaders_needed() else self._size)
        self._memory.all_reduce(flat, adder)
        if not self._leaders_needed():
            return
        if self._memory.rank == 0:
            import torch.distributed as dist

            dist.all_reduce(tensor, group=self._leaders)
            tensor.div_(self._size)
        self._memory.broadcast(flat)

    def give_up(self, error: Exception) -> None:
        """Let an average that waits for other ranks end with an error, within a second."""
        self._memory.given_up = error

    def close(self) -> None:
        """End the thread and let the memory go."""
        self._work.put(None)
        self._thread.join()
        self._memory.close()

    def _leaders_needed(self) -> bool:
        return self._size != self._memory.size

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            tensor, future = item
            try:
                self.average(tensor)
            except Exception as error:  # noqa: BLE001 - whatever it is, the one who waits must have it
                future.set_exception(error)
            else:
                self._traffic.end()
                future.set_result(tensor)


def as_array(tensor: Any) -> Array:
    """Return a flat numpy view of a tensor; types that numpy does not know come as int16."""
    import torch

    flat = tensor.detach().view(-1)
    if flat.dtype in (torch.bfloat16, torch.float16):
        flat = flat.view(torch.int16)
    array: Array = flat.numpy()
    return array


def adder_for(tensor: Any, divisor: int) -> Adder:
    """Return how parts of tensors like this one are added up in the order of the ranks, then divided.

    Half precision is added in float32 and rounded once.
    """
    import numpy as np
    import torch

    half = tensor.dtype if tensor.dtype in (torch.bfloat16, torch.float16) else None

    def add(parts: list[Array], out: Array) -> None:
        np.add(parts[0], parts[1], out=out)
        for part in parts[2:]:
            np.add(out, part, out=out)
        if divisor > 1:
            np.divide(out, out.dtype.type(divisor), out=out)

    def add_half(parts: list[Array], out: Array) -> None:
        for start in range(0, len(out), _ELEMENTS_AT_ONCE):
            piece = slice(start, start + _ELEMENTS_AT_ONCE)
            total = torch.from_numpy(parts[0][piece]).view(half).float()
            for part in parts[1:]:
                total += torch.from_numpy(part[piece]).view(half)
            torch.from_numpy(out[piece]).view(half).copy_(total.div_(divisor))

    return add_half if half else add


def counting_hook(traffic: Traffic, group: Any) -> Callable[[Any], Any]:
    """Return torch's own average over a group of ranks, counted; for ranks without shared memory."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def ended(future: Any) -> Any:
        traffic.end()
        return future.value()[0] if isinstance(future.value(), list) else future.value()

    def begin(bucket: Any) -> Any:
        traffic.begin()
        return allreduce_hook(group, bucket).then(ended)

    return begin


def share_memory(store: Any, ranks: Ranks, domains: list[str]) -> tuple[SharedMemory | None, str]:
    """Return this rank's shared memory, or None and why all ranks do without it.

    All ranks come to the same answer: what one of them cannot do, none does.

    Args:
        store: that all ranks share.
        ranks: this rank's place.
        domains: a name for each rank's /dev/shm, the same for ranks that see the same one; "" without.
    """
    together = [rank for rank, domain in enumerate(domains) if domain == domains[ranks.rank]]
    groups = [domains.count(domain) for domain in dict.fromkeys(domains)]
    if problem := _unsuited(domains, groups):
        return None, problem
    memory, problem = _open_memory(store, ranks, together)
    said = exchange(store, ranks, {"problem": problem}, name="memory")
    if memory is not None and ranks.rank == together[0]:
        memory.unlink()
    if found := next(
        (f"rank {rank}: {one['problem']}" for rank, one in enumerate(said) if one["problem"]), ""
    ):
        if memory is not None:
            memory.close()
        return None, found
    return memory, ""


def _unsuited(domains: list[str], groups: list[int]) -> str:
    if not all(domains):
        return f"rank {domains.index('')}: {why_unsupported() or 'it has no /dev/shm'}"
    if min(groups) < 2:
        return "no two ranks share a node" if max(groups) < 2 else "one node has a single rank"
    if max(groups) > RANKS_MAX:
        return f"a node has {max(groups)} ranks, more than {RANKS_MAX}"
    return ""


def _open_memory(store: Any, ranks: Ranks, together: list[int]) -> tuple[SharedMemory | None, str]:
    import os
    import uuid

    first = together[0]
    try:
        if ranks.rank == first:
            remove_leftovers()
            path = FOLDER / f"gangline-{os.getuid()}-{uuid.uuid4().hex[:16]}"
            try:
                return SharedMemory(path, 0, len(together), create=True, names=together), ""
            finally:
                store.set(f"memory-at/{first}", str(path))
        path = Path(store.get(f"memory-at/{first}").decode())
        own = together.index(ranks.rank)
        return SharedMemory(path, own, len(together), create=False, names=together), ""
    except OSError as error:
        return None, f"shared memory in {FOLDER}: {error.strerror or error}"
