"""``gangline submit``: jobs in arena's words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.target import ClusterTarget, open_client, target_options
from gangline.cli.output import print_value, program_name, say
from gangline.cli.subcommands import Subcommands
from gangline.cli.submit.flags import GoFlags, mpijob_options
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.cli.submit.job import Submission
    from gangline.kube.verbs import ObjectClient

CONFIG_BYTES_MAX = 1 << 20
"""What a ConfigMap can hold."""

_OTHER_KINDS = (
    "tfjob tf pytorchjob pytorch horovodjob horovod hj etjob et volcanojob vj deepspeedjob rayjob rj sparkjob"
).split()


class _Kinds(Subcommands):
    """Knows arena's other kinds by name, to say that they are not served."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a kind or of one of its short names."""
        return super().get_command(ctx, "mpijob" if cmd_name in ("mpi", "mj") else cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a kind; those that arena has and Gangline has not are named."""
        if args[0] in _OTHER_KINDS:
            raise UserError(
                f"`submit {args[0]}` is not served; `submit mpijob` is",
                hint="write a manifest, and `gangline apply` it on a cluster that knows the kind",
            )
        return super().resolve_command(ctx, args)


@click.group("submit", cls=_Kinds)
def command() -> None:
    """Submit a job in arena's words; it is created and not waited for."""


@command.command(
    "mpijob",
    cls=GoFlags,
    context_settings={"allow_interspersed_args": False},
    short_help="submit an MPIJob (short: mpi, mj)",
)
@mpijob_options
@target_options()
@click.argument("words", nargs=-1, metavar="COMMAND")
def mpijob(
    words: tuple[str, ...],
    dry_run: bool,
    output: str,
    env: tuple[str, ...],
    config_files: tuple[str, ...],
    target: ClusterTarget,
    **given: Any,
) -> None:
    """Submit an MPIJob whose launcher runs COMMAND.

    \b
    gangline submit mpi --name=vgg --gpus=1 --workers=4 --gang --gputopology=true \\
        --image=gangline/base --config-file=train.py:/train.py "mpirun -np 4 python /train.py"
    """  # noqa: D301 - click's mark for text that is not filled
    from gangline.api.codec import Document
    from gangline.cli.options.images import image_check_of
    from gangline.cli.options.manifests import check_manifests
    from gangline.cli.submit.job import Submission, build_objects

    if not words:
        raise UserError(
            "no command: say what the launcher runs",
            hint='gangline submit mpi … "mpirun -np 4 python train.py"',
        )
    _check_words(words)
    wanted = Submission(
        namespace=target.namespace or ("default" if target.is_local else target.connection().namespace),
        command=" ".join(words),
        env=env,
        config_files=read_config_files(config_files),
        **given,
    )
    objects = build_objects(wanted)
    documents = [Document(value, file="the command line") for value in objects]
    if target.is_local:
        _check_local(wanted)
        check_manifests(documents, is_local=True, image_problem=image_check_of(target))
    else:
        check_manifests(documents, is_local=False)
    if dry_run:
        _print(objects, output)
        return
    if target.is_local:
        from gangline.cluster.daemon.cluster import Cluster

        Cluster(target.paths).ensure_up(keep=True, say=say)
    asyncio.run(_submit(target, wanted, objects))


def _check_words(words: tuple[str, ...]) -> None:
    """Refuse a flag of ours behind a command in quotes; say of one behind a word that it is the program's.

    Raises:
        UserError: with the flag.
    """
    assert isinstance(mpijob, GoFlags)
    flags = mpijob.own_flags(words[1:])
    is_quoted = any(letter.isspace() for letter in words[0])
    if flags and is_quoted:
        raise UserError(
            f"{flags[0].partition('=')[0]} stands behind the command, where it would become part of it",
            hint="put it in front of the command, or into its quotes if the program takes it",
        )
    if flags:
        say(
            f"note: `{flags[0]}` stands behind `{words[0]}`, so it is the program's; "
            "flags of `submit` stand in front of the command"
        )
    if not is_quoted and any(letter.isspace() for word in words[1:] for letter in word):
        say("note: the shell in the launcher splits the words of the command anew; quote the whole command")


def _check_local(wanted: Submission) -> None:
    """Refuse what the one-machine cluster does not have.

    Raises:
        UserError: with the flag.
    """
    rows = (
        ("--data", wanted.claims, "claims", "mount a folder of this machine: --data-dir HOST:CONTAINER"),
        ("--hostIPC", wanted.host_ipc, "host IPC for pods", "leave it out: /dev/shm has 2 GiB"),
        ("--hostPID", wanted.host_pid, "host processes for pods", "leave it out"),
        ("--rdma", wanted.rdma, "RDMA devices", "leave it out, or submit to a cluster: --context CONTEXT"),
        ("--image-pull-secret", wanted.pull_secrets, "use for pull secrets", "leave it out"),
    )
    for flag, given, what, hint in rows:
        if given:
            raise UserError(f"{flag}: the one-machine cluster has no {what}", hint=hint)


def _print(objects: list[dict[str, Any]], output: str) -> None:
    if output == "yaml":
        from gangline.api.codec import dump_yaml

        print(dump_yaml(*objects), end="")
        return
    whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    print_value(whole, "json")


def read_config_files(texts: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return the files of ``HOST[:CONTAINER]`` by the folder that they are mounted in.

    Raises:
        UserError: a file cannot be read, is no text or too large, or its place is not absolute.
    """
    folders: dict[str, dict[str, str]] = {}
    for text in texts:
        host, _, place = text.partition(":")
        file = Path(host).expanduser()
        inside = PurePosixPath(place or str(file.absolute()))
        if not inside.is_absolute():
            raise UserError(f"--config-file {text}: the place in the container must be an absolute path")
        try:
            content = file.read_bytes()[: CONFIG_BYTES_MAX + 1].decode()
        except OSError as error:
            raise UserError(f"--config-file {text}: cannot read `{host}`: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UserError(f"--config-file {text}: `{host}` is no text") from None
        if len(content) > CONFIG_BYTES_MAX:
            raise UserError(
                f"--config-file {text}: `{host}` has more than 1 MiB, which a ConfigMap cannot hold"
            )
        folders.setdefault(str(inside.parent), {})[inside.name] = content
    return folders


async def _submit(target: ClusterTarget, wanted: Submission, objects: list[dict[str, Any]]) -> None:
    from gangline.api.resources import MPIJOBS
    from gangline.kube.apply import with_last_applied
    from gangline.kube.discovery import resource_for
    from gangline.kube.errors import AlreadyExists

    async with open_client(target) as client:
        await _check_names(client, wanted, target)
        made: list[dict[str, Any]] = []
        for value in reversed(objects):  # the job first: it claims the name, and owns the rest
            resource = await resource_for(client, value["apiVersion"], value["kind"])
            body = with_last_applied(value) if value["kind"] == MPIJOBS.kind else {**value}
            if made:
                owner = {key: made[0][key] for key in ("apiVersion", "kind")}
                owner |= {"name": wanted.name, "uid": made[0]["metadata"]["uid"]}
                body["metadata"] = {**body["metadata"], "ownerReferences": [owner]}
            try:
                answer = await client.create(resource, body)
            except AlreadyExists:
                taken = f"{value['kind'].lower()} `{value['metadata']['name']}` is there already"
                hint = f"delete it first: gangline delete {wanted.name}{target.options}"
                if made:  # the job cannot start without it
                    await client.delete(
                        MPIJOBS, wanted.name, wanted.namespace, uid=made[0]["metadata"]["uid"]
                    )
                    hint = "delete it first, or submit under another name; the job is deleted again"
                raise UserError(f"cannot submit: {taken}", hint=hint) from None
            made.append({**answer, "apiVersion": value["apiVersion"], "kind": value["kind"]})
            group = f".{resource.group}" if resource.group else ""
            print(f"{value['kind'].lower()}{group}/{value['metadata']['name']} created")
    say(f"The job {wanted.name} has been submitted successfully")
    line = f"{program_name()} get {wanted.name} --type mpijob -n {wanted.namespace}{target.options}"
    say(f"You can run `{line}` to check the job status")


async def _check_names(client: ObjectClient, wanted: Submission, target: ClusterTarget) -> None:
    """Refuse names that lead nowhere; say when no node is open to GPUs by their links."""
    from gangline.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PRIORITY_CLASSES
    from gangline.kube.errors import ApiError, Forbidden, NotFound

    claims = PERSISTENT_VOLUME_CLAIMS
    names = (
        [("--priority", PRIORITY_CLASSES.kind, PRIORITY_CLASSES, wanted.priority)] if wanted.priority else []
    )
    names += [("--data", claims.kind, claims, text.partition(":")[0]) for text in wanted.claims]
    for flag, kind, resource, name in names:
        try:
            await client.get(resource, name, wanted.namespace if resource.namespaced else None)
        except NotFound:
            raise UserError(f"{flag} {name}: there is no {kind} of that name") from None
        except Forbidden:
            continue
    if not wanted.gpu_topology:
        return
    try:
        nodes = (await client.list(NODES)).items
    except ApiError:
        return
    if warning := no_open_node(nodes, target):
        say(f"warning: {warning}")


def no_open_node(nodes: Sequence[dict[str, Any]], target: ClusterTarget) -> str:
    """Return that no node has GPUs to be chosen by their links, and what opens one; nothing where one has."""
    from gangline.placement.snapshot import BY_WIRES, MODE_LABEL
    from gangline.workloads.requests import GPU

    label = f"{MODE_LABEL}={BY_WIRES}"
    if any((node["metadata"].get("labels") or {}).get(MODE_LABEL) == BY_WIRES for node in nodes):
        return ""
    having = [node for node in nodes if ((node.get("status") or {}).get("allocatable") or {}).get(GPU)]
    waits = f"no node carries {label}, so the job will wait"
    if not having:
        way = "`gangline up --simulate-gpus 8 --cluster NAME` starts a cluster with simulated ones"
        return f"{waits}, and no node has GPUs" + (f"; {way}" if target.is_local else "")
    name = min(node["metadata"]["name"] for node in having)
    return f"{waits}; `kubectl{target.kube_options} label node {name} {label}` opens one"
