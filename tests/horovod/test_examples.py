"""Upstream's examples, from the checkout ``HOROVOD_SOURCE``, do what `upstream_examples.toml` says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from launch_ranks import environment

TABLE = tomllib.loads(Path(__file__).with_name("upstream_examples.toml").read_text())
SOURCE, IMPORTS = os.environ.get("HOROVOD_SOURCE", ""), os.environ.get("GANGLINE_HOROVOD_EXAMPLES", "")
LIMIT_S = 400

DATA = """
import random, struct, sys
from pathlib import Path
from PIL import Image
folder = Path(sys.argv[1])
raw = folder / "MNIST" / "raw"
raw.mkdir(parents=True)
for name, count in (("train", 256), ("t10k", 64)):
    pixels = random.Random(name).randbytes(count * 28 * 28)
    (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">iiii", 2051, count, 28, 28) + pixels)
    labels = bytes(number % 10 for number in range(count))
    (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, count) + labels)
for number in range(8):
    kind = folder / "pictures" / "ab"[number % 2]
    kind.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((256, 256), 50 + number).convert("RGB").save(kind / f"{number}.jpg")
"""


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    subprocess.run([os.environ["GANGLINE_TRAIN_PYTHON"], "-c", DATA, str(folder)], check=True)
    return folder


def test_every_reason_why_an_example_does_not_run_is_a_sentence() -> None:
    assert all(entry["result"] == "pass" or len(entry["result"].split()) > 3 for entry in TABLE.values())


@pytest.mark.skipif(not (SOURCE and IMPORTS), reason="see `make test-horovod-upstream`")
@pytest.mark.horovod
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("path", TABLE)
def test_upstreams_example_does_what_the_table_says(path: str, data: Path, tmp_path: Path) -> None:
    entry, python = TABLE[path], os.environ["GANGLINE_TRAIN_PYTHON"]
    overlays = [os.environ["GANGLINE_HOROVOD_OVERLAY"], IMPORTS]
    script = Path(SOURCE) / path
    if not script.exists():  # older checkouts
        script = Path(SOURCE) / path.replace("/elastic/pytorch/", "/elastic/")
    words = ["-m", "gangline.launch.horovodrun", "--gloo", "-np", "2"]
    words += ["--min-np", "2"] if entry.get("elastic") else []
    arguments = [word.format(folder=data) for word in entry["arguments"]]
    done = subprocess.run(
        [sys.executable, *words, python, "-W", "ignore", str(script), *arguments],
        env=environment(os.pathsep.join(overlays)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    found = re.search(entry["says"], done.stdout + done.stderr)
    passed = done.returncode == 0 and found is not None
    assert passed == (entry["result"] == "pass"), done.stdout[-3000:] + done.stderr[-3000:]
