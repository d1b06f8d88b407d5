"""The images of the services start what they are for, as nobody, and have no more than that needs."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Image = Callable[[str], str]
Run = Callable[..., CompletedProcess[str]]

WHAT_IS_THERE = """
import importlib, os, sys
from importlib.util import find_spec
importlib.import_module(sys.argv[1])
print(os.getuid(), os.getgid(), *(name for name in ("numpy", "grpc", "aiohttp") if find_spec(name)))
"""


@pytest.mark.parametrize(
    ("name", "service", "module", "has"),
    [
        ("gangline", "operator", "gangline.operator.service", []),
        ("gangline-scheduler", "scheduler", "gangline.scheduler.service", ["numpy"]),
        ("gangline-device-plugin", "device-plugin", "gangline.deviceplugin.plugin", ["grpc"]),
        ("gangline-page", "page-server", "gangline.page.server", ["numpy", "aiohttp"]),
    ],
)
def test_an_image_starts_its_service_without_what_others_need(
    image: Image, run: Run, name: str, service: str, module: str, has: list[str]
) -> None:
    found = run(image(name), "python3", "-c", WHAT_IS_THERE, module)
    helped = run(image(name), "gangline", service, "--help")

    assert found.stdout.split() == ["65532", "65532", *has], found.stderr
    assert helped.returncode == 0, helped.stderr
    assert helped.stdout.startswith(f"Usage: gangline {service}")


def test_an_image_without_what_a_service_needs_says_so(image: Image, run: Run) -> None:
    done = run(image("gangline"), "gangline", "scheduler")

    assert done.returncode == 3
    assert "needs the Python module numpy" in done.stderr
