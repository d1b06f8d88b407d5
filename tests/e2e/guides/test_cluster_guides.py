"""Guides for clusters, typed as they are written: files are made, lines are run, outputs compared.

A block of YAML or Python whose first line is ``# NAME`` is a file; ``sh`` is run; ``output`` is what the
blocks of ``sh`` before it print, ``...`` standing for anything. The one-machine cluster plays the cluster,
its own image `my-image`; its four GPUs are simulated. After ``<!-- not run: REASON -->`` a block is not
run; files are still checked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.kube.durations import Durations
from gangline.operator.metrics import operator_metrics
from gangline.operator.statistics import OperatorStatistics
from gangline.placement import Snapshot
from gangline.scheduler.metrics import scheduler_metrics
from gangline.scheduler.statistics import SchedulerStatistics

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
GUIDE = GUIDES / "monitoring.md"
NAMES = [
    "quotas-and-tenants.md",
    "storage-and-checkpoints.md",
    "gpus-on-a-cluster.md",
    "nccl-and-rdma.md",
    "kueue.md",
    "volcano.md",
    "monitoring.md",
    "python-client.md",
]
# <!-- not run: reason --> and a fence with its language, text and end
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w.-]+)\n")
TRAIN = 'import os\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])\n'
FOREIGN = ("kueue.x-k8s.io", "monitoring.coreos.com")
"""Groups whose definitions the cluster does not have: their objects are read, and not sent."""


class Reader:
    """Somebody who does what a guide says."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.printed = ""

    def run(self, text: str) -> None:
        line = text.replace("my-image", "gangline/base").replace("my-cluster", "gangline")
        own = f"cd {self.folder}; export COLUMNS=200 PATH={Path(sys.executable).parent}:$PATH; exec 2>&1"
        done = self.cluster.run("bash", "-euo", "pipefail", "-c", f"{own}\n{line}")
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        self.printed += done.stdout

    def write(self, text: str) -> None:
        named = FILE.match(text)
        assert named, f"no name in the first line:\n{text}"
        here = text.replace("my-image", "gangline/base").replace("my-cluster", "gangline")
        (self.folder / named.group(1)).write_text(here)
        if not named.group(1).endswith(".yaml"):
            return
        for obj in yaml.safe_load_all(text):
            if "kind" in obj and obj["apiVersion"].partition("/")[0] not in FOREIGN:
                obj["metadata"].pop("namespace", None)  # it comes with the lines
                words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
                self.cluster.kubectl(*words, stdin=yaml.safe_dump(obj))

    def expect(self, text: str) -> None:
        pattern = "".join(
            r"(?:.*\n)*" if line == "..." else "[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"
            for line in text.splitlines()
        )
        assert re.fullmatch(pattern, self.printed), f"expected\n{text}\nprinted\n{self.printed}"
        self.printed = ""


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Any]) -> Iterator[Any]:
    with start_cluster("--simulate-gpus", "4") as found:
        yield found


@pytest.fixture
def reader(cluster: Any, tmp_path: Path) -> Reader:
    (tmp_path / "train.py").write_text(TRAIN)
    return Reader(cluster, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_guide_does_what_it_says(name: str, reader: Reader) -> None:
    blocks = BLOCK.findall((GUIDES / name).read_text())
    assert blocks
    # files first: readers see them below the line that uses them
    for _, language, text in blocks:
        if language in ("yaml", "python"):
            reader.write(text)
    for unrun, language, text in blocks:
        if language == "sh" and not unrun:
            reader.run(text)
        elif language == "output":
            reader.expect(text)


def test_every_expression_and_alert_names_figures_that_are_served() -> None:
    nothing = Durations().statistics()
    operator = OperatorStatistics((), 0, 0, 0, (), (), nothing, nothing, 0, 0, 0, (), True, 0.0)
    families = [*operator_metrics(operator), *scheduler_metrics(SchedulerStatistics(), Snapshot())]
    ends = {"counter": ("_total",), "gauge": ("",), "histogram": ("_sum", "_count", "_bucket")}
    served = {family.name + end for family in families for end in ends[family.type]}

    # gangline_scheduler_waiting_gangs
    asked = set(re.findall(r"\b(?:gangline_(?:scheduler|operator)|mpi_operator)_\w+", GUIDE.read_text()))

    assert len(asked) > 4
    assert asked <= served
