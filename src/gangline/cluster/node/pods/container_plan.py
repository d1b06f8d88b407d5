"""From a container of a pod to the description that the shim starts. Pure.

Isolated pods (network, user) see volumes where they are mounted. Plain pods share the machine's files: there
every mount path is rewritten to the volume's folder in arguments, variables and working folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import Container, Pod, VolumeMount
from gangline.cluster.images.image import Image
from gangline.cluster.images.local_images import REMOTE_SHELL, REMOTE_SHELL_ENVIRONMENT, base_path
from gangline.cluster.node.isolation import Isolation
from gangline.cluster.node.pods.container_env import (
    ConfigError,
    Lookup,
    PodFacts,
    build_env,
    expand,
    service_env,
)
from gangline.cluster.node.pods.peers import with_addresses
from gangline.cluster.node.pods.privileges import capabilities_of, refusal_of_user, uid_of, user_of
from gangline.cluster.node.pods.volumes import is_projection
from gangline.cluster.node.rank_reports import ranks_of
from gangline.cluster.node.run_rights import writable_in_proc
from gangline.cluster.node.shim import processes
from gangline.cluster.user_session import NODE, UserSession
from gangline.train.rank_processes import RANKS_OF

BIN_IN_POD = "/run/gangline/bin"
NAMES_IN_POD = "/run/gangline/names"
ACCOUNT_IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount"
COVER = "cover"
"""Empty folder of a pod, in place of what a volume must not show."""
IDLE = ("sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done")
"""What a worker that asks for an ssh server runs instead: it waits for its end."""


class StartRefusedError(Exception):
    """The container can never start as it is written."""


@dataclass(frozen=True, slots=True)
class PodFolders:
    """Where things of a pod lie on the machine.

    Attributes:
        isolation: the mode.
        cluster_id: of the cluster.
        folder: the pod's folder.
        logs: folder of the pod's logs.
        bin: folder that holds ``gangline-rsh``.
        names: folder of the namespace's host names.
        hosts: the namespace's hosts file.
        resolv: file for ``/etc/resolv.conf``, empty to keep the machine's.
        api_host, api_port: where pods reach the API server.
        hide: folders that pods must not see.
        private: folders that volumes must not show.
        host_mounts: further file systems of the machine to show, read-only.
        start_folders: folder put first on PYTHONPATH.
        gpus: the variables that name the container's GPUs, or say that it has none, and device plugins' own.
        given: what device plugins have it see: path in it, path of the machine, whether read-only.
        rights: variables that tell programs what is allowed, see ``run_rights``.
        session: the user's, in which the container runs; None for a world of its own.
        session_kind: ``machine`` or ``node`` then.
    """

    isolation: Isolation
    cluster_id: str
    folder: Path
    logs: Path
    bin: Path
    names: Path
    hosts: Path
    resolv: Path | None
    api_host: str
    api_port: int
    hide: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    host_mounts: tuple[str, ...] = ()
    start_folders: str = ""
    gpus: Mapping[str, str] = field(default_factory=dict)
    given: tuple[tuple[str, str, bool], ...] = ()
    rights: Mapping[str, str] = field(default_factory=dict)
    session: UserSession | None = None
    session_kind: str = ""

    @property
    def image_bin(self) -> Path:
        """Folder that holds ``gangline-rsh`` for images with files of their own."""
        return self.bin.with_name("image-bin")

    @property
    def is_plain(self) -> bool:
        """Whether pods share the machine's files, in a world of their own otherwise."""
        return self.isolation == "plain" and self.session is None

    @property
    def shares_files(self) -> bool:
        """Whether the container sees the machine's files as they are, mounts therefore elsewhere."""
        return self.isolation == "plain" or self.session is not None

    def container_folder(self, container: str) -> Path:
        """Return the folder of one container."""
        return self.folder / "containers" / container


def rewrite_paths(text: str, table: Mapping[str, str]) -> str:
    """Replace mount paths by the folders behind them, at path boundaries only, longest first.

    Example:
        >>> rewrite_paths("--file=/etc/mpi/hostfile:/etc/mpix", {"/etc/mpi": "/pods/1/mpi"})
        '--file=/pods/1/mpi/hostfile:/etc/mpix'
    """
    if not table or "/" not in text:
        return text
    paths = sorted(table, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, paths))})(?![\w.-])")
    return pattern.sub(lambda match: table[match.group(1)], text)


