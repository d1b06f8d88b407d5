"""Pack folders into a container image: a tar that `ctr images import`, `podman load` and `docker load` take.

``python tools/images/pack.py NAME:TAG OUT.tar FOLDER... [-- COMMAND...]``: each folder is a layer. The same
folders give the same bytes: times are left out, and files belong to root but for what is a user's own.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWNERS = {"home/mpiuser": 1000, "etc/ssh/ssh_host_ed25519_key": 1000}
"""Of files and folders that are not root's. A host's key that is the user's serves root's sshd as well."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pack(
    name: str,
    out: Path,
    layers: Sequence[Path],
    *,
    command: Sequence[str] = (),
    entrypoint: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    user: str = "",
    working_dir: str = "",
) -> None:
    """Write an image in the format of ``docker save``.

    Args:
        name: with a tag; with a registry's name (``localhost/mpi:1``) nothing else is put before it.
        out: replaced when the image is whole.
        layers: folders that are laid over one another, the last on top.
        command: what a container runs unless told otherwise.
        entrypoint: what stands before the command.
        environment: of every container, beside PATH.
        user: that it runs as, unless told otherwise; root where none is named.
        working_dir: where it starts; ``/`` where none is named.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        tars = [_layer(folder, Path(scratch) / str(index)) for index, folder in enumerate(layers)]
        config = json.dumps(
            {
                "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": {
                    "Cmd": list(command) or None,
                    "Entrypoint": list(entrypoint) or None,
                    "User": user,
                    "WorkingDir": working_dir,
                    "Env": [f"{key}={value}" for key, value in {"PATH": PATH, **(environment or {})}.items()],
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest, _ in tars]},
                "history": [{"created_by": "pack"} for _ in tars],
            }
        ).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = {
            "Config": config_name,
            "RepoTags": [name],
            "Layers": [f"{digest}/layer.tar" for digest, _ in tars],
        }
        whole = Path(scratch) / "image.tar"
        with tarfile.open(whole, "w") as tar:
            for path, data in ((config_name, config), ("manifest.json", json.dumps([manifest]).encode())):
                member = tarfile.TarInfo(path)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            for digest, layer in tars:
                tar.add(layer, arcname=f"{digest}/layer.tar", filter=_plain())
        whole.replace(out)


def _layer(folder: Path, out: Path) -> tuple[str, Path]:
    with tarfile.open(out, "w") as tar:
        tar.add(folder, arcname=".", filter=_plain())
    with out.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest(), out


def _plain() -> Callable[[tarfile.TarInfo], tarfile.TarInfo]:
    """Return what makes a member independent of who packs it, and when."""

    def change(member: tarfile.TarInfo) -> tarfile.TarInfo:
        path = os.path.normpath(member.name)
        owners = (uid for own, uid in OWNERS.items() if path == own or path.startswith(own + "/"))
        member.uid = member.gid = next(owners, 0)
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    return change


def _main(arguments: list[str]) -> None:
    folders, command = arguments[2:], []
    if "--" in folders:
        cut = folders.index("--")
        folders, command = folders[:cut], folders[cut + 1 :]
    if len(arguments) < 3 or not folders:
        sys.exit(__doc__)
    pack(arguments[0], Path(arguments[1]), [Path(one) for one in folders], command=command)


if __name__ == "__main__":
    _main(sys.argv[1:])
