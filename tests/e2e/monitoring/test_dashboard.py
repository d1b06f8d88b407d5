"""The dashboard against a real Prometheus that scrapes a one-machine cluster on which a training runs.

What each panel asks must have an answer, and what it names must exist: a panel that stays empty on a cluster
at work is wrong.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.monitoring, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "gangline.json").read_text())
LIMIT_S = 120
LOOK_S = 0.5
# gangline_operator_jobs{...}, and what a regular expression matches
NAME = re.compile(r"\b(?:gangline|mpi_operator|apiserver|process|container|kubelet)_[a-z_]+")

TRAINING = """
import time
from gangline.train.progress import Progress
progress = Progress(0, 1, steps=100000, items_per_step=32, interval_s=0.5)
for step in range(100000):
    progress.step(loss=1.0 / (1 + step))
    time.sleep(0.1)
"""
JOBS = f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: train}}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - name: main
              image: gangline/base
              command: [python3, -c, {json.dumps(TRAINING)}]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {{name: main, image: gangline/base, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: waits}}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: {{spec: {{containers: [{{name: main, image: gangline/base, command: ["true"]}}]}}}}
    Worker:
      replicas: 64
      template:
        spec:
          containers:
            - {{name: main, image: gangline/base, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}
"""


class Prometheus:
    """A real one; ``ask`` evaluates an expression now."""

    def __init__(self, program: Path, config: dict[str, Any], folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        words = [f"--web.listen-address=127.0.0.1:{self._port}", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("wb") as log:
            words.insert(0, f"--config.file={folder}/prometheus.yml")
            self._process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        self.log = folder / "log"

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression; none while Prometheus is starting."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{query}") as answer:
                return list(json.loads(answer.read())["data"]["result"])
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except urllib.error.URLError:
            assert self._process.poll() is None, self.log.read_text()
            return []


def device_plugin() -> str:
    """Return the manifest of deploy/ for a machine without a kubelet, whose folders of pods are not there."""
    objects = list(yaml.safe_load_all((ROOT / "deploy" / "device-plugin.yaml").read_text()))
    pod = objects[-1]["spec"]["template"]["spec"]
    pod["volumes"] = [one for one in pod["volumes"] if one["name"] == "device-plugins"]
    mounts = pod["containers"][0]["volumeMounts"]
    mounts[:] = [one for one in mounts if one["name"] == "device-plugins"]
    return yaml.safe_dump_all(objects)


@pytest.fixture(scope="module")
def prometheus(start_cluster: Callable[..., Any], tmp_path_factory: Any) -> Iterator[Prometheus]:
    programs = os.environ.get("GANGLINE_PROMETHEUS")
    if not programs:
        pytest.skip("GANGLINE_PROMETHEUS is not set: run `make test-monitoring`")
    with start_cluster("--nodes", "2", "--simulate-gpus", "8", "--gpu-model", "v100-dgx1") as cluster:
        cluster.kubectl("label", "node", "node-0", "openshift.com/gpu-accelerator=true")
        cluster.kubectl("apply", "-f", "-", stdin=device_plugin())
        cluster.kubectl("apply", "-f", "-", stdin=JOBS)
        config = yaml.safe_load(cluster.gangline("metrics", "--scrape-config").stdout)
        config["global"]["scrape_interval"] = "1s"
        folder = tmp_path_factory.mktemp("prometheus")
        running = Prometheus(Path(programs) / "prometheus", config, folder)
        try:
            yield running
        finally:
            running.stop()


def targets() -> list[tuple[str, str]]:
    """Return the title of each panel with each of its expressions, as Grafana would send it."""
    return [
        (panel["title"], target["expr"].replace("$job", ".+"))
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    ]


def until(condition: Callable[[], Any], what: str) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end_s, f"{what}: nothing after {LIMIT_S} s"
        time.sleep(LOOK_S)
    return found


@pytest.mark.parametrize(("title", "expression"), targets())
def test_a_panel_has_series(prometheus: Prometheus, title: str, expression: str) -> None:
    until(lambda: prometheus.ask(expression), f"{title}: {expression}")


def test_what_panels_name_exists(prometheus: Prometheus) -> None:
    asked = {name for _, expression in targets() for name in NAME.findall(expression)}
    asked = {name for name in asked if not name.endswith("_")}  # the beginning of a regular expression

    assert len(asked) > 25
    for name in sorted(asked):
        until(lambda name=name: prometheus.ask(f"count({name})"), name)


def test_figures_say_what_is_so(prometheus: Prometheus) -> None:
    def value(expression: str) -> float | None:
        found = prometheus.ask(expression)
        return float(found[0]["value"][1]) if found else None

    for expression, expected in {
        'gangline_operator_jobs{kind="MPIJob", condition="Running"}': 1,
        'sum(gangline_scheduler_gpus{kind="simulated"})': 16,
        'sum(gangline_scheduler_gpus{state="held"})': 2,
        'sum(gangline_agent_gpus{state="held"})': 2,
        'gangline_scheduler_waiting_gangs{reason="NoRoom"}': 1,
        'gangline_train_steps_planned{job="train"}': 100000,
        'gangline_component_up{component="node-agent"}': 1,
        'count(process_resident_memory_bytes{component="shim"})': 4,
    }.items():
        until(lambda e=expression, n=expected: value(e) == n, f"{expression} == {expected}")
