"""The published elastic MPIJob, as it stands: horovodrun asks discover_hosts.sh while workers come and go."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

# One after the other: each starts a cluster.
pytestmark = [pytest.mark.train, pytest.mark.xdist_group("published")]

JOB = "tensorflow-mnist-elastic"
LIMITS = "batch_size=2"
LIMIT_S = 120.0
GENERATION = re.compile(r"^generation (\d+): (\d+) ranks? on (.*)$", re.MULTILINE)
STEP = re.compile(r"Step #(\d+)\tLoss: (\d+\.\d+)")


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, torch_python: str) -> Iterator[Any]:
    # Each worker asks for two processors, which is what a node has.
    image = f"horovod/horovod={Path(torch_python).parents[1]}"
    with start_cluster("--nodes", "4", "--bench-limits", LIMITS, "--image", image) as started:
        yield started


class Job:
    """The job, and what its launcher has told."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        assert cluster.create("v1-elastic.yaml") == JOB
        self._seen = 0

    def log(self) -> str:
        return str(self._cluster.launcher_log(JOB))

    def steps(self) -> list[tuple[int, float]]:
        return [(int(step), float(loss)) for step, loss in STEP.findall(self.log())]

    def scale(self, workers: int) -> None:
        self._cluster.kubectl("scale", f"mpijob/{JOB}", f"--replicas={workers}")

    def delete_worker(self, index: int) -> None:
        self._cluster.kubectl("delete", "pod", f"{JOB}-worker-{index}", "--wait=false")

    def trains_with(self, ranks: int) -> None:
        """Wait until a generation that is new has so many ranks, and has told steps."""

        def does() -> bool:
            log = self.log()
            found = GENERATION.findall(log)
            is_new = len(found) > self._seen and int(found[-1][1]) == ranks
            return bool(is_new and STEP.search(log.rpartition("\ngeneration ")[2]))

        self._wait(does, f"{ranks} ranks")
        self._seen = len(GENERATION.findall(self.log()))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end:
                pods = self._cluster.kubectl("get", "pods", "-o", "wide")
                raise AssertionError(f"waited for {what}\n{pods}\n{self.log()[-4000:]}")
            time.sleep(0.2)


def test_ranks_of_the_published_job_come_and_go_in_one_training(cluster: Any) -> None:
    job = Job(cluster)
    job.trains_with(2)
    job.scale(3)
    job.trains_with(3)
    job.delete_worker(1)
    job.trains_with(2)
    job.scale(1)
    job.trains_with(1)

    steps = job.steps()
    # Commits and lines come every ten steps: after a loss no line comes again but the last.
    assert all(before - now <= 0 for (before, _), (now, _) in pairwise(steps))
    first, last = steps[0][1], min(loss for _, loss in steps[-5:])
    assert last < first
    assert cluster.launcher_log(JOB).count("leaves its generation") >= 4
    cluster.kubectl("delete", "mpijob", JOB)
