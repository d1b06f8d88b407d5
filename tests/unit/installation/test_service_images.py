"""What the services' images hold: each what its service needs, and no more of the wheel's dependencies."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from build import NAMES, fill_context
from debian import CannotMake
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from service_images import NEEDS, OPERATOR, requirements

from gangline import __version__
from gangline.cluster.images.local_images import local_image_of

WITH_THESE_ALONE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split()))  # each is found by nothing
import importlib, pkgutil
for package in sys.argv[3:]:
    module = importlib.import_module(package)
    for one in pkgutil.walk_packages(getattr(module, "__path__", []), package + "."):
        importlib.import_module(one.name)
from gangline.cli.app import run
sys.exit(run([sys.argv[2], "--help"]))
"""
SERVICES = {
    "operator": (OPERATOR, ["gangline.operator", "gangline.kube", "gangline.jobs"]),
    "scheduler": ("gangline-scheduler", ["gangline.scheduler", "gangline.placement"]),
    "device-plugin": ("gangline-device-plugin", ["gangline.deviceplugin", "gangline.devices"]),
    "page-server": ("gangline-page", ["gangline.page", "gangline.client.explain", "gangline.placement"]),
}


def whole(names: set[str]) -> set[str]:
    """Return distributions with all that they need, by their canonical names."""
    found: set[str] = set()
    left = set(names)
    while left:
        name = left.pop()
        found.add(name)
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                left |= {canonicalize_name(needed.name)} - found
    return found


def not_in(image: str) -> list[str]:
    """Return the modules that this environment has and an image has not."""
    there = whole({*NEEDS[OPERATOR], *NEEDS[image]}) | {"gangline"}
    owners = metadata.packages_distributions().items()
    return [top for top, dists in owners if not there & {canonicalize_name(one) for one in dists}]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_with_what_its_image_has(service: str) -> None:
    image, packages = SERVICES[service]
    refused = not_in(image)
    assert ("aiohttp" in refused) is (service != "page-server")
    assert ("numpy" in refused) is (service not in ("scheduler", "page-server"))
    assert ("grpc" in refused) is (service != "device-plugin")

    command = [
        sys.executable,
        "-c",
        WITH_THESE_ALONE,
        " ".join(refused),
        service,
        "gangline.cli.serve.cluster",
    ]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: gangline {service}")


@pytest.mark.parametrize("image", NEEDS)
def test_one_machine_clusters_serve_the_image_themselves(image: str) -> None:
    assert local_image_of(f"{image}:0.0.9") == image


def test_what_is_not_there_is_named_without_a_traceback() -> None:
    start = "import sys; sys.modules['numpy'] = None; from gangline.cli.app import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", start, "scheduler"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert done.stderr.startswith("error[missing]: this needs the Python module numpy")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """One that asks for what images have, with versions, and for something else."""
    names = [name for needed in NEEDS.values() for name in needed]
    asked = [*(f"{name}>=1.{number}" for number, name in enumerate(names)), "rich>=13; extra == 'more'"]
    lines = ["Name: gangline", *(f"Requires-Dist: {line}" for line in asked)]
    path = tmp_path / f"gangline-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("gangline-1.dist-info/METADATA", "\n".join(lines))
    return path


def test_an_image_has_the_versions_that_the_wheel_asks_for(wheel: Path) -> None:
    assert requirements(OPERATOR, wheel)[:2] == ["msgspec>=1.0", "pyyaml>=1.1"]


@pytest.mark.parametrize("image", NAMES)
def test_a_builder_finds_the_target_and_every_file_that_a_dockerfile_copies(
    image: str, wheel: Path, tmp_path: Path
) -> None:
    context = tmp_path / "context"
    context.mkdir()

    target = fill_context(image, context, wheel.parent)

    lines = [line.split() for line in (context / "Dockerfile").read_text().splitlines()]
    # COPY --chown=1000:1000 root/home/mpiuser/.sshd_config /home/mpiuser/.sshd_config
    copied = [word for line in lines if line[:1] == ["COPY"] for word in line[1:-1] if word[:2] != "--"]
    stages = [line[-1] for line in lines if line[:1] == ["FROM"] and "AS" in line]
    assert copied
    assert [word for word in copied if not list(context.glob(word.rstrip("/")))] == []
    assert target == (["--target", image] if stages else [])
    assert not stages or image in stages


def test_an_image_that_wants_what_the_wheel_no_longer_asks_for_is_not_made(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NEEDS, "gangline-scheduler", ("numpy", "scipy"))

    with pytest.raises(CannotMake, match="does not ask for scipy, which is to be in gangline-scheduler"):
        requirements("gangline-scheduler", wheel)
