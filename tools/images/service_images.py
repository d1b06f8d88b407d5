"""The images of the services: the operator's, and upon it the scheduler's and the device plugin's."""

from __future__ import annotations

import re
import shutil
import zipfile
from email.parser import Parser
from pathlib import Path

from debian import CannotMake, lay_out_packages, python_of, unpack_wheels

from gangline.installation.objects import IMAGES

OPERATOR = IMAGES["operator"]
NEEDS = {
    OPERATOR: ("msgspec", "pyyaml", "httptools", "click", "structlog", "prometheus-client", "cryptography"),
    IMAGES["scheduler"]: ("numpy",),
    IMAGES["device-plugin"]: ("grpcio", "protobuf"),
    IMAGES["page"]: ("aiohttp", "numpy", "rich"),
}
"""What of the wheel's dependencies is in the operator's image, and in the others besides."""

PACKAGES = "python3 libc-bin libstdc++6 ca-certificates"
"""Of Debian, in any release with Python 3.11 or newer."""

PROGRAM = """\
#!/usr/bin/python3
import sys
from gangline.cli.app import main
sys.exit(main())
"""


def requirements(image: str, wheel: Path) -> list[str]:
    """Return what an image has of the wheel's dependencies, in the versions that the wheel asks for.

    Raises:
        CannotMake: the wheel asks for no such thing any more.
    """
    with zipfile.ZipFile(wheel) as opened:
        (path,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(opened.read(path).decode())
    # Requires-Dist: numpy>=2.0
    asked = {re.split(r"[^\w.-]", line)[0]: line for line in metadata.get_all("Requires-Dist", [])}
    if strange := [name for name in NEEDS[image] if name not in asked]:
        raise CannotMake(f"{wheel.name} does not ask for {strange[0]}, which is to be in {image}")
    return [asked[name] for name in NEEDS[image]]


def service_layers(image: str, wheel: Path, folder: Path) -> list[Path]:
    """Lay out the layers of an image; those that lie in the folder already are taken as they are.

    Raises:
        CannotMake: packages or wheels cannot be fetched.
    """
    layers = [folder / "system", folder / OPERATOR]
    if not layers[0].exists():
        lay_out_packages(layers[0], PACKAGES)
        for tables in layers[0].glob("usr/lib/*/gconv"):  # 9 MB for iconv(3), which Python does not call
            shutil.rmtree(tables)
    python = python_of(layers[0])
    if not layers[1].exists():
        unpack_wheels([str(wheel)], layers[1], python)
        unpack_wheels(requirements(OPERATOR, wheel), layers[1], python, with_needs=True)
        program = layers[1] / "usr/local/bin/gangline"
        program.parent.mkdir(parents=True)
        program.write_text(PROGRAM)
        program.chmod(0o755)
    if image != OPERATOR:
        layers.append(folder / image)
        unpack_wheels(requirements(image, wheel), layers[2], python, with_needs=True)
    return layers
