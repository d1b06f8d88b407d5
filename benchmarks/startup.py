"""Start of the command line: `--version` and `--help`, beside a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys

from figures import Figure, elapsed_s, in_turns
from laboratory import Laboratory


def run(laboratory: Laboratory) -> list[Figure]:
    def started_ms(*command: str) -> float:
        return 1000 * elapsed_s(
            lambda: subprocess.run(
                command,
                env=laboratory.environment,
                check=True,
                stdout=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
            )
        )

    samples = in_turns(
        {
            "version": lambda: started_ms(laboratory.program, "--version"),
            "help": lambda: started_ms(laboratory.program, "--help"),
            "python": lambda: started_ms(sys.executable, "-c", "pass"),
        },
        rounds=4 * laboratory.rounds,
        warm_up=2,
    )
    return [
        Figure("gangline --version", "ms", samples["version"], goal="<= 80"),
        Figure("gangline --help", "ms", samples["help"], goal="<= 120"),
        Figure("python -c pass", "ms", samples["python"]),
    ]
