"""``gangline run``: manifests, or a command on N ranks, from start to result."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.gpus import gpu_options
from gangline.cli.options.images import ImageOptions, image_check_of, image_options
from gangline.cli.options.pods import pod_options
from gangline.cli.options.ranks import gpus_of_each, rank_options, ranks_and_nodes
from gangline.cli.options.target import target_options
from gangline.cli.run.prepare import TryOptions, prepared, settle
from gangline.cli.run.sweep import SweepOptions, run_sweep, sweep_options
from gangline.client.code.git_code import GitCode, code_of, folder_of
from gangline.client.run.gpus import GpuOptions
from gangline.client.run.images import substitutions
from gangline.client.run.pod_options import PodOptions
from gangline.client.run.program_session import HandOver, no_handover
from gangline.client.target import ClusterTarget
from gangline.cluster.user_session import MACHINE, NODE
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.api.codec import Document
    from gangline.client.run.notify import Notifier
    from gangline.client.run.program_name import ProgramJob
    from gangline.cluster.images.image_map import ImageMap

_PASSED_ON = ("LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS")
"""The only variables of the user's that reach the ranks unasked, besides PATH and VIRTUAL_ENV."""


class _RunCommand(click.Command):
    """Splits the line at the first ``--``: what follows is the program, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the part before ``--``."""
        program: tuple[str, ...] = ()
        if "--" in args:
            index = args.index("--")
            program, args = tuple(args[index + 1 :]), args[:index]
            if not program:
                raise click.UsageError("no program after `--`", ctx)
        ctx.meta["gangline.program"], ctx.meta["gangline.words"] = program, list(args)
        if program and any(word.startswith(("--context", "--kubeconfig")) for word in args):
            from gangline.cli.run.settings import context_of, kept_options

            ctx.default_map = kept_options(Path(), context_of(args), self.params)
        return super().parse_args(ctx, args)


@click.command("run", cls=_RunCommand, options_metavar="[OPTIONS]")
@click.argument("files", nargs=-1, metavar="FILE... | -- PROGRAM [ARG]...")
@rank_options(help_text="Number of ranks that run PROGRAM.  [default: 1]")
@click.option(
    "--nodes",
    "--nnodes",
    "nodes",
    type=int,
    metavar="M",
    help="Worker pods, each on a node of its own.  [default: 1]",
)
@click.option(
    "--code",
    metavar="DIR|git+URL[@REVISION]",
    callback=lambda _context, _option, value: code_of(value),
    help="Folder of the code, in which PROGRAM starts; on a cluster also a git repository.  "
    "[default: the current one]",
)
@click.option(
    "--name", metavar="NAME", help="Name of the run.  [default: the script's, then with -2, -3, ... behind]"
)
@click.option(
    "--kind",
    type=click.Choice(["job", "mpijob", "pytorchjob", "trainjob"]),
    help="Kind of the job that runs PROGRAM.  [default: mpijob on this machine, job on a cluster]",
)
@click.option(
    "-x", "forwarded", multiple=True, metavar="NAME", help="Pass a variable of yours on to the ranks."
)
@click.option(
    "-e", "--env", "assigned", multiple=True, metavar="NAME=VALUE", help="Set a variable for the ranks."
)
@click.option("--isolated", is_flag=True, help="Pods of their own, without your other files and variables.")
@click.option("--dry-run", is_flag=True, help="Check everything, print the objects, create nothing.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "name"]),
    default="yaml",
    help="What --dry-run prints.  [default: yaml]",
)
@click.option(
    "--try",
    "is_tried",
    is_flag=True,
    help="Run a file whose cluster this is not: simulated GPUs, small models, empty volumes; says so.",
)
@click.option("--yes", "-y", "is_agreed", is_flag=True, help="With --try: make an environment with torch.")
@click.option(
    "--notify",
    metavar="COMMAND|URL",
    callback=lambda _context, _option, value: _notifier(value),
    help="Tell it when ranks keep others waiting, and of the end.",
)
@sweep_options
@gpu_options
@image_options
@pod_options
@target_options(short_namespace=False)
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    ranks: int | None,
    per_node: int | None,
    nodes: int | None,
    code: Path | GitCode | None,
    name: str | None,
    kind: str | None,
    forwarded: tuple[str, ...],
    assigned: tuple[str, ...],
    isolated: bool,
    dry_run: bool,
    output: str,
    is_tried: bool,
    is_agreed: bool,
    notify: Notifier | None,
    sweep: SweepOptions,
    gpus: GpuOptions,
    images: ImageOptions,
    pods: PodOptions,
    target: ClusterTarget,
) -> int:
    """Run the jobs of manifests, or PROGRAM on N ranks, and wait for the result.

    The one-machine cluster is started if it is not up. The launcher's log goes to standard output, its exit
    code becomes this command's. Ctrl-C once deletes the job, twice detaches from it.

    \b
    gangline run mpijob.yaml
    gangline run -n 4 -- python train.py --epochs 3
    gangline run --sweep lr=1e-3,1e-2 --sweep seed=0..4 --parallel 2 -- python train.py {lr} {seed}
    """  # noqa: D301 - click's mark for text that is not filled
    program, job = context.meta["gangline.program"], None
    options: dict[str, object] = {"-n": ranks or per_node, "--code": code, "--name": name, "--kind": kind}
    options |= {"-x or --env": forwarded + assigned, "--isolated": isolated}
    _check_usage(program, files, ranks or per_node, options)
    if sweep.is_asked(is_program=bool(program)):
        return run_sweep(target, program, context.meta["gangline.words"], sweep, name, dry_run)
    _check_try(is_tried, is_agreed, is_possible=not program and target.is_local)
    gpus.check(is_local=target.is_local, is_program=bool(program))
    pods.check(is_local=target.is_local, is_program=bool(program))
    if program and not target.is_local:
        counts = _counts(ranks, per_node, nodes, gpus)
        environment = chosen_environment(forwarded, (*pods.variables(), *assigned), dict(os.environ), ())
        rest = pods, kind, name, dry_run, output
        return _on_cluster(program, target, images.texts, code, counts, environment, *rest, notify)
    images.check_place(is_local=target.is_local)
    if program:
        environment = chosen_environment(forwarded, assigned, dict(os.environ))
        session = "" if isolated or dry_run else MACHINE if nodes is None else NODE
        counts = _, nodes, _ = _counts(ranks, per_node, nodes, gpus)
        job = _local_job(program, target, counts, code, name, environment, session, kind, pods.restarts)
        documents = [job.document()]
    else:
        documents = _manifests(files, target)
    if program or dry_run or not target.is_local:
        _check(documents, target, images)
    else:
        line = " ".join(["gangline run", *map(shlex.quote, files)]) + target.options
        trial = TryOptions(line, is_tried, is_agreed)
        documents, images = prepared(documents, target, nodes or 1, gpus, images, trial)
    if dry_run:
        return _print_objects(documents, output)
    try:
        return _run(documents, target, 1 if nodes is None else nodes, gpus, images, job, notify)
    finally:
        if is_tried:
            settle(target)


