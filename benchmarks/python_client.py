"""The Python client: its import, and an empty function on two ranks, on a cluster that is up."""

from __future__ import annotations

import subprocess
import sys

from figures import Figure, elapsed_s, in_turns
from laboratory import Laboratory

IMPORT = "import time; began = time.perf_counter(); import gangline; print(time.perf_counter() - began)"
CALLS = """
import sys, time
import gangline

client = gangline.Client(say=lambda line: None)
client.run(lambda: None, ranks=2)
print(0.0, flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    assert client.run(lambda: None, ranks=2) == [None, None]
    print(time.perf_counter() - began, flush=True)
"""


def run(laboratory: Laboratory) -> list[Figure]:
    laboratory.gangline("up")

    def import_ms() -> float:
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, cwd=laboratory.home
        )
        return 1000 * float(done.stdout)

    line = [sys.executable, "-c", CALLS]
    with subprocess.Popen(
        line,
        env=laboratory.environment,
        cwd=laboratory.home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as caller:
        assert caller.stdin and caller.stdout
        caller.stdout.readline()  # warm

        def call_s() -> float:
            assert caller.stdin and caller.stdout
            caller.stdin.write("\n")
            caller.stdin.flush()
            return float(caller.stdout.readline())

        empty = ("run", "-n", "2", "--", sys.executable, "-c", "pass")
        samples = in_turns(
            {
                "import": import_ms,
                "call": call_s,
                "command": lambda: elapsed_s(lambda: laboratory.gangline(*empty)),
            },
            rounds=2 * laboratory.rounds,
        )
        caller.stdin.close()
    return [
        Figure("import gangline", "ms", samples["import"], goal="<= 30"),
        Figure("Client.run of an empty function, 2 ranks", "s", samples["call"], goal="<= 1.5"),
        Figure("gangline run -n 2 of an empty program", "s", samples["command"]),
    ]
