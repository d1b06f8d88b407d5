"""The command line's entry: answers ``--version`` at once, hands all else to the group of commands.

Exit codes: 0 done; 1 the job failed (its own code is passed on where it has one); 2 bad input; 3 the API
server refused or cannot be reached; 4 it can never be scheduled; 70 a bug; 130 interrupted.
"""

from __future__ import annotations

import sys

from gangline import __version__


def main(argv: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def arena() -> None:
    """Run a command line as arena's program: its commands alone, its layout of output."""
    sys.exit(run(sys.argv[1:], program="arena"))


def run(argv: list[str], program: str = "gangline") -> int:
    """Run one command line and return its exit code; every error is printed on standard error."""
    if argv in (["--version"], ["-V"]):
        try:
            print(f"gangline {__version__}", flush=True)
            return 0
        except OSError:
            pass  # said below, as for every command
    try:
        from gangline.cli.group import invoke  # click costs 40 ms
    except KeyboardInterrupt:
        from gangline.errors import EXIT_INTERRUPTED

        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return invoke(argv, program)
