"""A save behind the training: its error comes to who waits, and one that is abandoned holds nobody up."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from gangline.train.checkpoints.behind import Behind


def test_error_of_the_save_is_raised_by_who_waits_for_it() -> None:
    def write() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Behind(write).finish()


@pytest.mark.timeout(10)
def test_abandoned_save_is_waited_for_no_longer_than_its_limit() -> None:
    never = threading.Event()
    behind = Behind(lambda: [never.wait()].clear())

    behind.abandon(0.01)

    never.set()


@pytest.mark.parametrize(("end", "said"), [("", "written"), ("behind.abandon(0)", "")])
def test_process_that_ends_waits_for_a_save_and_not_for_an_abandoned_one(end: str, said: str) -> None:
    limit_s = 0.3 if not end else 1000.0
    script = (
        "import threading; from gangline.train.checkpoints.behind import Behind\n"
        f"behind = Behind(lambda: (threading.Event().wait({limit_s}), print('written')))\n{end}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == said
