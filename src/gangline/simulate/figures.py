"""What is reported about a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gangline.simulate.replay import Replay
from gangline.simulate.site import Site
from gangline.simulate.trace import Trace

DIGITS = 6
BIG_GPUS = 16
"""Jobs of at least so many GPUs are reported on their own: they wait longest."""


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Figures of one policy at one load. Times are in seconds, shares 0 to 1.

    Attributes:
        jobs: that arrived in the measured span; all job figures are about these.
        gangs: those of more than one GPU among them.
        completion_mean_s, completion_p95_s: from arrival to end.
        gang_completion_mean_s: of the gangs.
        wait_mean_s, wait_p95_s, wait_max_s: from arrival to first start.
        big_wait_mean_s, big_completion_mean_s: of jobs of at least :data:`BIG_GPUS` GPUs.
        utilisation: GPU-seconds held in the measured span / GPU-seconds of all GPUs.
        goodput: the same, each GPU counted with the speed of its job: what would have been held had every
            placement been the best.
        fragmentation: free GPU-seconds on nodes that are not wholly free / free GPU-seconds: the share of
            free GPUs that the next job of a whole node cannot use.
        speed_mean: of the gangs, predicted training speed / that of the best placement.
        speed_p5: five of a hundred gangs are slower than this.
        split: share of the gangs with no more GPUs than a node that were cut over several nodes.
        suspensions: of these jobs.
    """

    jobs: int
    gangs: int
    completion_mean_s: float
    completion_p95_s: float
    gang_completion_mean_s: float
    wait_mean_s: float
    wait_p95_s: float
    wait_max_s: float
    big_wait_mean_s: float
    big_completion_mean_s: float
    utilisation: float
    goodput: float
    fragmentation: float
    speed_mean: float
    speed_p5: float
    split: float
    suspensions: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON and YAML."""
        return asdict(self)


def figures(outcome: Replay, trace: Trace, site: Site) -> PolicyFigures:
    """Return the figures of a replay; of no jobs the means are 0, and the speed is 1."""
    runs = [run for run in outcome.runs if trace.is_measured(run.job)]
    gangs = [run for run in runs if run.job.gpus > 1]
    small = [run for run in gangs if run.job.gpus <= site.gpus_per_node]
    completions, waits = [run.completion_s for run in runs], [run.wait_s for run in runs]
    all_gpu_s = site.gpus * (trace.until_s - trace.from_s)
    values = {
        "completion_mean_s": _mean(completions),
        "completion_p95_s": _percentile(completions, 95),
        "gang_completion_mean_s": _mean([run.completion_s for run in gangs]),
        "wait_mean_s": _mean(waits),
        "wait_p95_s": _percentile(waits, 95),
        "wait_max_s": max(waits, default=0.0),
        "big_wait_mean_s": _mean([run.wait_s for run in runs if run.job.gpus >= BIG_GPUS]),
        "big_completion_mean_s": _mean([run.completion_s for run in runs if run.job.gpus >= BIG_GPUS]),
        "utilisation": outcome.busy_gpu_s / all_gpu_s if all_gpu_s else 0.0,
        "goodput": outcome.useful_gpu_s / all_gpu_s if all_gpu_s else 0.0,
        "fragmentation": outcome.stranded_gpu_s / outcome.free_gpu_s if outcome.free_gpu_s else 0.0,
        "speed_mean": _mean([run.speed for run in gangs], empty=1.0),
        "speed_p5": _percentile([run.speed for run in gangs], 5, empty=1.0),
        "split": _mean([float(run.nodes > 1) for run in small]),
    }
    rounded = {name: round(float(value), DIGITS) for name, value in values.items()}
    suspensions = sum(run.suspensions for run in runs)
    return PolicyFigures(jobs=len(runs), gangs=len(gangs), suspensions=suspensions, **rounded)


def _mean(values: Sequence[float], *, empty: float = 0.0) -> float:
    return sum(values) / len(values) if values else empty


def _percentile(values: Sequence[float], share: float, *, empty: float = 0.0) -> float:
    return float(np.percentile(np.array(values), share)) if values else empty
