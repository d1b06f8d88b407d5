"""Memory of a cluster that has nothing to do: proportional set size of all its processes."""

from __future__ import annotations

import time

from figures import Figure
from laboratory import Laboratory, command_line, processes_of, proportional_memory_mb

SETTLE_S = 3
INTERVAL_S = 1


def run(laboratory: Laboratory) -> list[Figure]:
    laboratory.gangline("up", "--nodes", "2")
    time.sleep(SETTLE_S)
    totals: list[float] = []
    parts: dict[int, float] = {}
    for _ in range(laboratory.rounds):
        parts = {pid: proportional_memory_mb(pid) for pid in processes_of(laboratory.home)}
        totals.append(sum(parts.values()))
        time.sleep(INTERVAL_S)
    figures = [Figure("all processes of an idle cluster, 2 nodes", "MB", totals, goal="<= 130")]
    for pid, size in sorted(parts.items(), key=lambda part: -part[1]):
        figures.append(Figure(f"- {' '.join(command_line(pid).split()[1:4])}", "MB", [size]))
    return figures
