"""How far placement is from an exact solver: 400 small clusters, GPUs placed and predicted speed.

Up to three DGX-1 with eight V100 (simulated) and 25 Gbit/s between them, two to eight GPUs of each free,
at most twelve in all; one to four gangs that come in the same second. The solver, CP-SAT, knows all
gangs at once and every set of GPUs; tests/property/placement/exact_placement.py says what it is asked.
Speeds are shares of what each gang reaches alone, predicted for VGG16. The seeds are 0 to 399, so that
no figure depends on the machine. The last figure is about 2,000 other clusters: up to four nodes short of
cpu, and one gang of workers, parameter servers and a launcher.
"""

from __future__ import annotations

import sys

from figures import Figure
from laboratory import REPOSITORY, Laboratory

CASES = 400
MIXED_CASES = 2000

for folder in ("property", "unit"):
    sys.path.insert(0, str(REPOSITORY / "tests" / folder / "placement"))


def run(laboratory: Laboratory) -> list[Figure]:
    from exact_placement import gap, mixed_fits, small_cluster

    several = [gap(small_cluster(seed)) for seed in range(CASES)]
    alone = [gap(small_cluster(seed, gangs=1)) for seed in range(CASES)]

    def total(name: str) -> float:
        return sum(getattr(case, name) for case in several)

    speed = sum(case.speed * case.gpus for case in several)
    highest = sum(case.exact_speed * case.gpus for case in several)
    as_many = sum(case.gpus == case.ordered_gpus for case in several)
    worst = min(case.speed / case.exact_speed for case in several)
    worst_alone = min(case.speed / case.exact_speed for case in alone)
    most_alone = sum(case.gpus for case in alone) / sum(case.exact_gpus for case in alone)
    shares = [
        ("GPUs placed, of the most in the same order", total("gpus") / total("ordered_gpus"), ">= 95"),
        ("- clusters with just as many", as_many / CASES, ""),
        ("GPUs placed, of the most in any order", total("gpus") / total("exact_gpus"), ""),
        ("- pods, of those with the most GPUs", total("pods") / total("exact_pods"), ""),
        ("predicted speed of those placed, of the highest", speed / highest, ">= 99"),
        ("- the worst cluster", worst, ""),
        ("one gang: GPUs placed, of the most", most_alone, ">= 100"),
        ("one gang: the worst predicted speed, of the highest", worst_alone, ">= 99"),
    ]
    mixed = [mixed_fits(seed) for seed in range(MIXED_CASES)]
    possible = sum(exact for _, exact in mixed)
    shares.append(
        ("gangs of several shapes: placed, of those that fit", sum(o for o, _ in mixed) / possible, ">= 100")
    )
    return [Figure(name, "%", [100 * share], goal=goal) for name, share, goal in shares]
