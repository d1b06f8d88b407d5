"""The device plugin beside a stand-in kubelet: how long an allocation takes, and the plugin's memory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure
from laboratory import REPOSITORY, Laboratory, proportional_memory_mb

CALLS = 1000
GPUS = 8

STAND_IN = REPOSITORY / "tests" / "integration" / "deviceplugin" / "conftest.py"


def run(laboratory: Laboratory) -> list[Figure]:
    spec = importlib.util.spec_from_file_location("stand_in_kubelet", STAND_IN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    slowest: list[float] = []
    memory: list[float] = []
    for _ in range(laboratory.rounds):
        with tempfile.TemporaryDirectory(prefix="dp-") as folder:
            kubelet = module.StandInKubelet(Path(folder))
            words = ["--folder", folder, "--node", "n", f"--simulate-gpus={GPUS}", "--gpu-model=v100-dgx1"]
            program = [sys.executable, "-m", "gangline", "device-plugin", *words]
            plugin = subprocess.Popen(program, stderr=subprocess.DEVNULL)
            try:
                kubelet.requests.get(timeout=60)
                times = []
                for call in range(CALLS):
                    started_s = time.perf_counter()
                    kubelet.allocate(f"GPU-simulated-n-{call % GPUS}")
                    times.append(1000 * (time.perf_counter() - started_s))
                slowest.append(sorted(times)[int(0.99 * CALLS)])
                memory.append(proportional_memory_mb(plugin.pid))
            finally:
                plugin.terminate()
                plugin.wait(30)
                kubelet.close()
    return [
        Figure(f"Allocate, 99th percentile of {CALLS}", "ms", slowest, goal="<= 5"),
        Figure("memory of the plugin", "MB", memory, goal="<= 40"),
    ]
