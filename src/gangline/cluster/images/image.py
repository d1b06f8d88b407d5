"""An image as the node agent uses it: folders, environment and what a container of it runs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class ImageConfig(msgspec.Struct, frozen=True):
    """What an image says about its containers.

    Attributes:
        entrypoint, command: as in a Dockerfile; both empty where the image runs nothing by itself.
        working_dir: where they start, empty for the root.
        user: ``USER`` as written: name or number, perhaps a group behind a colon.
    """

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""


class ContainerUser(msgspec.Struct, frozen=True):
    """Who a container runs as."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


class Image(msgspec.Struct, frozen=True):
    """What serves a pod's ``image`` on this machine.

    Attributes:
        name: of the image.
        path_entries: folders that come first on the PATH, after the one with ``gangline-rsh``.
        show: folders that stay visible read-only although the home around them is hidden.
        env: defaults; a container's own variables win.
        layers: folders whose files a container sees, the top one first.
        rewritten: folders of the layers that plain pods, which have no mounts, reach by rewritten paths.
        is_whole: the layers are all that it sees; else they lie over the machine's own files.
        config: what a container runs unless told otherwise.
        user: who it runs as unless told otherwise.
        homes: home folders that it knows, by user id.
        oci_runtime: the program that runs its containers, as ``runc`` does; empty when the shim does it.
    """

    name: str
    path_entries: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    layers: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    is_whole: bool = False
    config: ImageConfig = ImageConfig()
    user: ContainerUser = ContainerUser()
    homes: Mapping[int, str] = {}
    oci_runtime: str = ""

    def argv(self, command: Sequence[str], args: Sequence[str]) -> list[str]:
        """Return what a container runs: its command replaces all of the image's, its args the image's CMD.

        Source: Kubernetes documentation, "Define a Command and Arguments for a Container".
        """
        if command:
            return [*command, *args]
        return [*self.config.entrypoint, *(args or self.config.command)]


def read_config(raw: Mapping[str, Any]) -> tuple[ImageConfig, dict[str, str]]:
    """Return the config and the environment of an image.

    Args:
        raw: the object ``config`` of an OCI image configuration, which is ``Config`` of ``docker inspect``.
    """
    pairs = (text.partition("=") for text in raw.get("Env") or [])
    config = ImageConfig(
        entrypoint=tuple(raw.get("Entrypoint") or ()),
        command=tuple(raw.get("Cmd") or ()),
        working_dir=str(raw.get("WorkingDir") or ""),
        user=str(raw.get("User") or ""),
    )
    return config, {name: value for name, equals, value in pairs if equals}


def chain_id(diff_ids: Sequence[str]) -> str:
    """Return the name of the snapshot that all layers make.

    Source: OCI image specification, "Layer ChainID".
    """
    chain = ""
    for diff_id in diff_ids:
        both = f"{chain} {diff_id}".encode()
        chain = f"sha256:{hashlib.sha256(both).hexdigest()}" if chain else diff_id
    return chain


def find_user(text: str, passwd: str, group: str) -> ContainerUser | None:
    """Return the user that ``USER`` means, None when its name is unknown.

    Args:
        text: ``name``, ``uid``, ``name:group`` or ``uid:gid``; empty is root.
        passwd: content of the image's ``/etc/passwd``, empty if there is none.
        group: content of its ``/etc/group``.
    """
    name, _, group_name = text.partition(":")
    users = _users(passwd)
    groups = [line.split(":") for line in group.splitlines() if line.count(":") >= 3]
    name = name or "0"
    row = next((row for row in users if row[0] == name or row[2] == name), None)
    if row is None and not name.isdigit():
        return None
    uid, gid = (int(row[2]), int(row[3])) if row else (int(name), 0)
    if group_name:
        found = next((item for item in groups if group_name in (item[0], item[2])), None)
        if found is None and not group_name.isdigit():
            return None
        return ContainerUser(uid, int(found[2]) if found else int(group_name))
    member = tuple(int(item[2]) for item in groups if row and row[0] in item[3].split(","))
    return ContainerUser(uid, gid, member)


def find_homes(passwd: str) -> dict[int, str]:
    """Return the home folders of an image's ``/etc/passwd`` by user id."""
    return {int(row[2]): row[5] for row in reversed(_users(passwd)) if row[5]}


def _users(passwd: str) -> list[list[str]]:
    rows = (line.split(":") for line in passwd.splitlines())
    return [row for row in rows if len(row) >= 7 and row[2].isdigit() and row[3].isdigit()]
