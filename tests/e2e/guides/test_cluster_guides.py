"""Guides for clusters, typed as they are written. Four simulated GPUs play those of the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.kube.durations import Durations
from gangline.operator.metrics import operator_metrics
from gangline.operator.statistics import OperatorStatistics
from gangline.placement import Snapshot
from gangline.scheduler.metrics import scheduler_metrics
from gangline.scheduler.tally import SchedulerStatistics

from .reader import Reader

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
TRAIN = 'import os\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])\n'


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
    reader.follow(GUIDES / name)


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
