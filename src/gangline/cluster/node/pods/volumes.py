"""Volumes of a pod as folders: what files they hold (pure), and writing them (``write_projection``).

Config maps, secrets, downward API and projected volumes use the layout of the kubelet: the files lie in a
dated folder, ``..data`` is a link to it that is swapped at once, and each name is a link through ``..data``.
A container that mounts the volume sees an update whole; one that mounts a ``subPath`` does not see it.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.api.volumes import (
    ConfigMapVolume,
    DownwardVolume,
    HostPathVolume,
    KeyToPath,
    SecretVolume,
    Volume,
)
from gangline.cluster.account_tokens import LIFETIME_S
from gangline.cluster.node.pods.container_env import (
    ConfigError,
    Lookup,
    PodFacts,
    field_value,
    resource_value,
)
from gangline.cluster.node.pods.contents import config_map_contents, secret_contents
from gangline.units import quantity_ceil

DEFAULT_MODE = 0o644


class MountError(Exception):
    """A volume cannot be provided (yet); the pod waits, the message says for what."""


@dataclass(frozen=True, slots=True)
class ProjectedFile:
    """One file of a volume."""

    data: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What a volume needs.

    Attributes:
        name: the volume's name.
        host: where it lies on the machine; None means a folder of the pod's own.
        files: files to project, None for volumes that the containers fill.
        memory_bytes: size limit of a volume in memory, 0 for half of it; None for a volume on disk.
        mode: of the folder of a volume that the containers fill.
    """

    name: str
    host: HostPathVolume | None = None
    files: Mapping[str, ProjectedFile] | None = None
    memory_bytes: int | None = None
    mode: int = 0o777


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where projected service account files come from."""

    token: Callable[[int, str], str | None]
    """Takes the seconds that the token is to live and its audience, empty for the API server."""
    ca: Callable[[], bytes | None] = field(default=lambda: None)


def plan_volume(pod: Pod, volume: Volume, facts: PodFacts, lookup: Lookup, tokens: TokenSource) -> VolumePlan:
    """Return what to provide for one volume.

    Raises:
        MountError: something it refers to is missing, or its kind is not served.
    """
    try:
        if volume.config_map is not None:
            return VolumePlan(volume.name, files=_config_map_files(volume.config_map, lookup))
        if volume.secret is not None:
            return VolumePlan(volume.name, files=_secret_files(volume.secret, lookup))
        if volume.downward_api is not None:
            return VolumePlan(volume.name, files=_downward_files(pod, volume.downward_api, facts))
        if volume.projected is not None:
            return VolumePlan(
                volume.name, files=_projected_files(pod, volume.projected, facts, lookup, tokens)
            )
    except ConfigError as error:
        raise MountError(f'MountVolume.SetUp failed for volume "{volume.name}": {error}') from error
    if volume.host_path is not None:
        return VolumePlan(volume.name, host=volume.host_path)
    if name := claim_of(pod, volume):
        found = lookup.claim(name)
        if isinstance(found, str):
            raise MountError(f'MountVolume.SetUp failed for volume "{volume.name}": {found}')
        return VolumePlan(volume.name, host=found)
    memory_bytes = None
    if volume.empty_dir is not None and volume.empty_dir.medium == "Memory":
        limit = volume.empty_dir.size_limit
        memory_bytes = quantity_ceil(limit) if limit else 0
    mode = 0o777 if volume.empty_dir is None or volume.empty_dir.mode is None else volume.empty_dir.mode
    return VolumePlan(volume.name, memory_bytes=memory_bytes, mode=mode)


def claim_of(pod: Pod, volume: Volume) -> str:
    """Return the name of the claim that a volume of a pod stands for, empty for any other volume."""
    if volume.ephemeral is not None:
        return f"{pod.metadata.name}-{volume.name}"
    return str((volume.persistent_volume_claim or {}).get("claimName") or "")


def is_projection(volume: Volume) -> bool:
    """Return whether the agent itself writes the volume's files: containers may only read those."""
    own = (volume.config_map, volume.secret, volume.downward_api, volume.projected)
    return any(source is not None for source in own)


def _select(
    contents: Mapping[str, bytes], items: Iterable[KeyToPath], mode: int, what: str, optional: bool
) -> dict[str, ProjectedFile]:
    chosen = list(items)
    if not chosen:
        return {key: ProjectedFile(data, mode) for key, data in contents.items()}
    files = {}
    for item in chosen:
        if item.key not in contents:
            if optional:
                continue
            raise ConfigError(f"{what} references non-existent key: {item.key}")
        item_mode = mode if item.mode is None else item.mode
        files[_inside(item.path)] = ProjectedFile(contents[item.key], item_mode)
    return files


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise ConfigError(f"path `{path}` must stay inside the volume")
    return path


def _config_map_files(source: ConfigMapVolume, lookup: Lookup) -> dict[str, ProjectedFile]:
    found = lookup.config_map(source.name)
    if found is None and not source.optional:
        raise ConfigError(f'configmap "{source.name}" not found')
    mode = DEFAULT_MODE if source.default_mode is None else source.default_mode
    contents = config_map_contents(found) if found else {}
    return _select(contents, source.items, mode, f'configmap "{source.name}"', source.optional)