def _local_job(
    program: tuple[str, ...],
    target: ClusterTarget,
    counts: tuple[int, int, int],
    code: Path | GitCode | None,
    name: str | None,
    environment: dict[str, str],
    session: str,
    kind: str | None,
    restarts: int,
) -> ProgramJob:
    from gangline.client.run.local_program import local_program

    place = program, target, counts, folder_of(code), name, environment, session, kind
    return local_program(*place, restarts=restarts)


def _manifests(files: tuple[str, ...], target: ClusterTarget) -> list[Document]:
    from gangline.client.manifests import read_manifests, with_namespace

    namespace = target.namespace or ("" if target.is_local else target.connection().namespace)
    return with_namespace(read_manifests(files), namespace or "default")


def _check_try(is_tried: bool, is_agreed: bool, *, is_possible: bool) -> None:
    if is_agreed and not is_tried:
        raise UserError(
            "--yes answers what --try asks, and --try is not given", hint="add --try, or leave it out"
        )
    if is_tried and not is_possible:
        raise UserError("--try is for files on the one-machine cluster", hint="leave it out")


def _check_usage(
    program: tuple[str, ...],
    files: tuple[str, ...],
    ranks: int | None,
    options: Mapping[str, object],
) -> None:
    """Refuse what does not go together; ``options`` are those of programs, with their values."""
    if program and files:
        raise UserError(
            f"both files (`{files[0]}`) and a program (`{program[0]}`) are given",
            hint="use one `gangline run` each",
        )
    if program:
        return
    if not files:
        raise UserError(
            "nothing to run", hint="gangline run FILE..., or gangline run -n 4 -- python train.py"
        )
    given = [option for option, value in options.items() if value]
    counted = f"-n {ranks or 2} "
    if files[0].endswith(".py") or _is_program(Path(files[0])):
        line = " ".join(["python", *files] if files[0].endswith(".py") else files)
        raise UserError(f"`{files[0]}` is a program, not a manifest", hint=f"gangline run {counted}-- {line}")
    if given:
        raise UserError(
            f"{given[0]} belongs to programs behind `--`; `{files[0]}` is a manifest, which says so itself",
            hint=f"change the manifest, or run a program: gangline run {counted}-- python train.py",
        )


def _is_program(file: Path) -> bool:
    """Return whether a file can be executed and begins as a script or binary does, or the PATH has it."""
    if not file.exists():
        return shutil.which(file) is not None
    try:
        with file.open("rb") as opened:
            return os.access(file, os.X_OK) and opened.read(4) in (b"\x7fELF", b"#!/b", b"#!/u")
    except OSError:
        return False


