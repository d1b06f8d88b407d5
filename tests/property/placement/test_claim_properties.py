"""Claims of devices: what the search finds is the first that the rules allow, and it finds nothing only if
nothing is allowed. Held beside all combinations there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from drawn_scenes import many
from hypothesis import given
from hypothesis import strategies as st

from gangline.placement.claims.allocate import GivenDevice, allocate
from gangline.placement.claims.demands import Choice, ClaimDemand, Constraint, Request
from gangline.placement.claims.devices import Device, Place, Pool

ATTRIBUTES = ("numa", "root")
KINDS = ("a", "b")
BAD = {"key": "bad", "effect": "NoSchedule"}
TOLERATING = ({"key": "bad", "operator": "Exists"},)

devices = st.builds(
    lambda kind, numa, root, is_bad, is_taken: (kind, numa, root, is_bad, is_taken),
    st.sampled_from(KINDS),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, 0, 1, 2]),
    st.integers(0, 5).map(lambda one: one == 0),
    st.integers(0, 4).map(lambda one: one == 0),
)
ways = st.tuples(
    st.sampled_from(["", "", *KINDS]),  # of which kind, or any
    st.sampled_from([1, 1, 2, 2, 3, 0]),
    st.integers(0, 5).map(lambda one: one == 0),  # for an administrator
    st.booleans(),  # tolerates what is bad
)
requests = st.lists(ways, min_size=1, max_size=2)
constraints = st.tuples(st.sampled_from(ATTRIBUTES), st.sampled_from([(), ("r0",), ("r1",)]), st.booleans())
claims = st.tuples(st.lists(requests, min_size=1, max_size=2), st.lists(constraints, max_size=2))


def pools_of(drawn: Sequence[tuple[str, int | None, int | None, bool, bool]], first: int) -> list[Pool]:
    made = []
    for number, (kind, numa, root, is_bad, _) in enumerate(drawn):
        said = {"kind": {"string": kind}}
        said |= {} if numa is None else {"numa": {"int": numa}}
        said |= {} if root is None else {"root": {"int": root}}
        body = {"name": f"d{number}", "attributes": said, "taints": [BAD] if is_bad else []}
        pool = "p" if number < first else "q"
        made.append(Device.read("x.example.com", pool, Place("n0"), body))
    return [
        Pool("x.example.com", "p", tuple(made[:first])),
        Pool("x.example.com", "q", tuple(made[first:])),
    ]


def demands_of(
    drawn: list[tuple[list[list[tuple[str, int, bool, bool]]], list[tuple[str, tuple[str, ...], bool]]]],
) -> list[ClaimDemand]:
    found = []
    for asked, rules in drawn:
        made = []
        for number, choices in enumerate(asked):
            made.append(
                Request(
                    f"r{number}",
                    tuple(
                        Choice(
                            name=f"r{number}/c{place}" if len(choices) > 1 else f"r{number}",
                            device_class="x",
                            selectors=(f'device.attributes["x.example.com"].kind == "{kind}"',)
                            if kind
                            else (),
                            count=count,
                            is_admin=is_admin,
                            tolerations=TOLERATING if is_tolerant else (),
                        )
                        for place, (kind, count, is_admin, is_tolerant) in enumerate(choices)
                    ),
                )
            )
        about = tuple(
            Constraint(f"x.example.com/{name}", frozenset(names), is_distinct)
            for name, names, is_distinct in rules
        )
        found.append(ClaimDemand(tuple(made), about))
    return found


def is_allowed(
    claims: Sequence[ClaimDemand], given: Sequence[Sequence[GivenDevice]], taken: set[Device]
) -> bool:
    """Return whether devices are what claims ask for: the rules of the API, one after another."""
    users: list[tuple[int, Device, bool]] = []
    for index, (claim, found) in enumerate(zip(claims, given, strict=True)):
        for one in found:
            device, choice = one.device, one.choice
            if device.taints and not choice.tolerations:
                return False
            earlier = [(user, is_admin) for user, other, is_admin in users if other is device]
            if choice.is_admin and any(user == index for user, _ in earlier):
                return False
            if not choice.is_admin and (earlier or device in taken):
                return False
            users.append((index, device, choice.is_admin))
        for rule in claim.constraints:
            about = [
                one.device.attributes.get(rule.attribute) for one in found if rule.is_about(one.choice.name)
            ]
            if None in about or len(set(about)) > (len(about) if rule.is_distinct else 1):
                return False
            if rule.is_distinct and len(set(about)) < len(about):
                return False
    return True


def answers(claims: Sequence[ClaimDemand], pools: Sequence[Pool]) -> Iterator[list[list[GivenDevice]]]:
    """Yield all ways to give claims as many matching devices as they ask for, in the order of preference."""
    everything = [device for pool in pools for device in pool.devices]
    wanted = [(index, request) for index, claim in enumerate(claims) for request in claim.requests]

    def go(place: int, given: list[list[GivenDevice]]) -> Iterator[list[list[GivenDevice]]]:
        if place == len(wanted):
            yield given
            return
        index, request = wanted[place]
        for choice in request.choices:
            matching = [device for device in everything if device.matches(choice.rules)]
            count = choice.count or len(matching)
            for some in combinations(matching, count) if count else ():
                more = [GivenDevice(choice, device) for device in some]
                yield from go(place + 1, [*given[:index], [*given[index], *more], *given[index + 1 :]])

    yield from go(0, [[] for _ in claims])


@many
@given(st.lists(devices, min_size=1, max_size=6), st.integers(0, 6), st.lists(claims, min_size=1, max_size=2))
def test_the_first_answer_of_all_is_found_and_none_is_missed(drawn, first, asked):
    pools, wanted = pools_of(drawn, min(first, len(drawn))), demands_of(asked)
    everything = [device for pool in pools for device in pool.devices]
    taken = {device for device, one in zip(everything, drawn, strict=True) if one[4]}

    found = allocate(wanted, pools, taken.__contains__)

    best = next((given for given in answers(wanted, pools) if is_allowed(wanted, given, taken)), None)
    assert (None if found is None else [list(some) for some in found]) == best


@many
@given(st.lists(devices, min_size=1, max_size=6), st.lists(claims, min_size=1, max_size=3))
def test_claims_of_several_pods_never_get_a_device_twice(drawn, asked):
    pools = pools_of(drawn, len(drawn))
    taken: set[Device] = set()
    for wanted in demands_of(asked):
        (found,) = allocate([wanted], pools, taken.__contains__) or [()]
        new = [one.device for one in found if not one.choice.is_admin]
        assert len(set(new)) == len(new)
        assert not taken & set(new)
        taken |= set(new)
