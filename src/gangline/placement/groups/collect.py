"""The gangs that waiting pods form: of one group, or of the groups of a CompositePodGroup. Pure.

A group of groups starts whole once: as many of its groups as must, each with as many pods as must. From then
on its groups are gangs of their own, that are completed where the others are if they must lie together.
Source: ``scheduling.k8s.io/v1alpha3`` (API types v0.37.1), and kube-scheduler of that release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gangline.placement.gangs import DEPTH_MAX, Gang, Group
from gangline.placement.snapshot import PodView

_DIGITS = re.compile(r"(\d+)")


def collect_gangs(
    pods: Iterable[PodView], groups: Mapping[str, Group], placed: Callable[[str], int]
) -> list[Gang]:
    """Return the gangs that waiting pods form, in no particular order.

    Args:
        pods: without a node; those with scheduling gates count for nothing.
        groups: what is said about gangs, by key.
        placed: returns how many pods of a gang hold room already.
    """
    members: dict[str, list[PodView]] = {}
    gangs = []
    for pod in pods:
        if pod.gated:
            continue
        if pod.gang:
            members.setdefault(pod.gang, []).append(pod)
        else:
            gangs.append(Gang(pod.key, [pod]))
    for key, found in members.items():
        group = groups.get(key)
        if group is None and (size := max(pod.gang_size for pod in found)):
            group = Group(key=key, min_member=size)
        level = next((pod.required_level for pod in found if pod.required_level), "")
        if group is not None and level and not group.required_level:
            group = msgspec.structs.replace(group, required_level=level)
        found.sort(key=_rank_order)
        refusal = ("Refused", group.refusal) if group is not None and group.refusal else None
        is_known = group is not None
        gangs.append(Gang(key, found, group, placed=placed(key), is_known=is_known, refusal=refusal))
    if any(gang.group.parent for gang in gangs):
        return list(_Tree(gangs, groups, placed).composed())
    return gangs


def _rank_order(pod: PodView) -> tuple[str, list[str | int]]:
    """Order the pods of a gang as their ranks: ``worker-2`` before ``worker-10``."""
    parts: list[str | int] = list(_DIGITS.split(pod.key))
    parts[1::2] = [int(part) for part in parts[1::2]]
    return pod.replica_type, parts


def leaves(key: str, groups: Mapping[str, Group]) -> tuple[str, ...]:
    """Return the groups of pods that a group consists of: itself, or those below a group of groups.

    Cost: one step for each group of the cluster, where it is a group of groups.
    """
    group = groups.get(key)
    if group is None or group.min_groups is None:
        return (key,)
    return _Tree((), groups, lambda key: 0).leaves(key)


class _Start(NamedTuple):
    """What has to start of a group: nothing where ``parts`` is empty, and why not where it is None."""

    parts: tuple[Gang, ...] | None
    lack: str = ""


class _Tree:
    """Groups below groups.

    Args:
        gangs: that wait.
        groups: what is said about all.
        placed: returns how many pods of a group hold room already.
    """

    def __init__(
        self, gangs: Iterable[Gang], groups: Mapping[str, Group], placed: Callable[[str], int]
    ) -> None:
        self._groups, self._placed = groups, placed
        self._gangs = {gang.key: gang for gang in gangs}
        self._children: dict[str, list[str]] = {}
        for key, group in groups.items():
            if group.parent:
                self._children.setdefault(group.parent, []).append(key)
        for keys in self._children.values():
            keys.sort()

    def leaves(self, key: str, depth: int = 0) -> tuple[str, ...]:
        """Return the groups of pods below a group of groups."""
        group = self._groups.get(key)
        if group is None or group.min_groups is None:
            return (key,)
        below = self._children.get(key, ()) if depth < DEPTH_MAX else ()
        return tuple(leaf for child in below for leaf in self.leaves(child, depth + 1))

    def composed(self) -> Iterator[Gang]:
        """Yield the gangs, those that start together as one."""
        roots: dict[str, None] = {}
        for gang in self._gangs.values():
            root, refusal = self._root(gang.key)
            if refusal:
                yield gang.but(refusal=refusal)
            else:
                roots[root] = None
        for root in roots:
            yield from self._from(root)

    def _root(self, key: str) -> tuple[str, tuple[str, str] | None]:
        """Return the group that none is above, and why there is none."""
        above = 0
        while parent := self._groups[key].parent if key in self._groups else "":
            group, above = self._groups.get(parent), above + 1
            if group is None:
                return key, ("NoGroup", f"CompositePodGroup {_shown(parent)} does not exist")
            if above > DEPTH_MAX:
                text = f"CompositePodGroup {_shown(parent)} lies deeper than {DEPTH_MAX} groups, or in itself"
                return key, ("Refused", text)
            key = parent
        return key, None

    def _from(self, key: str) -> Iterator[Gang]:
        """Yield the gangs of a group and of those below it."""
        group = self._groups.get(key)
        if group is None or group.min_groups is None:
            if gang := self._gangs.get(key):
                yield gang.but(ties=self._ties(group.parent)) if group is not None else gang
            return
        start = self._start(key)
        if not group.min_groups or start.parts == ():
            for child in self._children.get(key, ()):
                yield from self._from(child)
            return
        waiting = [self._gangs[leaf] for leaf in self.leaves(key) if leaf in self._gangs]
        if start.parts is None or group.refusal:
            refusal = ("Refused", group.refusal) if group.refusal else ("Incomplete", start.lack)
            yield self._gang(key, waiting).but(refusal=refusal)
            return
        chosen = {part for parts in start.parts for part in parts.keys}
        yield self._gang(key, start.parts)
        for gang in waiting:
            if gang.key not in chosen:
                yield gang.but(refusal=("Behind", f"starts once {_shown(key)} has, of which it is one"))

    def _start(self, key: str) -> _Start:
        """Return what of a group must start together now."""
        group = self._groups[key]
        if group.min_groups is None:
            return self._start_of_pods(key, group)
        found = [self._start(child) for child in self._children.get(key, ())]
        least = max(group.min_groups, 1)
        ready = [start.parts for start in found if start.parts is not None]
        if len(ready) < least:
            lack = next((start.lack for start in found if start.parts is None), "")
            there = f"{_shown(key)} has {len(ready)} of the {least} groups that must start together"
            return _Start(None, f"{there}; {lack}" if lack else there)
        starting = sorted(ready, key=len)[:least]  # those that have started need nothing
        parts = tuple(part for parts in starting for part in parts)
        if parts and group.required_level and group.parent:
            return _Start((self._gang(key, parts),))
        return _Start(parts)

    def _start_of_pods(self, key: str, group: Group) -> _Start:
        least, placed = max(group.min_member, 1), self._placed(key)
        gang = self._gangs.get(key)
        if placed >= least:
            return _Start(())
        there = placed + (len(gang.pods) if gang else 0)
        if gang is None or there < least or gang.refusal:
            said = gang.refusal[1] if gang is not None and gang.refusal else ""
            return _Start(None, said or f"{_shown(key)} has {there} of the {least} pods that it needs")
        whole = msgspec.structs.replace(group, min_member=least)
        return _Start((gang.but(group=whole, ties=self._ties(group.parent)),))

    def _gang(self, key: str, parts: Iterable[Gang]) -> Gang:
        """Return groups as one gang, with the pods of all of them."""
        found = tuple(parts)
        group = msgspec.structs.replace(
            self._groups[key], min_member=sum(part.group.min_member for part in found)
        )
        pods = [pod for part in found for pod in part.pods]
        placed = sum(part.placed for part in found)
        return Gang(key, pods, group, placed=placed, parts=found, ties=self._ties(key))

    def _ties(self, key: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the labels that a group of groups and those above it want equal, and for which gangs."""
        group, found = self._groups.get(key), []
        while group is not None:
            if group.required_level:
                found.append((group.required_level, self.leaves(group.key)))
            group = self._groups.get(group.parent)
        return tuple(found)


def _shown(key: str) -> str:
    return key.rpartition("/")[2]
