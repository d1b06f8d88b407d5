"""Make the virtual environment of the tests marked `train`, or reuse it, and print the path of its Python.

See `cached_environment.py` for where it lies.

Measured on two cores: 75 s and 2.3 GB downloaded the first time, 3.9 GB on disk; afterwards 0.1 s.
"""

import platform
import subprocess
import sys
from pathlib import Path

from cached_environment import cached_path, made_once, make_environment

REQUIREMENTS = Path(__file__).with_name("requirements-train.txt")


def environment_path() -> Path:
    """Return where the environment for these requirements and this Python lies; nothing is made."""
    words = [REQUIREMENTS.read_text(), platform.python_version(), platform.machine(), sys.base_prefix]
    return cached_path("train", words)


def build(folder: Path) -> None:
    python = make_environment(folder, "--no-deps", "-r", REQUIREMENTS)
    subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"], check=True)


if __name__ == "__main__":
    print(made_once(environment_path(), "2.3 GB", build) / "bin" / "python")
