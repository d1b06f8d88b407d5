"""Build the stand-in NVML, a library of the same name as the driver's; there is no GPU behind it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in_nvml.c")


def why_not() -> str:
    """Return why it cannot be built here, empty when it can."""
    return "" if shutil.which("cc") else "the stand-in NVML needs a C compiler, and there is none"


def build(folder: Path) -> Path:
    """Compile it into the folder, and return that: put it into LD_LIBRARY_PATH."""
    library = folder / "libnvidia-ml.so.1"
    line = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(line, check=True)
    return folder
