"""Watches over the ranks on this machine from outside of them, whatever they run: says who hangs.

`gangline.train.rank_processes` looks and asks, `gangline.train.waiting` judges. Started by its path it is a
process of its own beside a launcher or the node agent, and ends with its standard input.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.train.rank_processes import Rank, RankReader, find_ranks
from gangline.train.waiting import LOOK_PERIOD_S, Said, World

FIND_PERIOD_S = 3 * LOOK_PERIOD_S
"""New processes are looked for so often; those that are known are looked at every LOOK_PERIOD_S."""


class RankWatch:
    """The ranks on this machine, of one program or of all.

    Args:
        program: the only one, ``""`` for all.
    """

    def __init__(self, program: str = "") -> None:
        self._program = program
        self._readers: list[RankReader] = []
        self._worlds: dict[tuple[str, int], World] = {}
        self._found_at: float | None = None

    def look(self, now_s: float) -> list[tuple[Rank, Said]]:
        """Look at all ranks; return what is to be said, each with the first rank that it is about.

        Args:
            now_s: on a monotonic clock.
        """
        if self._found_at is None or now_s - self._found_at >= FIND_PERIOD_S - LOOK_PERIOD_S / 2:
            self._find()
            self._found_at = now_s
        members: dict[tuple[str, int], list[RankReader]] = {key: [] for key in self._worlds}
        for reader in self._readers:
            members.setdefault((reader.rank.program, reader.rank.size), []).append(reader)
        said: list[tuple[Rank, Said]] = []
        for key, readers in members.items():
            if not readers:
                del self._worlds[key]
            else:
                said += self._look_at(self._worlds.setdefault(key, World(key[1])), readers, now_s)
        return said

    def _look_at(self, world: World, readers: list[RankReader], now_s: float) -> list[tuple[Rank, Said]]:
        by_rank = {reader.rank.rank: reader for reader in readers}
        looks = [look for reader in by_rank.values() if (look := reader.look()) is not None]
        world.take(looks, now_s)
        for rank in world.to_ask(now_s):
            by_rank[rank].ask()
        return [(by_rank[said.ranks[0]].rank, said) for said in world.news()]

    def _find(self) -> None:
        """Find the ranks; the reader of a rank is kept as long as its process is the same."""
        known = {(one.rank.program, one.rank.pid, one.rank.channel): one for one in self._readers}
        self._readers = []
        for rank in find_ranks(self._program):
            reader = known.get((rank.program, rank.pid, rank.channel)) or RankReader(rank)
            reader.rank = rank
            self._readers.append(reader)


def watch_program(program: str) -> None:
    """Watch one program until standard input ends; say what is found on standard error."""
    watch = RankWatch(program)
    while not select.select([sys.stdin], [], [], LOOK_PERIOD_S)[0]:
        for _, said in watch.look(time.monotonic()):
            sys.stderr.write(f"gangline: {said.text}\n")
            sys.stderr.flush()


def watch_all() -> None:
    """Watch all programs while told to, until standard input ends.

    Standard input brings lines: ``on`` and ``off``. What is found goes to standard output, a JSON object a
    line: ``program``, ``place``, ``kind``, ``text``.
    """
    watch: RankWatch | None = None
    while True:
        if select.select([sys.stdin], [], [], None if watch is None else LOOK_PERIOD_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            watch = None if line == "off\n" else watch or RankWatch()
            continue
        assert watch is not None
        for rank, said in watch.look(time.monotonic()):
            found = {"program": rank.program, "place": rank.place, "kind": said.kind, "text": said.text}
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        watch_program(sys.argv[1])
    else:
        watch_all()
