"""Put a release together: ``python tools/release.py dist``, after ``make images``.

Beside the wheel and the archives of images come the manifests to install and the chart, all of one version,
and the sums of all. With ``--image-prefix REGISTRY`` manifests and chart name the images there by version and
digest, which need not be pushed yet. ``make release`` does all of it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from chart import chart
from msgspec.structs import replace

from gangline import __version__
from gangline.api.codec import dump_yaml
from gangline.cli.install.image import digest_of
from gangline.installation.objects import IMAGES, Installation, definitions, objects, page

NAME = f"gangline-{__version__}"


class Incomplete(Exception):
    """A part of the release is missing."""


def main(words: list[str] | None = None) -> int:
    """Write everything and print what the release consists of."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="folder with wheel and images, for everything else too")
    parser.add_argument(
        "--image-prefix", default="", help="registry and folder that the images will be pushed to"
    )
    options = parser.parse_args(words)
    try:
        for file in release(options.dist, options.image_prefix.rstrip("/")):
            print(file)
    except Incomplete as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    return 0


def release(dist: Path, prefix: str) -> list[Path]:
    """Write manifests, chart and sums, and return every file of the release.

    Args:
        dist: with the wheel, and archives of images in ``images``.
        prefix: of the images' names; empty for the names that nodes have them by when they were loaded there.

    Raises:
        Incomplete: something is missing, or is of another version.
    """
    archives = {name: _one(dist / "images", f"{name}-{__version__}.tar") for name in _IMAGES}
    parts = [_one(dist, f"{NAME}-*.whl"), *archives.values()]
    digests = {name: digest_of(archives[name]) for name in IMAGES.values()} if prefix else {}
    for name, installation in _INSTALLATIONS.items():
        chosen = replace(installation, image_prefix=prefix, digests=digests)
        manifests = page(chosen) if name == "page" else [*definitions(chosen), *objects(chosen)]
        file = dist / f"{NAME}-{name}.yaml"
        file.write_text(dump_yaml(*manifests))
        parts.append(file)
    packed = dist / f"{NAME}.tgz"
    packed.write_bytes(packed_chart(chart(prefix, digests)))
    parts.append(packed)
    sums = dist / f"{NAME}-sha256sums.txt"
    lines = [f"{_sum(part)}  {part.relative_to(dist)}\n" for part in parts]
    sums.write_text("".join(lines))
    return [*parts, sums]


_IMAGES = (*IMAGES.values(), "gangline-base")
_INSTALLATIONS = {
    "install": Installation(),
    "operator": Installation(has_scheduler=False),
    "page": Installation(),
}


def _one(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Incomplete(f"{folder} has {len(found)} files {pattern}; `make images` makes them")
    return found[0]


def packed_chart(files: Iterable[tuple[str, str]]) -> bytes:
    """Return a chart as Helm packs it: always the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path, text in files:
            content = text.encode()
            entry = tarfile.TarInfo(f"gangline/{path}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _sum(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
