"""Claims that several pods of a gang share: allocated with the first, used where its devices allow. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gangline.placement.capacity import Spot
from gangline.placement.claims.results import nodes_of
from gangline.placement.gangs import Gang
from gangline.placement.snapshot import PodView


def shared_claims(gang: Gang) -> list[str]:
    """Return the claims, not allocated yet, that several pods of a gang name."""
    counts = Counter(name for pod in gang.pods for name, _ in pod.demands)
    return [name for name, count in counts.items() if count > 1]


def only_claim(pod: PodView, claim: str) -> PodView:
    """Return a pod that asks for nothing but what one of its claims does."""
    demands = tuple(entry for entry in pod.demands if entry[0] == claim)
    return msgspec.structs.replace(pod, request={}, demands=demands, shape=b"")


def without_claim(gang: Gang, claim: str, lead: Spot) -> Gang:
    """Return a gang one of whose claims has been given devices: its pods go where these can be used."""
    terms = tuple(nodes_of(lead.given[0]))
    more = msgspec.json.encode(terms)

    def change(pod: PodView) -> PodView:
        if claim not in dict(pod.demands):
            return pod
        demands = tuple(entry for entry in pod.demands if entry[0] != claim)
        volume_terms = (*pod.volume_terms, terms) if terms else pod.volume_terms
        shape = pod.shape + more if pod.shape else b""
        return msgspec.structs.replace(pod, demands=demands, volume_terms=volume_terms, shape=shape)

    def changed(one: Gang) -> Gang:
        parts: Sequence[Any] = tuple(map(changed, one.parts))
        return one.but(pods=tuple(map(change, one.pods)), parts=parts)

    return changed(gang)


def with_claim(gang: Gang, claim: str, lead: Spot, spots: Sequence[Spot]) -> list[Spot]:
    """Return spots of the pods as they are, the first that names the claim with its devices."""
    pods = {pod.uid: pod for pod in gang.pods}
    found = []
    for spot in spots:
        pod = pods[spot.pod.uid]
        given = iter(spot.given)
        own = tuple(() if name == claim else next(given) for name, _ in pod.demands)
        if pod.uid == lead.pod.uid:
            own = tuple(
                lead.given[0] if name == claim else some
                for (name, _), some in zip(pod.demands, own, strict=True)
            )
        found.append(replace(spot, pod=pod, given=own))
    return found
