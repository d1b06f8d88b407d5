"""GPUs as NVML tells them. There is no GPU: a library of ours, the stand-in NVML, answers for the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STAND_IN = Path(__file__).parents[2] / "stand_in_nvml"
ASK = """
import json, sys
from gangline.devices.find import find_gpus
from gangline.devices import nvml
from gangline.devices.inventory import topology_note
if sys.argv[1] == "ctypes":
    sys.modules["pynvml"] = None
found = find_gpus()
note = json.loads(topology_note(found.inventory) or "null")
print(json.dumps([found.trouble, found.inventory.in_words, note]))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sys.path.insert(0, str(STAND_IN))
    import stand_in_nvml as stand_in

    if reason := stand_in.why_not():
        pytest.skip(reason)
    return stand_in.build(tmp_path_factory.mktemp("stand-in-nvml"))


@pytest.fixture(params=["pynvml", "ctypes"])
def ask(request: pytest.FixtureRequest, library: Path) -> Any:
    def asked(**environment: str) -> Any:
        process = subprocess.run(
            [sys.executable, "-c", ASK, request.param],
            env=os.environ | {"LD_LIBRARY_PATH": str(library)} | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(process.stdout)

    return asked


def test_gpus_with_ids_and_links(ask: Any) -> None:
    trouble, words, note = ask(STAND_IN_NVML_GPUS="4")

    assert (trouble, words) == ("", "4 real GPUs")
    assert (note["source"], note["model"]) == ("nvml", "Stand-in GPU")
    assert [gpu["uuid"][-2:] for gpu in note["gpus"]] == ["00", "01", "02", "03"]
    assert note["links"] == [
        ["X", "NV2", "PHB", "PHB"],
        ["NV2", "X", "PHB", "PHB"],
        ["PHB", "PHB", "X", "NV2"],
        ["PHB", "PHB", "NV2", "X"],
    ]


def test_a_lost_gpu_takes_no_other_with_it(ask: Any) -> None:
    _, _, note = ask(STAND_IN_NVML_GPUS="4", STAND_IN_NVML_LOST="1")

    assert [gpu["healthy"] for gpu in note["gpus"]] == [True, False, True, True]
    assert note["links"][2][3] == "NV2"
    assert note["links"][0] == ["X", "SYS", "PHB", "PHB"]


def test_no_gpu(ask: Any) -> None:
    assert ask(STAND_IN_NVML_GPUS="0") == ["", "no GPU", None]


def test_a_driver_that_does_not_answer_is_told(ask: Any) -> None:
    trouble, words, _ = ask(STAND_IN_NVML_GPUS="4", STAND_IN_NVML_FAIL="1")

    assert trouble.startswith("NVML does not answer: ")
    assert words == "no GPU"
