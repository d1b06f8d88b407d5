"""Which images are served by what: folders of the user's, a container runtime. Kept in one ConfigMap.

The map belongs to one cluster: ``kube-system/gangline-images``, keys ``images`` (JSON, name -> folder),
``runtime``, and ``benchLimits`` for the programs of local images. A name without a tag stands for every
tag; with a tag or digest for that image alone. Names are compared as Docker reads them: ``ubuntu`` is
``docker.io/library/ubuntu``.

Before the map come local images (``images.py``): ``gangline/base`` is nobody else's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from gangline.api.resources import CONFIG_MAPS
from gangline.errors import UserError

MAP_NAMESPACE = "kube-system"
MAP_NAME = "gangline-images"

Kind = Literal["root", "files", "venv"]
Runtime = Literal["containerd", "podman", "docker"]
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)


class UserImage(msgspec.Struct, frozen=True):
    """A folder of the user's that serves an image.

    Attributes:
        kind: ``root`` is a whole root file system, ``files`` are laid over the machine's, ``venv`` is a
            virtual environment that comes first on the PATH.
        path: the folder, absolute.
    """

    kind: Kind
    path: str

    def __str__(self) -> str:
        return f"virtual environment {self.path}" if self.kind == "venv" else f"folder {self.path}"


class ImageMap(msgspec.Struct, frozen=True):
    """What serves images on one cluster.

    Attributes:
        images: name, as the user wrote it -> folder.
        runtime: the container runtime that serves all other images, empty for none.
        bench_limits: what the benchmarks of local images are limited to, empty for nothing.
    """

    images: Mapping[str, UserImage] = {}
    runtime: str = ""
    bench_limits: str = ""

    def find(self, reference: str) -> UserImage | None:
        """Return the folder that serves an image, None when there is none."""
        known = {full_name(name): image for name, image in self.images.items()}
        return (
            known.get(full_name(reference))
            or known.get(tagged(reference))
            or known.get(repository(reference))
        )

    def changed(
        self, images: Mapping[str, UserImage | None], runtime: str | None, bench_limits: str | None = None
    ) -> ImageMap:
        """Return the map with folders added and (None) removed; what else is None stays as it is."""
        gone = {full_name(name) for name in images}
        kept = {name: image for name, image in self.images.items() if full_name(name) not in gone}
        kept |= {name: image for name, image in images.items() if image is not None}
        return ImageMap(
            kept,
            self.runtime if runtime is None else runtime,
            self.bench_limits if bench_limits is None else bench_limits,
        )

    def to_object(self) -> dict[str, Any]:
        """Return the ConfigMap."""
        images = {name: {"kind": image.kind, "path": image.path} for name, image in self.images.items()}
        return {
            "apiVersion": "v1",
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": MAP_NAME, "namespace": MAP_NAMESPACE},
            "data": {
                "images": json.dumps(images, sort_keys=True),
                "runtime": self.runtime,
                "benchLimits": self.bench_limits,
            },
        }

    @classmethod
    def from_object(cls, config_map: Mapping[str, Any] | None) -> ImageMap:
        """Return what a ConfigMap says; what cannot be read in one that others wrote is passed over."""
        data = (config_map or {}).get("data") or {}
        try:
            found = json.loads(data.get("images") or "{}")
            images = {
                str(name): UserImage(image["kind"], str(image["path"]))
                for name, image in found.items()
                if image["kind"] in get_args(Kind)
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            images = {}
        runtime = str(data.get("runtime") or "")
        return cls(images, runtime if runtime in RUNTIMES else "", str(data.get("benchLimits") or ""))


def full_name(reference: str) -> str:
    """Return a reference with the registry and the folder that Docker adds; tag and digest stay.

    Example:
        >>> full_name("ubuntu:22.04"), full_name("localhost/a/b")
        ('docker.io/library/ubuntu:22.04', 'localhost/a/b')
    """
    head, slash, rest = reference.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        if head in ("index.docker.io", "docker.io"):
            return f"docker.io/{rest}" if "/" in rest else f"docker.io/library/{rest}"
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def repository(reference: str) -> str:
    """Return the full name without tag and digest."""
    name = full_name(reference).partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def tagged(reference: str) -> str:
    """Return the full name, with the tag ``latest`` where there is neither tag nor digest."""
    name = full_name(reference)
    return f"{name}:latest" if name == repository(reference) else name


def read_user_image(name: str, text: str) -> UserImage:
    """Return what a folder is.

    Args:
        name: of the image, for messages.
        text: the folder as the user wrote it.

    Raises:
        UserError: there is no such folder, or it is neither a virtual environment nor files of a root.
    """
    path = Path(text).expanduser().absolute()
    subject = f"image `{name}` cannot be served by `{text}`"
    kinds = (
        "a root file system, files to lay over `/` (folders such as `opt` or `usr`), or a virtual environment"
    )
    if not path.is_dir():
        what = "it is not a folder" if path.exists() else "there is no such folder"
        raise UserError(f"{subject}: {what}", hint=f"name {kinds}")
    if any(character in str(path) for character in ",:\\"):
        raise UserError(f"{subject}: its path has a comma, colon or backslash, which no overlay can take")
    if (path / "pyvenv.cfg").is_file():
        if not (path / "bin" / "python").exists():
            raise UserError(
                f"{subject}: the virtual environment has no `bin/python` that works",
                hint=f"make it again: python3 -m venv --clear {text}",
            )
        return UserImage("venv", str(path))
    if any(
        (path / folder / "sh").is_symlink() or (path / folder / "sh").exists()
        for folder in ("bin", "usr/bin")
    ):
        return UserImage("root", str(path))
    visible = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    files = [entry.name for entry in visible if not entry.is_dir()]
    if files or not visible:
        what = f"it has the file `{files[0]}` at its top" if files else "it is empty"
        raise UserError(f"{subject}: {what}", hint=f"name {kinds}")
    return UserImage("files", str(path))


def nothing_serves(reference: str) -> tuple[str, str]:
    """Return why an image cannot be run, and the ways on."""
    name = repository(reference).removeprefix("docker.io/library/").removeprefix("docker.io/")
    rule = "nothing on this machine serves this image, and the one-machine cluster pulls none unasked"
    hint = (
        f"--image {name}=FOLDER serves it from a folder or virtual environment of yours; "
        "--runtime containerd (or podman, docker) pulls it and runs it in real containers; "
        "--context CONTEXT runs the job on a cluster that has it; "
        "`image: gangline/base` is this machine's own programs, Python and MPI"
    )
    return rule, hint
