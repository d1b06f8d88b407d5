"""``gangline run --context C -- PROGRAM``: from the command line to a job on a cluster that has its code."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gangline.api.codec import Document
from gangline.client.code.code_bundle import CodeBundle, pack_folder
from gangline.client.code.git_code import GitCode
from gangline.client.code.mpi_use import uses_mpi
from gangline.client.run.cluster_program import ClusterProgram
from gangline.client.run.create_or_attach import delete_job
from gangline.client.run.gpus import COMMAND_LINE
from gangline.client.run.program_job import check_name, check_ranks, name_of_program
from gangline.client.run.program_kinds import PROGRAM_KINDS
from gangline.client.target import ClusterTarget
from gangline.cluster.runs.names import names_after
from gangline.cluster.runs.record import PROGRAM_ANNOTATION, program_text
from gangline.errors import UserError
from gangline.workloads.start_gates import SENDING_ANNOTATION

if TYPE_CHECKING:
    from gangline.client.run.pod_options import PodOptions
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

TOKEN_BYTES = 3


def cluster_program(
    program: tuple[str, ...],
    target: ClusterTarget,
    images: tuple[str, ...],
    code: Path | GitCode | None,
    counts: tuple[int, int, int],
    environment: Mapping[str, str],
    pods: PodOptions,
    kind: str,
    added: Mapping[str, bytes] = MappingProxyType({}),
) -> ClusterProgram:
    """Return what to run, its code packed.

    Args:
        program: words behind ``--``.
        target: the cluster, for the namespace.
        images: of ``--image``.
        code: folder or repository of the code, None for the current folder.
        counts: ranks, pods and GPUs of each rank.
        environment: for every rank.
        pods: further options.
        kind: word of the job's kind.
        added: files that travel beside the code, by their paths in it.

    Raises:
        UserError: no image, or several; code that cannot be packed; a script that is not in it.
    """
    ranks, nodes, gpus = counts
    check_ranks(ranks, nodes)
    if len(images) != 1 or "=" in images[0]:
        found = ", ".join(f"`--image {image}`" for image in images) or "none"
        raise UserError(
            f"a program on a cluster runs in one image, which has its packages (found {found})",
            hint="--image pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime, or another with Python 3.8 or newer",
        )
    if pods.code_claim and code:
        raise UserError("--code and --code-claim exclude each other", hint="leave one of them out")
    git = code.pinned() if isinstance(code, GitCode) else None
    folder = code if isinstance(code, Path) else Path()
    bundle = None if git or pods.code_claim else _packed(folder, program, added)
    is_mpi = pods.is_mpi if pods.is_mpi is not None else bool(bundle) and uses_mpi(program, folder)
    is_led = PROGRAM_KINDS[kind].has_operator
    return ClusterProgram(
        namespace=target.connection().namespace or "default",
        image=images[0],
        program=program,
        code=bundle,
        git=git,
        ranks=ranks,
        nodes=nodes,
        gpus_per_rank=gpus,
        environment=dict(environment),
        pods=pods,
        token=secrets.token_hex(TOKEN_BYTES),
        is_mpi=is_mpi,
        # Of a kind whose first pod speaks for the job, that one starts the ranks of all.
        key=_agent_key() if nodes > 1 and (is_mpi or pods.restarts or is_led) else {},
        kind=kind,
    )


def _agent_key() -> dict[str, str]:
    """Return the files by which the pods of one job know each other."""
    from gangline.jobs.names import CERTIFICATE_KEY, PRIVATE_KEY
    from gangline.operator.key_pair import generate_key_pair

    pair = generate_key_pair(has_certificate=True)
    files = {"agent.key": PRIVATE_KEY, "agent.crt": CERTIFICATE_KEY}
    return {file: base64.b64decode(pair[key]).decode() for file, key in files.items()}


def _packed(folder: Path, program: tuple[str, ...], added: Mapping[str, bytes]) -> CodeBundle:
    """Return the code of a folder, in which the script of the program is.

    Raises:
        UserError: it cannot be packed, or the script is not in it.
    """
    bundle = pack_folder(folder, added)
    script = next((word for word in program[1:] if not word.startswith("-")), "")
    path = PurePosixPath(script)
    is_script = program[0].rpartition("/")[2].startswith("python") and script.endswith(".py")
    if is_script and "-m" not in program and not path.is_absolute() and path not in bundle.paths:
        there = (folder / script).exists()
        raise UserError(
            f"`{script}` is not in the code that goes to the cluster, {folder.resolve()}"
            + (": an ignore file names it" if there else ""),
            hint="take it out of .gitignore or .ganglineignore" if there else "--code DIR names its folder",
        )
    return bundle


def named(run: ClusterProgram, name: str) -> Obj:
    """Return its job under a name, with the words that the user typed."""
    job = run.job(name)
    job["metadata"]["annotations"] |= {
        PROGRAM_ANNOTATION: program_text(run.program),
        SENDING_ANNOTATION: "true",
    }
    return job


def names(run: ClusterProgram, name: str | None, base: str = "") -> Iterator[str]:
    """Yield the names to try: the given one, else `base` or the program's, then with -2, -3, ... behind."""
    check_name(name)
    if name:
        yield name
        return
    yield from names_after(base or name_of_program(run.program), ())


def objects(run: ClusterProgram, name: str | None) -> list[Document]:
    """Return all objects as ``kubectl apply`` takes them, the job last."""
    chosen = next(names(run, name))
    digest = run.code.digest if run.code else hashlib.sha256(repr(run.git).encode()).hexdigest()
    run = replace(run, token=digest[: 2 * TOKEN_BYTES])  # the same code, the same text
    job = named(run, chosen)
    del job["metadata"]["annotations"][SENDING_ANNOTATION]
    if not run.pods.queue:
        job["spec"] = run.kind_of_job.started(job["spec"])
    return [Document(obj, file=COMMAND_LINE) for obj in (*(obj for _, obj in run.belongings(chosen)), job)]


async def deliver(run: ClusterProgram, client: ObjectClient, job: Obj) -> None:
    """Create what belongs to a job that was created suspended, and let it start; else take it away again."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    resource = run.kind_of_job.resource
    try:
        belongings = run.belongings(name, owner=job)
        await asyncio.gather(*(client.create(resource, obj) for resource, obj in belongings))
        start: Obj = {"metadata": {"annotations": {SENDING_ANNOTATION: None}}}
        if not run.pods.queue:  # Kueue lets it start
            start["spec"] = run.kind_of_job.start
        await client.patch(resource, name, start, namespace)
    except BaseException:
        await asyncio.shield(delete_job(client, resource, job))
        raise
