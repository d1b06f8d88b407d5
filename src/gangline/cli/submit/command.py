"""``gangline submit``: jobs in arena's words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from gangline.api.resources import MPIJOBS, PYTORCHJOBS, TFJOBS
from gangline.cli.options.target import target_options
from gangline.cli.output import print_value, program_name, say
from gangline.cli.subcommands import Subcommands
from gangline.cli.submit.flags import ROLES, GoFlags, submit_options
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.cli.submit.submission import Submission
    from gangline.kube.verbs import ObjectClient

CONFIG_BYTES_MAX = 1 << 20
"""What a ConfigMap can hold."""

_OTHER_KINDS = "horovodjob horovod hj etjob et volcanojob vj deepspeedjob rayjob rj sparkjob".split()
_SHORT = {"mpi": "mpijob", "mj": "mpijob", "tf": "tfjob", "pytorch": "pytorchjob"}


class _Kinds(Subcommands):
    """Knows arena's other kinds by name, to say that they are not served."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a kind or of one of its short names."""
        return super().get_command(ctx, _SHORT.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a kind; those that arena has and Gangline has not are named."""
        if args[0] in _OTHER_KINDS:
            raise UserError(
                f"`submit {args[0]}` is not served; `submit mpijob`, `pytorchjob` and `tfjob` are",
                hint="write a manifest, and `gangline apply` it on a cluster that knows the kind",
            )
        return super().resolve_command(ctx, args)


@click.group("submit", cls=_Kinds)
def command() -> None:
    """Submit a job in arena's words; it is created and not waited for."""


_HELP = {
    MPIJOBS.kind: """Submit an MPIJob whose launcher runs COMMAND.

    \b
    gangline submit mpi --name=vgg --gpus=1 --workers=4 --gang --gputopology=true \\
        --image=gangline/base --config-file=train.py:/train.py "mpirun -np 4 python /train.py"
    """,
    PYTORCHJOBS.kind: """Submit a PyTorchJob whose replicas run COMMAND; --workers counts the master.

    \b
    gangline submit pytorch --name=digits --workers=2 --image=IMAGE "torchrun train.py"
    """,
    TFJOBS.kind: """Submit a TFJob whose replicas run COMMAND; a single worker without others is its chief.

    \b
    gangline submit tf --name=cnn --workers=2 --ps=1 --image=IMAGE "python train.py"
    """,
}


def _add(kind: str) -> None:
    """Add the command that submits a kind."""

    def submit(words: tuple[str, ...], target: ClusterTarget, **given: Any) -> None:
        if not words:
            hint = f'gangline submit {kind.lower()} … "python train.py"'
            raise UserError("no command: say what the replicas run", hint=hint)
        _check_words(words)
        is_dry, output = given.pop("dry_run"), given.pop("output")
        _submit_job(_submission(kind, words, target, given), target, output if is_dry else "")

    short = ", ".join(word for word, name in _SHORT.items() if name == kind.lower())
    settings: dict[str, Any] = {
        "cls": GoFlags,
        "context_settings": {"allow_interspersed_args": False},
        "short_help": f"submit {kind}s (short: {short})",
        "help": cleandoc(_HELP[kind]),
    }
    words = click.argument("words", nargs=-1, metavar="COMMAND")
    with_options = submit_options(kind)(target_options()(words(submit)))
    command.command(kind.lower(), **settings)(with_options)


for _kind in _HELP:
    _add(_kind)


def _submit_job(wanted: Submission, target: ClusterTarget, output: str) -> None:
    """Create the objects; with ``output`` print them in that format instead."""
    from gangline.api.codec import Document
    from gangline.cli.options.images import image_check_of
    from gangline.cli.submit.job import build_objects
    from gangline.client.manifests import check_manifests

    objects = build_objects(wanted)
    documents = [Document(value, file="the command line") for value in objects]
    if target.is_local:
        _check_local(wanted)
        check_manifests(documents, is_local=True, image_problem=image_check_of(target), say=say)
    else:
        check_manifests(documents, is_local=False, say=say)
    if output:
        _print(objects, output)
        return
    if target.is_local:
        from gangline.cluster.daemon.cluster import Cluster

        Cluster(target.paths).ensure_up(keep=True, say=say)
    asyncio.run(_submit(target, wanted, objects))


def _submission(
    kind: str, words: tuple[str, ...], target: ClusterTarget, given: dict[str, Any]
) -> Submission:
    """Return the flags as they were meant.

    Raises:
        UserError: one is of another form.
    """
    from gangline.cli.options.durations import seconds_of
    from gangline.cli.submit.submission import RoleFlags, Submission

    given["config_files"] = read_config_files(given["config_files"])
    for field, option in (("deadline_s", "--running-timeout"), ("kept_s", "--ttl-after-finished")):
        text = given.pop(field.removesuffix("_s"), "")
        given[field] = seconds_of(option, text) if text else None
    if given.get("success_policy") == "ChiefWorker":
        given["success_policy"] = ""  # as the kind says it
    roles = {}
    for role in ROLES if kind == TFJOBS.kind else ():
        fields = [name for name in given if name.startswith(f"{role}_") and name != "ps_gpus"]
        roles[role] = RoleFlags(**{name.removeprefix(f"{role}_"): given.pop(name) for name in fields})
    namespace = target.namespace or ("default" if target.is_local else target.connection().namespace)
    wanted = Submission(kind=kind, namespace=namespace, command=" ".join(words), roles=roles, **given)
    if not wanted.image and not all(roles[role].image for role in _images_needed(wanted)):
        raise UserError("no image", hint="--image IMAGE, or --worker-image and --ps-image")
    return wanted


def _images_needed(wanted: Submission) -> list[str]:
    """Return the roles of a TFJob that start something."""
    counts = {
        "worker": wanted.workers,
        "ps": wanted.ps,
        "chief": wanted.has_chief,
        "evaluator": wanted.has_evaluator,
    }
    return [role for role, count in counts.items() if count]


def _check_words(words: tuple[str, ...]) -> None:
    """Refuse a flag of ours behind a command in quotes; say of one behind a word that it is the program's.

    Raises:
        UserError: with the flag.
    """
    context = click.get_current_context()
    assert isinstance(context.command, GoFlags)
    flags = context.command.own_flags(words[1:])
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
    from gangline.cli.submit.job import resource_of
    from gangline.kube.apply import with_last_applied
    from gangline.kube.discovery import resource_for
    from gangline.kube.errors import AlreadyExists

    async with open_client(target) as client:
        await _check_names(client, wanted, target)
        made: list[dict[str, Any]] = []
        for value in reversed(objects):  # the job first: it claims the name, and owns the rest
            resource = await resource_for(client, value["apiVersion"], value["kind"])
            body = with_last_applied(value) if value["kind"] == wanted.kind else {**value}
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
                        resource_of(wanted), wanted.name, wanted.namespace, uid=made[0]["metadata"]["uid"]
                    )
                    hint = "delete it first, or submit under another name; the job is deleted again"
                raise UserError(f"cannot submit: {taken}", hint=hint) from None
            made.append({**answer, "apiVersion": value["apiVersion"], "kind": value["kind"]})
            group = f".{resource.group}" if resource.group else ""
            print(f"{value['kind'].lower()}{group}/{value['metadata']['name']} created")
    say(f"The job {wanted.name} has been submitted successfully")
    where = f"--type {wanted.kind.lower()} -n {wanted.namespace}{target.options}"
    line = f"{program_name()} get {wanted.name} {where}"
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