def volume_source(volumes: Mapping[str, Path], mount: VolumeMount) -> Path:
    """Return what a mount shows on the machine."""
    source = volumes[mount.name]
    return source / mount.sub_path if mount.sub_path else source


def with_sub_paths(container: Container, env: Mapping[str, str]) -> Container:
    """Return a container whose mounts have their sub paths with variables filled in.

    Raises:
        ConfigError: a variable is not set, or what comes out leads out of the volume.
    """
    mounts = []
    for mount in container.volume_mounts:
        if mount.sub_path_expr:
            path = expand(mount.sub_path_expr, env)
            if path.startswith("/") or ".." in path.split("/") or "$(" in path.replace("$$(", ""):
                raise ConfigError(
                    f"subPathExpr `{mount.sub_path_expr}` gives `{path}`, no path in the volume"
                )
            mount = msgspec.structs.replace(mount, sub_path=path)
        mounts.append(mount)
    return msgspec.structs.replace(container, volume_mounts=mounts)


def default_env(pod: Pod, container: Container, image: Image, place: PodFolders) -> dict[str, str]:
    """Return the variables that a container has before its own."""
    own_bin = str(place.bin) if place.is_plain else BIN_IN_POD
    env = {
        "HOME": str(place.folder / "home") if place.is_plain else _home(pod, container, image),
        "HOSTNAME": uts_name(pod),
        "KUBERNETES_SERVICE_HOST": place.api_host,
        "KUBERNETES_SERVICE_PORT": str(place.api_port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(place.api_port),
        "GANGLINE_NAMES": str(place.names) if place.is_plain else NAMES_IN_POD,
        "GANGLINE_POD_NAMESPACE": pod.metadata.namespace,
        "GANGLINE_POD_NAME": pod.metadata.name,
        **place.rights,
    }
    if place.is_plain:
        env["TMPDIR"] = str(place.folder / "tmp")
    if not image.is_whole:
        env["LANG"] = "C.UTF-8"
    elif not has_own_network(place):
        env |= REMOTE_SHELL_ENVIRONMENT
    shell = f"{own_bin}/{REMOTE_SHELL}"
    env = {name: shell if value == REMOTE_SHELL else value for name, value in {**env, **image.env}.items()}
    env["PATH"] = base_path(image, own_bin)
    if not has_own_network(place):
        # All pods share the machine's interfaces; bridges of other clusters only lead astray.
        env["OMPI_MCA_btl_tcp_if_include"] = "lo"
    if place.is_plain:
        # Pods are nodes to the launcher, yet all have this machine's host name: hierarchical collectives
        # then split ranks in two ways at once and hang (Open MPI 5.0.11).
        env["OMPI_MCA_coll"] = "^han"
    return env


def session_env(pod: Pod, place: PodFolders, session: UserSession) -> dict[str, str]:
    """Return the variables of a container in a user's session: all of the user's, and what starts ranks.

    Where the user's own say how an MPI binds or talks they hold; how it reaches other pods is ours.
    """
    shell = f"{place.bin}/{REMOTE_SHELL}"
    reach = {
        name: shell if value == REMOTE_SHELL else value for name, value in REMOTE_SHELL_ENVIRONMENT.items()
    }
    ours = {name: value for name, value in reach.items() if value in (shell, "ssh")}
    env = {**reach, **session.environment, **ours}
    env |= {
        "GANGLINE_NAMES": str(place.names),
        "GANGLINE_POD_NAMESPACE": pod.metadata.namespace,
        "GANGLINE_POD_NAME": pod.metadata.name,
        **place.rights,
        "PATH": ":".join(filter(None, (str(place.bin), session.environment.get("PATH", "")))),
    }
    if place.session_kind == NODE and place.isolation != "plain":
        env["HOSTNAME"] = uts_name(pod)
    if place.session_kind == NODE and place.isolation != "network":
        env["OMPI_MCA_btl_tcp_if_include"] = "lo"  # as in ``default_env``
    if place.session_kind == NODE and place.isolation == "plain":
        env["OMPI_MCA_coll"] = "^han"
    return env


def has_own_network(place: PodFolders) -> bool:
    """Return whether pods have addresses of their own, at which each may run an ssh server."""
    return place.isolation == "network"


def hostname_of(pod: Pod) -> str:
    """Return the name of a pod as a host: ``spec.hostname`` or the pod's name, at most 63 characters."""
    return (pod.spec.hostname or pod.metadata.name)[:63].rstrip("-.")


def uts_name(pod: Pod) -> str:
    """Return what ``hostname`` prints: the host's name, whole if the pod asks for that, or what it wants."""
    short, spec = hostname_of(pod), pod.spec
    if spec.hostname_override:
        return spec.hostname_override
    if spec.set_hostname_as_fqdn and spec.subdomain:
        return f"{short}.{spec.subdomain}.{pod.metadata.namespace}.svc.cluster.local"
    return short


def _home(pod: Pod, container: Container, image: Image) -> str:
    uid = uid_of(pod, container)
    uid = image.user.uid if uid is None else uid
    return image.homes.get(uid) or ("/root" if uid == 0 else "/tmp")


def _argv(container: Container, image: Image, place: PodFolders, env: Mapping[str, str]) -> list[str]:
    """Return the program with its arguments; an ssh server only where it would be the pod's own."""
    if image.layers and place.is_plain and not image.rewritten:
        raise StartRefusedError(
            f"isolation `plain` has no mounts, so that no pod can see the files of image `{image.name}`"
        )
    argv = [expand(word, env) for word in image.argv(container.command, container.args)]
    if not argv:
        raise StartRefusedError(f"no command: image `{image.name}` has none of its own")
    if argv[0].rpartition("/")[2] == "sshd" and not (image.is_whole and has_own_network(place)):
        argv = list(IDLE)  # ranks come through the remote shell; a host's own sshd would take its port
    return argv


def _rewritten(
    container: Container, image: Image, place: PodFolders, volumes: Mapping[str, Path]
) -> dict[str, str]:
    """Return what stands for which path where pods share the machine's files."""
    table = {
        mount.mount_path.rstrip("/"): str(volume_source(volumes, mount)) for mount in container.volume_mounts
    }
    table |= {path: f"{image.layers[0]}{path}" for path in image.rewritten}
    return {path: source for path, source in table.items() if path != source and path}


def plan_container(
    pod: Pod,
    container: Container,
    attempt: int,
    image: Image,
    place: PodFolders,
    volumes: Mapping[str, Path],
    facts: PodFacts,
    lookup: Lookup,
) -> dict[str, Any]:
    """Return the shim's description of one attempt of a container.

    Raises:
        ConfigError: an object that its environment refers to is missing.
        StartRefusedError: it has no command, or mounts a volume that the pod does not have.
    """
    unknown = [mount.name for mount in container.volume_mounts if mount.name not in volumes]
    if unknown:
        raise StartRefusedError(f'volumeMounts name "{unknown[0]}", which is no volume of the pod')
    session = place.session
    defaults = (
        default_env(pod, container, image, place) if session is None else session_env(pod, place, session)
    )
    if pod.spec.enable_service_links and session is None:
        defaults = {**service_env(lookup.services()), **defaults}
    own = build_env(pod, container, facts, lookup, {**defaults, **place.gpus})
    own = with_addresses(pod, own) if place.is_plain else own
    container = with_sub_paths(container, own)
    argv = _argv(container, image, place, own)
    table = _rewritten(container, image, place, volumes) if place.shares_files else {}
    folder = place.container_folder(container.name)
    home = str(place.folder / "home") if place.is_plain else "/"
    default_cwd = rewrite_paths(image.config.working_dir, table) or home
    spec = {
        "name": container.name,
        "attempt": attempt,
        "argv": argv if session is not None else [rewrite_paths(word, table) for word in argv],
        "env": _marked(pod, container, image, place, own, table),
        "cwd": rewrite_paths(expand(container.working_dir, own), table) or default_cwd,
        "log": str(place.logs / container.name / f"{attempt}.log"),
        "folder": str(folder),
        "user": None,
        "capabilities": None,
        "no_new_privileges": False,
        **{name: getattr(container, name) for name in ("stdin", "stdin_once", "tty")},
        "root": None,
        "sub_paths": [
            (mount.name, mount.sub_path) for mount in container.volume_mounts if mount.sub_path_expr
        ],
    }
    if session is not None:
        spec["session"] = session.process(place.session_kind, place.isolation)
    else:
        _restrict(spec, pod, container, image, place)
    if not place.shares_files:
        spec["root"] = {
            "layers": list(image.layers),
            "whole": image.is_whole,
            "hide": [] if image.is_whole else list(place.hide),
            "show": list(image.show),
            "read_only": container.security_context.read_only_root_filesystem,
            "writable_in_proc": list(writable_in_proc(place.rights)),
            "host_mounts": [] if image.is_whole else list(place.host_mounts),
            "mounts": _mounts(pod, container, image, place, volumes),
        }
    return spec


def _restrict(spec: dict[str, Any], pod: Pod, container: Container, image: Image, place: PodFolders) -> None:
    """Say who the program is and what it may do."""
    user = user_of(pod, container, place.isolation, image.user)
    if refusal := refusal_of_user(pod, container, image, user):
        raise ConfigError(refusal)
    spec["user"] = user
    spec["no_new_privileges"] = container.security_context.allow_privilege_escalation is False
    if not place.shares_files:
        # Also where `privileged` is asked for: a manifest must not harm the machine.
        own_network = has_own_network(place) and not pod.spec.host_network
        spec["capabilities"] = capabilities_of(container, own_network=own_network)


def _marked(
    pod: Pod,
    container: Container,
    image: Image,
    place: PodFolders,
    own: Mapping[str, str],
    table: Mapping[str, str],
) -> dict[str, str]:
    """Return a container's variables with paths rewritten, except in the user's own, and our marks."""
    users = {} if place.session is None else place.session.environment
    env = {
        name: value if users.get(name) == value else rewrite_paths(value, table)
        for name, value in own.items()
    }
    env[processes.POD_MARKER] = pod.metadata.uid
    env[processes.CLUSTER_MARKER] = place.cluster_id
    env[processes.CONTAINER_MARKER] = container.name
    env[RANKS_OF] = ranks_of(pod)
    if account := table.get(ACCOUNT_IN_POD):
        env["GANGLINE_SERVICE_ACCOUNT"] = account
    if place.start_folders and not image.is_whole:
        env["PYTHONPATH"] = ":".join(filter(None, (place.start_folders, env.get("PYTHONPATH", ""))))
    return env


def _mounts(
    pod: Pod, container: Container, image: Image, place: PodFolders, volumes: Mapping[str, Path]
) -> list[dict[str, Any]]:
    mounts: dict[str, tuple[str, str, bool]] = {
        "/etc/hosts": (str(place.hosts), "", True),
        "/etc/hostname": (str(place.folder / "hostname"), "", True),
        BIN_IN_POD: (str(place.image_bin if image.is_whole else place.bin), "", True),
        NAMES_IN_POD: (str(place.names), "", True),
    }
    if place.resolv is not None:
        mounts["/etc/resolv.conf"] = (str(place.resolv), "", True)
    if container.termination_message_path:
        log = place.container_folder(container.name) / "termination-log"
        mounts[container.termination_message_path] = (str(log), "", False)
    mounts |= {target: (source, "", read_only) for target, source, read_only in place.given}
    for path in image.rewritten:
        if any(Path(path).is_relative_to(hidden) for hidden in place.hide):
            mounts[path] = (f"{image.layers[0]}{path}", "", True)
    written_by_us = {volume.name for volume in pod.spec.volumes if is_projection(volume)}
    for mount in container.volume_mounts:
        target = mount.mount_path.rstrip("/") or "/"
        read_only = mount.read_only or mount.name in written_by_us
        mounts[target] = (str(volumes[mount.name]), mount.sub_path, read_only)
        shown = volume_source(volumes, mount).resolve()
        for private in filter(shown.__ne__, map(Path, place.private)):
            if private.is_relative_to(shown):
                cover = Path(target, private.relative_to(shown))
                mounts[str(cover)] = (str(place.folder / COVER), "", True)
    return [
        {"source": source, "inside": inside, "target": target, "read_only": read_only}
        for target, (source, inside, read_only) in sorted(mounts.items(), key=lambda item: item[0].count("/"))
    ]
