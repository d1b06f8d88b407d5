"""What ranks of these tests need besides torch: a folder for PYTHONPATH, made once in the user's cache
folder. With the word ``examples`` it is what upstream's examples import.
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


EXAMPLES = (
    "torchvision==0.28.0",
    # of torch.utils.tensorboard
    *("tensorboard==2.21.0", "absl-py==2.5.1", "grpcio==1.85.3", "markdown==3.11.3", "protobuf==7.36.2"),
    *("tensorboard-data-server==0.7.2", "werkzeug==3.1.9"),
)


def build(folder: Path, packages: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), *packages], check=True)


if __name__ == "__main__":
    chosen, size = (EXAMPLES, "30 MB") if sys.argv[1:] == ["examples"] else (PACKAGES, "1 MB")
    made = made_once(cached_path("horovod", list(chosen)), size, lambda folder: build(folder, chosen))
    sys.stdout.write(f"{made}\n")