def _counts(
    ranks: int | None, per_node: int | None, nodes: int | None, gpus: GpuOptions
) -> tuple[int, int, int]:
    """Return ranks, nodes and GPUs of each rank."""
    count, chosen = ranks_and_nodes(ranks, per_node, nodes)
    said = None if ranks is None and per_node is None else count
    return count, chosen, gpus_of_each(gpus.total, gpus.per_rank, said, chosen)


def _on_cluster(
    program: tuple[str, ...],
    target: ClusterTarget,
    images: tuple[str, ...],
    code: Path | GitCode | None,
    counts: tuple[int, int, int],
    environment: dict[str, str],
    pods: PodOptions,
    kind: str | None,
    name: str | None,
    dry_run: bool,
    output: str,
    notifier: Notifier | None,
) -> int:
    from gangline.cli.run.cluster_follow import follow
    from gangline.client.run.cluster_run import cluster_program, objects

    started_s = time.monotonic()
    run = cluster_program(program, target, images, code, counts, environment, pods, kind or "job")
    return (
        _print_objects(objects(run, name), output)
        if dry_run
        else follow(run, target, name, started_s, notifier)
    )


def chosen_environment(
    forwarded: tuple[str, ...],
    assigned: tuple[str, ...],
    environment: dict[str, str],
    passed_on: tuple[str, ...] = _PASSED_ON,
) -> dict[str, str]:
    """Return the variables for isolated ranks: a few of the user's, those of -x, those set with --env.

    Raises:
        UserError: a name has no value, or an assignment has no name.
    """
    chosen = {name: environment[name] for name in passed_on if name in environment}
    for name in forwarded:
        if "=" in name:
            assigned = (*assigned, name)
            continue
        if name not in environment:
            raise UserError(
                f"-x {name}: your environment has no such variable", hint=f"set it: --env {name}=VALUE"
            )
        chosen[name] = environment[name]
    for assignment in assigned:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise UserError(
                f"--env {assignment}: write NAME=VALUE", hint=f"-x {assignment} passes your own value on"
            )
        chosen[name] = value
    return chosen


def _check(documents: list[Document], target: ClusterTarget, images: ImageOptions) -> None:
    from gangline.cli.output import say
    from gangline.client.manifests import check_manifests

    if not target.is_local:
        check_manifests(documents, is_local=False, say=say)
        return
    check_manifests(documents, is_local=True, image_problem=image_check_of(target, images), say=say)


def _print_objects(documents: list[Document], output: str) -> int:
    from gangline.api.codec import dump_json, dump_yaml

    values = [document.value for document in documents]
    if output == "yaml":
        print(dump_yaml(*values), end="")
    elif output == "name":
        print("\n".join(f"{document.kind.lower()}/{document.name}" for document in documents))
    else:
        whole: Any = values[0] if len(values) == 1 else {"apiVersion": "v1", "kind": "List", "items": values}
        print(dump_json(whole))
    return 0


def _run(
    documents: list[Document],
    target: ClusterTarget,
    nodes: int,
    gpus: GpuOptions,
    images: ImageOptions,
    job: ProgramJob | None = None,
    notifier: Notifier | None = None,
) -> int:
    if not target.is_local:
        return _follow(documents, target, notifier=notifier)
    from gangline.cli.output import say
    from gangline.client.run.capacity import check_capacity
    from gangline.client.run.gpus import fitting
    from gangline.client.run.start import start_cluster
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.runs.history import History

    cluster = Cluster(target.paths)
    start_cluster(cluster, nodes, gpus, say)
    if job is not None:
        names = job.names(History(cluster.paths), target.namespace or "default")
        documents = [job.document(next(names))]
    documents = fitting(cluster, documents, gpus, say=say)
    check_capacity(cluster, documents)
    known = images.save(cluster)
    for line in substitutions([document.value for document in documents], known):
        say(line)
    if job is None:
        return _follow(documents, target, known, notifier=notifier)
    rename = (
        None if job.name else lambda: fitting(cluster, [job.document(next(names))], gpus, say=say)[0].value
    )
    return _follow(documents, target, known, job.hand_over, rename, notifier)


def _follow(
    documents: list[Document],
    target: ClusterTarget,
    images: ImageMap | None = None,
    hand_over: HandOver = no_handover,
    rename: Callable[[], dict[str, Any]] | None = None,
    notifier: Notifier | None = None,
) -> int:
    import asyncio

    started_s = time.monotonic()
    from gangline.cli.run.flow import run_documents

    return asyncio.run(
        run_documents(documents, target, started_s, images, hand_over, rename, notifier=notifier)
    )


def _notifier(target: str | None) -> Notifier | None:
    if not target:
        return None
    from gangline.cli.output import say
    from gangline.client.run.notify import Notifier

    return Notifier(target, say)
