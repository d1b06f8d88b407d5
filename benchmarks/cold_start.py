"""Cold start: from nothing to a cluster that takes pods, and to the first line of rank 0."""

from __future__ import annotations

import sys

from figures import Figure, elapsed_s, in_turns
from first_rank import MARKER, write_hello
from laboratory import Laboratory


def run(laboratory: Laboratory) -> list[Figure]:
    hello = write_hello(laboratory.home)
    run_hello = [laboratory.program, "run", "-n", "2", "--", sys.executable, str(hello)]

    def cold_up_s() -> float:
        laboratory.gangline("down", check=False)
        return elapsed_s(lambda: laboratory.gangline("up"))

    def cold_run_s() -> float:
        laboratory.gangline("down", check=False)
        return laboratory.first_line_s(run_hello, MARKER)

    samples = in_turns({"up": cold_up_s, "run": cold_run_s}, laboratory.rounds)
    return [
        Figure("gangline up, nothing running", "s", samples["up"], goal="<= 1.0"),
        Figure("gangline run -n 2 to the first line of rank 0, nothing running", "s", samples["run"]),
    ]
