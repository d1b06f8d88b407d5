"""Hosts with slots, and which rank goes where. Pure.

Source: `horovodrun -H`, its hostfiles, and Open MPI's hostfiles. Two things differ from Horovod's own reader:
blank lines, comments and further keys of a hostfile are passed over instead of ending the start, and a plan
stops at the number of ranks that was asked for instead of filling every slot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.errors import UserError

SLOTS_MAX = 4096
_ENTRY = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d+))?$")
_SLOTS_KEY = re.compile(r"^slots=(\d+)$")


@dataclass(frozen=True, slots=True)
class Host:
    """A host and how many ranks it takes."""

    name: str
    slots: int


@dataclass(frozen=True, slots=True)
class RankHost:
    """Where one rank runs.

    Attributes:
        rank: 0 to ``size - 1``.
        size: ranks of the job.
        host: name of its host.
        local_rank: place among the ranks of its host.
        local_size: ranks of its host.
        cross_rank: place of its host among the hosts that have this local rank.
        cross_size: number of those hosts.
        node_rank: place of its host among all that have ranks.
    """

    rank: int
    size: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    node_rank: int


def parse_hosts(text: str, *, need_slots: bool = False) -> list[Host]:
    """Return the hosts of ``a:4,b:4``; a host named twice has the slots of both.

    Args:
        text: entries divided by commas; ``a`` alone has one slot.
        need_slots: refuse entries without slots, as `horovodrun -H` does.

    Raises:
        UserError: an entry is malformed; the message has it.

    Example:
        >>> parse_hosts("a:4,b")
        [Host(name='a', slots=4), Host(name='b', slots=1)]
    """
    pairs: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.match(entry)
        if match is None or (need_slots and match.group(2) is None):
            raise UserError(
                f"`{entry}` of the host list `{_short(text)}` is not of the form `HOST:SLOTS`",
                hint="write for example -H node-1:4,node-2:4",
            )
        pairs.append((match.group(1).strip("[]"), _slots(match.group(2) or "1", entry)))
    if not pairs:
        raise UserError("the host list is empty", hint="write for example -H node-1:4,node-2:4")
    return _merged(pairs)


def parse_hostfile(text: str, name: str = "hostfile") -> list[Host]:
    """Return the hosts of a file with lines ``HOST slots=N`` or ``HOST:N``; without a number N is 1.

    Raises:
        UserError: a line is malformed, or there is none; the message has its number.
    """
    pairs: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].replace(" =", "=").replace("= ", "=").split()
        if not words:
            continue
        match = _ENTRY.match(words[0])
        if match is None:
            raise UserError(f"`{_short(words[0])}` is no host name", where=f"{name}:{number}")
        given = next((found.group(1) for word in words[1:] if (found := _SLOTS_KEY.match(word))), None)
        if given is None and any(word.startswith("slots=") for word in words[1:]):
            raise UserError(f"slots of host `{words[0]}` are no number", where=f"{name}:{number}")
        pairs.append((match.group(1).strip("[]"), _slots(given or match.group(2) or "1", words[0])))
    if not pairs:
        raise UserError(f"hostfile `{name}` names no host", hint="write lines like `node-1 slots=4`")
    return _merged(pairs)


def host_list(hosts: Sequence[Host]) -> str:
    """Return hosts as launchers take them: ``a:4,b:4``."""
    return ",".join(f"{host.name}:{host.slots}" for host in hosts)


def plan_ranks(hosts: Sequence[Host], count: int) -> list[RankHost]:
    """Return the place of every rank: host after host is filled up to its slots, until ``count`` is reached.

    Raises:
        UserError: there are fewer slots than ranks.
    """
    if count < 1:
        raise UserError(f"{count} ranks were asked for; at least 1 is needed")
    slots = sum(host.slots for host in hosts)
    if count > slots:
        raise UserError(
            f"{count} ranks were asked for, but the hosts have {slots} slots: {_short(host_list(hosts))}",
            hint="ask for fewer ranks, or write more slots behind the host names",
        )
    used: list[Host] = []
    left = count
    for host in hosts:
        if left and host.slots:
            used.append(Host(host.name, min(left, host.slots)))
            left -= used[-1].slots
    places: list[RankHost] = []
    for node, host in enumerate(used):
        for local in range(host.slots):
            alike = [index for index, other in enumerate(used) if other.slots > local]
            places.append(
                RankHost(
                    *(len(places), count, host.name, local, host.slots),
                    cross_rank=alike.index(node),
                    cross_size=len(alike),
                    node_rank=node,
                )
            )
    return places


def hosts_of(places: Sequence[RankHost]) -> list[Host]:
    """Return the hosts that have ranks, with as many slots as ranks."""
    return [Host(place.host, place.local_size) for place in places if place.local_rank == 0]


def _slots(text: str, entry: str) -> int:
    slots = int(text)
    if not 1 <= slots <= SLOTS_MAX:
        raise UserError(f"`{entry}` has {slots} slots; 1 to {SLOTS_MAX} are possible")
    return slots


def _merged(pairs: list[tuple[str, int]]) -> list[Host]:
    slots: dict[str, int] = {}
    for name, count in pairs:
        slots[name] = slots.get(name, 0) + count
    return [Host(name, count) for name, count in slots.items()]


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
