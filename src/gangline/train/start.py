"""Begin a training: find this rank's place, meet the others, choose backend, device and threads.

torch is imported here, late; ``import gangline.train`` alone costs no more than a dictionary.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gangline.errors import EXIT_RESUME, UserError
from gangline.train.ending import early_end, end_together, free_waiting, give_up_waiting
from gangline.train.environment import (
    BOARD_VARIABLE,
    GENERATION_VARIABLE,
    Environment,
    Ranks,
    complete,
    read_ranks,
)
from gangline.train.heartbeat import HeartbeatSocket
from gangline.train.peers import PeerLostError, Peers, is_of_collective
from gangline.train.preemption import StopRequest
from gangline.train.rank_device import choose_device, set_threads
from gangline.train.rendezvous import (
    MEETING_TIMEOUT_S,
    exchange,
    forget_ranks,
    interface_towards,
    open_store,
)
from gangline.train.silence.own_place import own_place
from gangline.train.silence.watch import Watch
from gangline.train.stacks import StackFile
from gangline.train.stall_detection import SILENT_AFTER_S
from gangline.train.traffic import traffic
from gangline.train.unless_lost import unless_lost

if TYPE_CHECKING:
    from gangline.train.checkpoints.checkpoint import Checkpoints
    from gangline.train.data.shard import Shard
    from gangline.train.progress import Progress

TIMEOUT_S = 1800.0
"""After this long in one collective torch gives up, as its own default."""

BACKENDS = ("auto", "nccl", "gangline", "gloo")
"""``gloo`` is taken for gangline, which does over gloo what does not go over shared memory."""


@dataclass(slots=True)
class Session:
    """One rank of a training that has begun.

    Attributes:
        ranks: this rank's complete place.
        backend: ``nccl`` or ``gangline``.
        device: ``torch.device`` for this rank's tensors.
        threads: torch's threads of this rank.
        nodes: host name of every rank.
        store: torch store that all ranks share.
        no_shared_memory: why collectives do not go over shared memory, ``""`` when they do.
    """

    ranks: Ranks
    backend: str
    device: Any
    threads: int
    nodes: list[str]
    store: Any
    peers: Peers
    no_shared_memory: str = ""
    watch: Watch | None = None
    _stop_request: StopRequest | None = None
    _checkpoints: list[Checkpoints] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """This rank, 0 to ``size - 1``."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.ranks.size

    @property
    def local_rank(self) -> int:
        """Place among the ranks of this node."""
        return self.ranks.local_rank or 0

    def parallel(self, model: Any, **options: Any) -> Any:
        """Return the model on this rank's device, its gradients averaged over all ranks.

        It is a DistributedDataParallel, on one rank too: ``module``, ``no_sync()``, ``join()`` are there.

        Args:
            model: a torch module.
            options: for DistributedDataParallel; ``gradient_as_bucket_view`` is on unless given.

        Raises:
            PeerLostError: later, out of ``backward()``: a rank ended while this one waited for it.
        """
        from torch.nn.parallel import DistributedDataParallel

        options.setdefault("gradient_as_bucket_view", True)
        if self.device.type == "cuda":
            options.setdefault("device_ids", [self.device.index])
        return DistributedDataParallel(model.to(self.device), **options)

    def progress(self, **options: Any) -> Progress:
        """Return a reporter of steps; see `gangline.train.progress.Progress` for its options."""
        from gangline.train.progress import Progress

        reducer = self._reduced if self.size > 1 else None
        return Progress(self.rank, self.size, watch=self.watch, reducer=reducer, **options)

    def _reduced(self, values: list[float], how: str) -> list[float]:
        from gangline.train.scalars import torch_reducer

        try:
            return torch_reducer(self.size, self.device)(values, how)
        except RuntimeError as error:
            raise self.peers.lost(error, "progress.log()") from error

    def shard(self, dataset: Sized, **options: Any) -> Shard:
        """Return this rank's share of a data set, a sampler for torch's DataLoader.

        Args:
            dataset: of which the length is asked.
            options: of `gangline.train.data.shard.Shard`: ``batch_size``, ``shuffle``, ``seed``, ``done``.
        """
        from gangline.train.data.shard import Shard

        return Shard(dataset, self.rank, self.size, **options)

    def reduce(self, values: Mapping[str, Any], how: str = "mean") -> dict[str, float]:
        """Return numbers of all ranks together, the same on every rank; all ranks wait for one another.

        Args:
            values: numbers or tensors of one element, the same names in the same order on all ranks.
            how: ``mean``, ``sum``, ``min`` or ``max``.

        Raises:
            UserError: there is no value, or the reduction is none.
            PeerLostError: a rank ended that never came.
        """
        from gangline.train.scalars import check_scalars

        check_scalars(values, how)
        numbers = [float(value) for value in values.values()]
        return dict(zip(values, self._reduced(numbers, how) if self.size > 1 else numbers, strict=True))

    @staticmethod
    def unwrap(model: Any) -> Any:
        """Return the module inside of what `parallel`, torch's own wrappers and ``torch.compile`` return."""
        while (inner := getattr(model, "_orig_mod", None) or _wrapped(model)) is not None:
            model = inner
        return model

    def checkpoints(self, folder: str | Path, *, keep: int = 3) -> Checkpoints:
        """Return the checkpoints of this training in a folder that all ranks see."""
        from gangline.train.checkpoints.checkpoint import Checkpoints

        checkpoints = Checkpoints(
            *(Path(folder), self.ranks, self.store, self.peers), keep=keep, device_type=self.device.type
        )
        self._checkpoints.append(checkpoints)
        return checkpoints

    def should_stop(self) -> bool:
        """Return whether the job was asked to stop, by SIGTERM or SIGUSR1 to any rank; the same on all ranks.

        All ranks call it at the end of every step. From the first call on these signals end nothing by
        themselves: save, then `exit_to_resume`.

        Raises:
            PeerLostError: a rank ended that never came.
        """
        if self._stop_request is None:
            self._stop_request = StopRequest(self.rank, self.size, self.peers.is_lost)
        try:
            return self._stop_request.agreed()
        except RuntimeError as error:
            raise self.peers.lost(error, "should_stop()") from error

    def exit_to_resume(self) -> NoReturn:
        """End this rank, together with the others, with the code 75: not done, start it again.

        Raises:
            SystemExit: always.
        """
        self.close()
        raise SystemExit(EXIT_RESUME)

    def barrier(self) -> None:
        """Return when all ranks are here.

        Raises:
            PeerLostError: a rank ended that never came.
        """
        import torch.distributed as dist

        if self.size > 1:
            try:
                dist.barrier()
            except RuntimeError as error:
                raise self.peers.lost(error, "a barrier") from error

    def close(self) -> None:
        """End together: wait for all ranks, then leave the process group. A second call does nothing.

        Raises:
            CheckpointError: what was saved behind the training could not be written.
            PeerLostError: a rank ended without coming here, or waits in a collective for one that came here.
        """
        global _session
        if _session is not self:
            return
        for checkpoints in self._checkpoints:
            checkpoints.close()
        _session = None
        import torch.distributed as dist

        if self.size > 1:
            is_lost, what = self.peers.is_lost, "the end of the training"
            unless_lost(lambda: end_together(self), is_lost, lambda: self.peers.told(what))
        if self._stop_request is not None:
            self._stop_request.close()
        if self.watch is not None:
            self.watch.close()
            atexit.unregister(self.watch.close)
        dist.destroy_process_group()
        self.store = self.watch = None

    def finish_saves(self) -> None:
        """Return when nothing is being written behind the training; raises what `Checkpoints.wait` does."""
        for checkpoints in self._checkpoints:
            checkpoints.wait()

    def abandon(self) -> None:
        """Leave at once, waiting for nobody: ranks were lost, and others take this one's place."""
        global _session
        _session = None
        import torch.distributed as dist

        if self._stop_request is not None:
            self._stop_request.close()
        if self.watch is not None:
            self.watch.abandon()
            atexit.unregister(self.watch.close)
        self.peers.given_up = PeerLostError("this generation of ranks has ended")
        give_up_waiting(self.peers.given_up)
        for checkpoints in self._checkpoints:
            checkpoints.abandon()
        dist.destroy_process_group()
        self.store = self.watch = None
        forget_ranks()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif isinstance(error, PeerLostError):
            return
        elif isinstance(error, RuntimeError) and self.size > 1 and is_of_collective(error):
            raise self.peers.lost(error, "a collective") from error

    def _look_for_early_end(self, store: Any) -> None:
        if self.peers.ended_early is None and (error := early_end(self, store)) is not None:
            free_waiting(self, error)


