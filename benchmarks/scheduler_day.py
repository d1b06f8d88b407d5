"""A simulated day on 2,000 GPUs: the scheduling pass beside rack-only, best-fit and FIFO first-fit.

Nodes, GPUs and jobs are simulated, and training speeds predicted: see docs/concepts/simulated-day.md. A round
is a day of its own, with the number of the round as seed; the same seed gives the same figures everywhere.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

from figures import Figure
from laboratory import Laboratory

LOADS = (0.60, 0.80, 0.95)
OURS = "gangline"
OTHERS = ("rack-only", "best-fit", "first-fit")
FIGURES = {
    "mean time to completion": ("h", "completion_mean_s", 1 / 3600),
    "mean time to completion, gangs": ("h", "gang_completion_mean_s", 1 / 3600),
    "GPUs held": ("%", "utilisation", 100.0),
    "goodput": ("%", "goodput", 100.0),
    "fragmentation": ("%", "fragmentation", 100.0),
    "predicted speed of gangs": ("%", "speed_mean", 100.0),
}
"""Name -> unit, attribute of ``gangline.simulate.figures.Figures``, factor."""


def day(load: float, policy: str, seed: int) -> dict[str, float]:
    """Return the figures of one policy on one day."""
    from gangline.placement import Policy
    from gangline.simulate.figures import figures
    from gangline.simulate.policies import POLICIES
    from gangline.simulate.replay import check_trace, replay
    from gangline.simulate.site import Site
    from gangline.simulate.speeds import MODELS, Speeds
    from gangline.simulate.trace import Mix, generate

    site = Site()
    trace = generate(Mix(load=load, gpus=site.gpus, models=MODELS, seed=seed))
    check_trace(trace, site)
    return figures(replay(trace, site, POLICIES[policy](site, Policy()), Speeds(site)), trace, site).as_dict()


def run(laboratory: Laboratory) -> list[Figure]:
    names = (OURS, *OTHERS)
    cases = [(load, name, seed) for load in LOADS for name in names for seed in range(laboratory.rounds)]
    with ProcessPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        found = dict(zip(cases, pool.map(day, *zip(*cases, strict=True)), strict=True))

    def samples(load: float, policy: str, attribute: str, factor: float) -> list[float]:
        return [factor * found[load, policy, seed][attribute] for seed in range(laboratory.rounds)]

    return [
        Figure(
            f"{100 * load:g} %: {name}, {other}",
            unit,
            samples(load, OURS, attribute, factor),
            bare=samples(load, other, attribute, factor),
        )
        for name, (unit, attribute, factor) in FIGURES.items()
        for load in LOADS
        for other in OTHERS
    ]
