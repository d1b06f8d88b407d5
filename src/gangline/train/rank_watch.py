"""Watches over the ranks on this machine from outside of them, whatever they run: says who hangs.

`gangline.train.rank_processes` looks and asks, `gangline.train.waiting` judges. Started by its path it is a
process of its own beside a launcher: it writes to standard error and ends with its standard input.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.train.rank_processes import Rank, RankReader, find_ranks
from gangline.train.waiting import LOOK_PERIOD_S, Said, World

FIND_PERIOD_S = 3 * LOOK_PERIOD_S
"""New processes are looked for so often; those that are known are looked at every LOOK_PERIOD_S."""


class RankWatch:
    """Ranks of programs that carry a variable in their environment.

    Args:
        variable: tells programs apart.
        value: the only program that counts, ``""`` for any.
        program_of: the program of a value, where several values are one; ``""`` for one that is not watched.
        place_of: where the ranks of a value run, for people.
    """

    def __init__(
        self,
        variable: str,
        value: str = "",
        *,
        program_of: Callable[[str], str] = lambda value: value,
        place_of: Callable[[str], str] = lambda value: "",
    ) -> None:
        self._variable, self._value = variable, value
        self._program_of, self._place_of = program_of, place_of
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
            key = (self._program_of(reader.rank.program), reader.rank.size)
            members.setdefault(key, []).append(reader)
        said: list[tuple[Rank, Said]] = []
        for key, readers in members.items():
            if not readers:
                del self._worlds[key]
            else:
                said += self._look_at(self._worlds.setdefault(key, World(key[1])), readers, now_s)
        return said

    def _look_at(self, world: World, readers: list[RankReader], now_s: float) -> list[tuple[Rank, Said]]:
        looks = {reader.rank.rank: look for reader in readers if (look := reader.look()) is not None}
        world.take(list(looks.values()), now_s)
        by_rank = {reader.rank.rank: reader for reader in readers}
        for rank in world.to_ask(now_s):
            by_rank[rank].ask()
        return [(by_rank[said.ranks[0]].rank, said) for said in world.news()]

    def _find(self) -> None:
        """Find the ranks; a reader of a rank is kept as long as its process is the same."""
        known = {(reader.rank.program, reader.rank.rank, reader.rank.size): reader for reader in self._readers}
        self._readers = []
        for rank in find_ranks(self._variable, self._value):
            if not self._program_of(rank.program):
                continue
            reader = known.get((rank.program, rank.rank, rank.size))
            if reader is None or (reader.rank.pid, reader.rank.channel) != (rank.pid, rank.channel):
                reader = RankReader(rank, self._place_of(rank.program))
            reader.rank = rank
            self._readers.append(reader)


def main() -> None:
    """Entry: VARIABLE VALUE."""
    watch = RankWatch(*sys.argv[1:3])
    while not select.select([sys.stdin], [], [], LOOK_PERIOD_S)[0]:
        for _, said in watch.look(time.monotonic()):
            sys.stderr.write(f"gangline: {said.text}\n")
            sys.stderr.flush()


if __name__ == "__main__":
    main()