_session: Session | None = None
_turns = 0


def init(
    *,
    backend: str = "auto",
    threads: int | None = None,
    timeout_s: float = TIMEOUT_S,
    shared_memory: bool = True,
    silent_after_s: float = SILENT_AFTER_S,
    environment: Environment | None = None,
    meeting_s: float = MEETING_TIMEOUT_S,
    is_lost: Callable[[], bool] | None = None,
) -> Session:
    """Make this process a rank of its job: torch.distributed is ready when it returns.

    Works under Open MPI, MPICH, Intel MPI, Slurm, PMIx, torchrun, ``horovodrun``, ``gangline run``, in pods
    of a PyTorchJob or TFJob, and for one process without any launcher.

    Args:
        backend: ``auto`` takes nccl where every rank has a GPU of its own, else gangline, on the CPU.
        threads: torch's threads of this rank; None means OMP_NUM_THREADS, else the cores that this process
            may use divided by the ranks of the node.
        timeout_s: how long one collective may take.
        shared_memory: let collectives of ranks on one node go over shared memory (CPU only).
        silent_after_s: how long no rank steps before the one that keeps the others waiting is named.
        environment: variables instead of this process's own.
        meeting_s: how long the other ranks are waited for.
        is_lost: whether one of them is lost while they meet, where a launcher tells that.

    Raises:
        UserError: the launcher's variables are incomplete or contradict each other.
        RendezvousError: the other ranks did not come.
        PeerLostError: one of them was lost before all had met.
    """
    global _session, _turns
    environment = os.environ if environment is None else environment
    _check_start(backend, environment)
    told = read_ranks(environment)
    try:
        import torch
    except ImportError as error:
        raise UserError("gangline.train needs torch in this Python", hint="pip install torch") from error

    _turns += 1
    turn = int(environment.get(GENERATION_VARIABLE, 0)) or _turns
    store = unless_lost(lambda: open_store(told, turn=turn, timeout_s=meeting_s), is_lost)
    stack_file, beats = StackFile(), HeartbeatSocket()
    own = _own_facts(told, torch, stack_file, beats)
    facts = unless_lost(lambda: exchange(store, told, own), is_lost)
    nodes = [str(one["node"]) for one in facts]
    ranks = complete(told, nodes)
    _check_facts(facts, ranks)
    count = set_threads(threads, environment, ranks, torch)
    device, chosen = choose_device(backend, facts, ranks, torch)
    if chosen == "gangline":
        _choose_interface(facts, ranks)
    import torch.distributed as dist

    from gangline.train.collectives.rank_group import RankGroup

    peers = Peers(ranks.rank, facts, is_lost)
    RankGroup.peers, RankGroup.is_watched, RankGroup.shares_memory = peers, True, shared_memory
    RankGroup.is_lost = is_lost

    dist.init_process_group(
        chosen,
        store=dist.PrefixStore("torch", store),
        rank=ranks.rank,
        world_size=ranks.size,
        timeout=timedelta(seconds=timeout_s),
    )
    session = Session(ranks, chosen, device, count, nodes, store, peers)
    session.no_shared_memory = str(getattr(dist.group.WORLD, "no_shared_memory", ""))
    session.peers.find_early_end = lambda: early_end(session, store)
    session.watch = Watch(
        *(session.ranks, facts, store, traffic, stack_file, beats),
        silent_after_s=silent_after_s,
        look=session._look_for_early_end,
    )
    session.watch.start()
    atexit.register(session.watch.close)
    _session = session
    return session


