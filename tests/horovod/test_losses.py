"""A rank that is lost without a word, while the others meet it or later: the launcher's board frees them.

The test plays the launcher. The lost rank is stopped, not killed: its connections stay open, as those of a
host whose power fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launch_ranks import environment, free_port
from test_elastic import LIMIT_S, SCRIPT, lines_of, python

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(200)]

SEEN_MAX_S = 5.0
# {"kind":"elastic-free","worker":1,"generation":2}
FREE = re.compile(r'"kind":"elastic-free","worker":(\d+),"generation":(\d+)')


class Workers:
    """Three workers and their board."""

    def __init__(self, folder: Path, lost: str) -> None:
        self._board, self._logs = folder / "board", [folder / f"{number}.log" for number in range(3)]
        self.show(0, is_changing=True)
        self.processes = []
        for number, log in enumerate(self._logs):
            board = {"GANGLINE_ELASTIC_BOARD": str(self._board), "GANGLINE_ELASTIC_WORKER": str(number)}
            with log.open("wb") as file:
                self.processes.append(
                    subprocess.Popen(
                        [python(), SCRIPT, "40", "0.05", lost],
                        env=environment(os.environ.get("GANGLINE_HOROVOD_OVERLAY", ""), **board),
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )

    def show(self, generation: int, *numbers: int, is_changing: bool = False, has_lost: bool = False) -> None:
        members = [
            {"number": one, "host": "a", "local_rank": rank, "local_size": len(numbers), "node_rank": 0}
            for rank, one in enumerate(numbers)
        ]
        said: dict[str, Any] = {"generation": generation, "members": members}
        said |= {"is_changing": is_changing, "has_lost": has_lost}
        draft = self._board.with_suffix(".draft")
        draft.write_text(json.dumps(said | {"master": "127.0.0.1", "port": free_port()}))
        draft.replace(self._board)

    def text(self, number: int) -> str:
        return self._logs[number].read_text(errors="replace")

    def is_free(self, number: int, generation: int) -> bool:
        return (str(number), str(generation)) in FREE.findall(self.text(number))

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, "\n".join((f"waited for {what}:", *map(self.text, range(3))))
            time.sleep(0.02)


@pytest.fixture(
    params=[
        ("store", 0),
        ("store", 1),
        ("facts", 1),
        ("group", 0),
        ("link", 0),
        ("link", 1),
        ("training", 1),
    ],
    ids=str,
)
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Workers, int]]:
    phase, number = request.param
    workers = Workers(tmp_path, f"{phase}:{number}:1:SIGSTOP")
    try:
        yield workers, number
    finally:
        for process in workers.processes:
            process.kill()
            process.wait()


def test_a_rank_that_is_lost_without_a_word_is_seen_and_the_other_meets_a_new_one(
    lost: tuple[Workers, int],
) -> None:
    workers, number = lost
    other = 1 - number
    workers.wait_for(lambda: all(workers.is_free(one, 0) for one in range(3)), "all workers")
    workers.show(1, 0, 1)
    workers.wait_for(
        lambda: lines_of(workers.text(number))[-1:] == [{"event": "lost", "worker": number}], "a loss"
    )
    workers.show(1, 0, 1, is_changing=True, has_lost=True)
    lost_at = time.monotonic()
    workers.wait_for(lambda: workers.is_free(other, 1), "the other one")
    assert time.monotonic() - lost_at < SEEN_MAX_S

    workers.show(2, other, 2)
    assert workers.processes[other].wait(LIMIT_S) == 0, workers.text(other)
    assert [one["size"] for one in lines_of(workers.text(other)) if one["event"] == "ends"] == [2]
