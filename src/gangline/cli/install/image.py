"""``gangline image``: bring an image's archive to the registry that a cluster pulls from."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import click
import msgspec

from gangline.cli.output import say
from gangline.cli.subcommands import Subcommands
from gangline.errors import GanglineError, UserError

if TYPE_CHECKING:
    import requests
    from oras.container import Container
    from oras.provider import Registry

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_PATIENCE_S = 10.0
"""For the registry's first answer."""

_LEVEL = 6
"""Of gzip: half the size of an image in a few seconds; the highest saves 1 % more in three times as long."""


class ArchivedImage(msgspec.Struct, rename="pascal"):
    """An entry of ``manifest.json`` in an archive of ``docker save``; members are names in the archive."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


class OpenedImage(NamedTuple):
    """An archived image: its configuration and layers, to read, and its own name."""

    config: IO[bytes]
    layers: list[IO[bytes]]
    name: str


class ImagePart(msgspec.Struct, rename="camel"):
    """A descriptor of the OCI image specification: a part that the registry has."""

    media_type: str
    digest: str
    size: int


@click.group("image", cls=Subcommands)
def command() -> None:
    """Bring images to where a cluster pulls them from."""


@command.command("push")
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
@click.argument("name", metavar="REGISTRY/NAME[:TAG]")
@click.option("--plain-http", is_flag=True, help="The registry speaks no TLS.")
def push(archive: Path, name: str, plain_http: bool) -> None:
    """Push an image's archive, of `make images` or `docker save`, to a registry; print its name with digest.

    The tag is the archive's own where none is given. Passwords are those that `docker login` keeps.

    \b
    gangline image push dist/images/gangline-0.1.0.tar registry.example.com/ml/gangline
    """  # noqa: D301 - click's mark for text that is not filled
    with _opened(archive) as image:
        container, registry = _registry(name, image.name, plain_http)
        with _answers(container):
            # oras tries again for two minutes where nobody listens.
            registry.session.get(f"{registry.prefix}://{container.registry}/v2/", timeout=_PATIENCE_S)
            print(_push(image, container, registry))


@command.command("digest")
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
def digest(archive: Path) -> None:
    """Print the digest that an image has in every registry to which `gangline image push` brings it."""
    print(digest_of(archive))


def digest_of(archive: Path) -> str:
    """Return the digest by which registries will know an archived image.

    Raises:
        UserError: the archive cannot be read, or is another kind of file.
    """
    with _opened(archive) as image, _packed(image) as packed:
        return packed.digest


@contextmanager
def _opened(archive: Path) -> Iterator[OpenedImage]:
    """Open an archive of ``docker save`` and read its manifest.

    Raises:
        UserError: it cannot be read, is another kind of file, or lacks a part.
    """
    try:
        tar = tarfile.open(archive)  # noqa: SIM115 - closed below, where what is raised is no longer its fault
    except OSError as error:
        raise UserError(
            f"cannot read {archive}: {error.strerror}", hint="`make images` writes some"
        ) from error
    except tarfile.TarError as error:
        raise _no_image(archive) from error
    with tar:
        listed = _member(tar, archive, "manifest.json").read()
        try:
            (image,) = msgspec.json.decode(listed, type=list[ArchivedImage])
        except (msgspec.MsgspecError, ValueError) as error:
            raise _no_image(archive) from error
        yield OpenedImage(
            config=_member(tar, archive, image.config),
            layers=[_member(tar, archive, name) for name in image.layers],
            name=(image.repo_tags or [""])[0],
        )


def _no_image(archive: Path) -> UserError:
    return UserError(
        f"{archive} is no archive of one image, as `docker save` writes it",
        hint="`make images` writes some to dist/images",
    )


def _member(tar: tarfile.TarFile, archive: Path, name: str) -> IO[bytes]:
    with suppress(KeyError):
        if (opened := tar.extractfile(name)) is not None:
            return opened
    raise _no_image(archive)


def _registry(name: str, own: str, plain_http: bool) -> tuple[Container, Registry]:
    try:
        from oras.container import Container
        from oras.provider import Registry
    except ImportError as error:
        raise UserError("this needs oras", hint="pip install 'gangline[registry]'") from error
    host, _, path = name.partition("/")
    # "registry.example.com", "localhost:5000": what Docker takes for a registry and not for a user's name
    if not path or not ("." in host or ":" in host or host == "localhost"):
        raise UserError(
            f"REGISTRY/NAME must begin with a registry (found `{name}`)",
            hint=f"registry.example.com/{name}, or docker.io/{name}",
        )
    if ":" not in path and (tag := own.rpartition(":")[2]):
        name = f"{name}:{tag}"
    try:
        container = Container(name)
    except ValueError as error:
        raise UserError(f"`{name}` is no name of an image: {error}") from error
    registry = Registry(insecure=plain_http)
    registry.auth.load_configs(container)
    return container, registry


@contextmanager
def _answers(container: Container) -> Iterator[None]:
    """Tell a registry that is not reached, or lets nobody in, as an error of ours."""
    import requests

    where = f"cannot push to {container.registry}"
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise RegistryError(f"{where}: {error}", hint="--plain-http if it speaks no TLS") from error
    except requests.exceptions.RequestException as error:
        reason = getattr(error.args[0], "reason", error) if error.args else error
        raise RegistryError(f"{where}: {reason}", hint="is its name right, and does it run?") from error
    except ValueError as error:  # what oras raises where it may not come in
        raise RegistryError(f"{where}: {error}", hint=f"docker login {container.registry}") from error


class RegistryError(GanglineError):
    """A registry refused an image or could not be reached."""

    code = "registry"
    exit_code = 3


def _push(image: OpenedImage, container: Container, registry: Registry) -> str:
    """Upload layers, configuration and manifest, in this order: a name never leads to parts that lack."""
    with _packed(image) as packed:
        for part, described in packed.parts:
            built = msgspec.to_builtins(described)
            _accepted(registry.upload_blob(str(part), container, built), container)
        done = _accepted(registry.upload_manifest(packed.manifest, container), container)
    digest = done.headers.get("Docker-Content-Digest", "")
    return str(container) + (f"@{digest}" if digest else "")


class PackedImage(NamedTuple):
    """An image as a registry keeps it: files with their descriptors, and the manifest that names them."""

    parts: list[tuple[Path, ImagePart]]
    manifest: dict[str, object]

    @property
    def digest(self) -> str:
        """By which a registry knows it: that of the manifest, as oras writes it."""
        return f"sha256:{hashlib.sha256(json.dumps(self.manifest).encode()).hexdigest()}"


@contextmanager
def _packed(image: OpenedImage) -> Iterator[PackedImage]:
    """Compress an image's layers, always to the same bytes, into a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="gangline-push-") as scratch:
        parts = []
        for index, layer in enumerate(image.layers, start=1):
            file = Path(scratch) / str(index)
            with file.open("wb") as out, gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as zipped:
                shutil.copyfileobj(layer, zipped)
            parts.append((file, _described(file, LAYER_TYPE)))
            say(f"layer {index} of {len(image.layers)}: {parts[-1][1].size / 1e6:,.1f} MB")
        file = Path(scratch) / "config"
        file.write_bytes(image.config.read())
        config = _described(file, CONFIG_TYPE)
        layers = [part for _, part in parts]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
        yield PackedImage([*parts, (file, config)], msgspec.to_builtins(manifest))


def _described(file: Path, media_type: str) -> ImagePart:
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    return ImagePart(media_type, f"sha256:{digest}", file.stat().st_size)


def _accepted(answer: requests.Response, container: Container) -> requests.Response:
    if answer.status_code not in (200, 201, 202):
        said = f"{answer.status_code} {answer.text[:300].strip()}"
        raise RegistryError(
            f"{container.registry} refused a part of {container}: {said}",
            hint="may you write there, and is the disk of the registry full?",
        )
    return answer