def _check_start(backend: str, environment: Environment) -> None:
    if _session is not None:
        raise UserError(
            "init() was called before in this process", hint="close() that session before the next one"
        )
    if backend not in BACKENDS:
        raise UserError(f"backend `{backend}` is unknown; there are {', '.join(BACKENDS)}")
    if BOARD_VARIABLE in environment and GENERATION_VARIABLE not in environment:
        raise UserError(
            "this process was started by an elastic launch, and calls init()",
            hint="call gangline.train.run_elastic(train, state), or launch it without --min-ranks",
        )


def _own_facts(ranks: Ranks, torch: Any, stack_file: StackFile, beats: HeartbeatSocket) -> dict[str, Any]:
    gpus: list[str] = []
    if torch.cuda.is_available():
        gpus = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
    return own_place(stack_file, beats) | {"size": ranks.size, "gpus": gpus}


def current() -> Session | None:
    """Return the session of this process that is not closed, None without one."""
    return _session


def _check_facts(facts: list[dict[str, Any]], ranks: Ranks) -> None:
    other = next((rank for rank, fact in enumerate(facts) if fact["size"] != ranks.size), None)
    if other is not None:
        raise UserError(f"rank {other} was told {facts[other]['size']} ranks, this one {ranks.size}")


def _choose_interface(facts: list[dict[str, Any]], ranks: Ranks) -> None:
    """Tell gloo its interface unless the user did: a host's own name often leads to loopback or nowhere."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    mine = facts[ranks.rank]["node"]
    others = [fact["addresses"] for fact in facts if fact["node"] != mine]
    if others:
        name = interface_towards(others[0][0]) if others[0] else ""
    else:
        name = "lo" if Path("/sys/class/net/lo").exists() else ""
    if name:
        os.environ["GLOO_SOCKET_IFNAME"] = name


def _wrapped(model: Any) -> Any:
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    return model.module if isinstance(model, DistributedDataParallel | DataParallel) else None
