"""A function or program that is to run on ranks: from a call in Python to a job that was created."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec

from gangline.client.functions import name_of, pack_function
from gangline.client.notices import Say
from gangline.client.run.pod_options import PodOptions
from gangline.client.run.program_job import RANKS_MAX, check_name, name_of_program
from gangline.client.run.program_kinds import PROGRAM_KINDS
from gangline.client.run.submission import Claimed, create_objects
from gangline.client.target import ClusterTarget
from gangline.cluster.user_session import MACHINE, NODE
from gangline.errors import UserError
from gangline.launch.pods.call_function import FILE_VARIABLE
from gangline.launch.pods.programs import path_of

if TYPE_CHECKING:
    from gangline.api.codec import Document
    from gangline.client.run.program_session import HandOver
    from gangline.kube.verbs import ObjectClient
    from gangline.workloads.job_start import Obj

SENT_FOLDER = ".gangline"
"""Of the code on a cluster: what travels for a function."""
_CALLER = "call_function.py"


class RunOptions(TypedDict, total=False):
    """How a function or program is run.

    Attributes:
        name: of the run; left out, it is the function's or script's, then with -2, -3, ... behind.
        nodes: pods, each on a node of its own; one unless given.
        gpus_per_rank: GPUs that each rank has for itself.
        env: variables for the ranks; on one machine beside your own.
        image: of the pods on a cluster of a kubeconfig; the client's unless given.
        code: folder of the code, in which the ranks start; `cwd` unless given.
        cwd: folder that relative words of a program mean; the current one unless given.
        kind: of the job: `mpijob` (usual here), `job` (usual on a cluster), `pytorchjob`, `trainjob`.
        pods: what else the pods ask for on a cluster of a kubeconfig.
    """

    name: str
    nodes: int
    gpus_per_rank: int
    env: Mapping[str, str]
    image: str
    code: str | Path
    cwd: str | Path
    kind: str
    pods: PodOptions


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, and on how many ranks; what is not named here is as in `RunOptions`.

    Attributes:
        program: words of a program; for a function those that are shown.
        function: the pickled call; None for a program.
        base: what a run is called that has no name.
        ranks: number of ranks in all.
        nodes: 0 where it was left open.
    """

    program: tuple[str, ...] = ()
    function: bytes | None = None
    base: str = ""
    name: str = ""
    ranks: int = 1
    nodes: int = 0
    gpus_per_rank: int = 0
    env: Mapping[str, str] = {}
    image: str = ""
    code: str | Path = ""
    cwd: str | Path = ""
    kind: str = ""
    pods: PodOptions = PodOptions()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Ranks, pods and GPUs of each rank."""
        return self.ranks, self.nodes or 1, self.gpus_per_rank

    def problems(self) -> Iterator[tuple[str, UserError]]:
        """Yield what is wrong wherever it is run, each with the name of its option."""
        if not 1 <= self.ranks <= RANKS_MAX:
            yield "ranks", UserError(f"ranks must be 1 to {RANKS_MAX} (found `{self.ranks}`)")
        if not 0 <= self.nodes <= self.ranks:
            rule = f"nodes must be 1 to ranks, which are {self.ranks} (found `{self.nodes}`)"
            yield "nodes", UserError(rule)
        if self.kind not in ("", *PROGRAM_KINDS):
            kinds = ", ".join(f"`{kind}`" for kind in PROGRAM_KINDS)
            yield "kind", UserError(f"kind must be one of {kinds} (found `{self.kind}`)")
        try:
            check_name(self.name or None)
        except UserError as error:
            yield "name", error
        if self.gpus_per_rank < 0:
            found = f"gpus_per_rank must be at least 0 (found `{self.gpus_per_rank}`)"
            yield "gpus_per_rank", UserError(found)

    def check(self, *, is_local: bool) -> None:
        """Refuse what cannot be run, before anything is created.

        Raises:
            UserError: with the rule and the value found.
        """
        for _, error in self.problems():
            raise error
        if is_local and self.image:
            raise UserError(
                f"image `{self.image}` belongs to a cluster of a kubeconfig; on this machine the ranks run "
                "with your own Python",
                hint="leave image out, or make the client with Client(context=...)",
            )
        self.pods.check(is_local=is_local, is_program=True)
        if self.function is not None and self.pods.code_claim:
            raise UserError("a function travels with the code, which pods.code_claim replaces")


def call_of(
    target: Callable[..., object] | Sequence[str],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    is_local: bool,
    options: Call,
) -> Call:
    """Return the call of a function, pickled, or of a program's words.

    Raises:
        UserError: it is neither, or cannot be pickled.
    """
    if callable(target):
        word = re.sub(r"[^a-z0-9]+", "-", name_of(target).lower()).strip("-") or "function"
        path = [os.path.abspath(folder) for folder in sys.path] if is_local else ()  # noqa: PTH100
        function = pack_function(target, args, kwargs, ranks=options.ranks, path=path)
        base = name_of_program(["function", word]) if word == "function" else name_of_program([word])
        return msgspec.structs.replace(
            options, program=(_CALLER, name_of(target)), function=function, base=base
        )
    words = tuple(target)
    if isinstance(target, str) or not words or not all(isinstance(word, str) for word in words):
        raise UserError(
            f"what to run is a function, or the words of a program (found `{target!r}`)",
            hint='client.run(["python", "train.py"], ranks=2)',
        )
    if args or kwargs:
        raise UserError("args and kwargs belong to a function", hint="write them into the program's words")
    return msgspec.structs.replace(options, program=words, base=name_of_program(words))


class _Prepared(NamedTuple):
    """What is about to be created.

    Attributes:
        documents: the job.
        hand_over: is called with it once it was created.
        next_obj: the job under another name; None where it has one.
    """

    documents: list[Document]
    hand_over: HandOver
    next_obj: Callable[[], Obj] | None


async def create_call(client: ObjectClient, target: ClusterTarget, call: Call, say: Say) -> Claimed:
    """Create the job of a call.

    Raises:
        UserError: a run of that name goes on, or something else is wrong with the call.
        UnschedulableError: it asks for more than there will ever be.
        ClusterError: the server refuses it.
    """
    prepare = _locally if target.is_local else _on_cluster
    documents, hand_over, next_obj = await asyncio.to_thread(prepare, target, call, say)
    [claimed] = await create_objects(client, documents, target, hand_over, next_obj, say)
    return claimed


def _locally(target: ClusterTarget, call: Call, say: Say) -> _Prepared:
    from gangline.client.run.capacity import check_capacity
    from gangline.client.run.gpus import GpuOptions, fitting
    from gangline.client.run.local_program import local_program
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.runs.history import History

    words = call.program
    if call.function is not None:
        words = (sys.executable, str(path_of(_CALLER)), call.program[1])
    folder = Path(call.code) if call.code else None
    session = NODE if call.nodes else MACHINE
    job = local_program(
        words,
        target,
        call.counts,
        folder,
        call.name or None,
        dict(call.env),
        session,
        call.kind or None,
        call.function,
        Path(call.cwd) if call.cwd else None,
    )
    job = msgspec.structs.replace(job, base=call.base, program=call.program)
    cluster, gpus = Cluster(target.paths), GpuOptions()
    names = job.names(History(cluster.paths), target.namespace or "default")

    def next_document() -> Document:
        return fitting(cluster, [job.document(next(names))], gpus, say=say)[0]

    document = next_document()
    check_capacity(cluster, [document])
    next_obj = None if call.name else lambda: next_document().value
    return _Prepared([document], job.hand_over, next_obj)


def _on_cluster(target: ClusterTarget, call: Call, say: Say) -> _Prepared:
    from gangline.api.codec import Document
    from gangline.client.run.cluster_run import cluster_program, deliver, named, names
    from gangline.client.run.gpus import COMMAND_LINE

    del say
    words, environment, added = call.program, dict(call.env), {}
    if call.function is not None:
        words = ("python3", f"{SENT_FOLDER}/{_CALLER}", call.program[1])
        environment[FILE_VARIABLE] = f"{SENT_FOLDER}/function"
        added = {f"{SENT_FOLDER}/{name}": data for name, data in _sent(call.function).items()}
    images = (call.image,) if call.image else ()
    chosen = call.code or call.cwd
    folder = Path(chosen) if chosen else None
    counts = call.ranks, call.nodes or 1, call.gpus_per_rank
    run = cluster_program(
        words, target, images, folder, counts, environment, call.pods, call.kind or "job", added
    )
    left = names(run, call.name or None, call.base)

    def next_obj() -> Obj:
        return named(run, next(left))

    async def hand_over(client: ObjectClient, job: Obj) -> None:
        await deliver(run, client, job)

    return _Prepared([Document(next_obj(), file=COMMAND_LINE)], hand_over, None if call.name else next_obj)


def _sent(function: bytes) -> dict[str, bytes]:
    """Return what travels with the code: the call, the program that makes it, and cloudpickle."""
    import cloudpickle

    package = Path(cloudpickle.__file__).parent
    files = {f"{package.name}/{file.name}": file.read_bytes() for file in package.glob("*.py")}
    return {**files, "function": function, _CALLER: path_of(_CALLER).read_bytes()}
