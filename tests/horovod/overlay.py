"""What ranks of these tests need besides torch: a folder for PYTHONPATH, made once in the user's cache
folder.
"""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
from cached_environment import cached_path, made_once  # noqa: E402

PACKAGES = (
    "cloudpickle==3.1.2",
    # what upstream's tests import, and pytest, which runs them in every rank
    *(
        "iniconfig==2.3.1",
        "mock==5.2.0",
        "packaging==26.3",
        "pluggy==1.7.0",
        "pygments==2.21.0",
        "pytest==9.2.0",
    ),
)


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), *PACKAGES], check=True)


if __name__ == "__main__":
    sys.stdout.write(f"{made_once(cached_path('horovod', list(PACKAGES)), '1 MB', build)}\n")