def _secret_files(source: SecretVolume, lookup: Lookup) -> dict[str, ProjectedFile]:
    found = lookup.secret(source.secret_name)
    if found is None and not source.optional:
        raise ConfigError(f'secret "{source.secret_name}" not found')
    mode = DEFAULT_MODE if source.default_mode is None else source.default_mode
    contents = secret_contents(found) if found else {}
    return _select(contents, source.items, mode, f'secret "{source.secret_name}"', source.optional)


def _downward_files(pod: Pod, source: DownwardVolume, facts: PodFacts) -> dict[str, ProjectedFile]:
    files = {}
    for item in source.items:
        if item.field_ref is not None:
            text = field_value(pod, item.field_ref, facts)
        elif item.resource_field_ref is not None:
            text = resource_value(pod, item.resource_field_ref, facts)
        else:
            text = ""
        mode = item.mode if item.mode is not None else source.default_mode
        files[_inside(item.path)] = ProjectedFile(text.encode(), DEFAULT_MODE if mode is None else mode)
    return files


def _projected_files(
    pod: Pod, raw: dict[str, Any], facts: PodFacts, lookup: Lookup, tokens: TokenSource
) -> dict[str, ProjectedFile]:
    default = raw.get("defaultMode")
    mode = DEFAULT_MODE if default is None else int(default)
    files: dict[str, ProjectedFile] = {}
    for source in raw.get("sources", []):
        if "configMap" in source:
            config_map = msgspec.convert(source["configMap"] | {"defaultMode": mode}, ConfigMapVolume)
            if config_map.name == "kube-root-ca.crt" and lookup.config_map(config_map.name) is None:
                files["ca.crt"] = ProjectedFile(tokens.ca() or b"", mode)
                continue
            files |= _config_map_files(config_map, lookup)
        elif "secret" in source:
            secret = {"secretName": source["secret"].get("name", ""), "defaultMode": mode} | source["secret"]
            files |= _secret_files(msgspec.convert(secret, SecretVolume), lookup)
        elif "downwardAPI" in source:
            downward = msgspec.convert(source["downwardAPI"] | {"defaultMode": mode}, DownwardVolume)
            files |= _downward_files(pod, downward, facts)
        elif "serviceAccountToken" in source:
            lifetime_s = int(source["serviceAccountToken"].get("expirationSeconds") or LIFETIME_S)
            token = tokens.token(lifetime_s, source["serviceAccountToken"].get("audience") or "")
            if token is None:
                raise ConfigError("the service account's token is not there yet")
            path = source["serviceAccountToken"].get("path", "token")
            files[_inside(path)] = ProjectedFile(token.encode(), mode)
        else:
            kind = next(iter(source), "empty")
            raise ConfigError(f"projected source `{kind}` is not served")
    return files


def write_projection(folder: Path, files: Mapping[str, ProjectedFile], *, gid: int | None = None) -> bool:
    """Make the folder show exactly these files; return whether anything changed.

    ``gid`` is the pod's fsGroup: files get it and become readable to the group.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "..data"
    if _current(link) == {name: (file.data, _mode(file, gid)) for name, file in files.items()}:
        return False
    dated = folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S', time.gmtime())}.{time.time_ns() % 10**9:09d}"
    dated.mkdir(mode=0o755)
    for name, file in files.items():
        path = dated / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(file.data)
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(_mode(file, gid))
    before = folder / link.readlink().name if link.is_symlink() else None
    fresh = folder / "..data_tmp"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(dated.name)
    fresh.replace(link)
    tops = {PurePosixPath(name).parts[0] for name in files}
    for top in tops:
        visible = folder / top
        if not visible.is_symlink():
            visible.symlink_to(f"..data/{top}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if before is not None and before != dated:
        shutil.rmtree(before, ignore_errors=True)
    return True


def _mode(file: ProjectedFile, gid: int | None) -> int:
    return file.mode if gid is None else file.mode | 0o440


def _current(link: Path) -> dict[str, tuple[bytes, int]] | None:
    if not link.is_symlink():
        return None
    base = link.resolve()
    return {
        str(path.relative_to(base)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in base.rglob("*")
        if path.is_file()
    }


def check_host_path(source: HostPathVolume, private: Sequence[str]) -> None:
    """Make or check a host path according to its type.

    Args:
        source: of the volume.
        private: folders that no volume may show.

    Raises:
        MountError: it is missing, of another kind, or private.
    """
    path = Path(source.path)
    if any(path.resolve().is_relative_to(folder) for folder in private):
        raise MountError(f"hostPath `{path}` is among the files of a cluster, which no pod may mount")
    kind = source.type
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(mode=0o644)
    if not path.exists():
        raise MountError(
            f"hostPath `{path}` does not exist on this machine" + (f" (type {kind})" if kind else "")
        )
    checks = {
        "Directory": path.is_dir,
        "DirectoryOrCreate": path.is_dir,
        "File": path.is_file,
        "FileOrCreate": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if kind and not checks.get(kind, lambda: True)():
        raise MountError(f"hostPath type check failed: `{path}` is not a {kind}")
