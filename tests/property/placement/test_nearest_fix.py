"""The nearest fix names jobs of which each must end, beside trying every set of them."""

from drawn_scenes import Draws, drawn, many
from gang_scenes import NOW, dgx, group, held, members
from hypothesis import given

from gangline.placement.cycle import schedule
from gangline.placement.explanation import explain
from gangline.placement.policy import Policy
from gangline.placement.snapshot import PodView, Snapshot

NODES = ("a", "b", "c")


def running(draws: Draws) -> list[PodView]:
    """Two to six jobs that hold one half or all of a node each, some of them with a limit."""
    free = [(node, half) for node in NODES for half in (0, 4)]
    found = []
    for place, (node, first) in enumerate(draws.some(free, 2 + draws.below(5))):
        limit = {"limit_s": 3600 * (1 + draws.below(5))} if draws.rarely(2) else {}
        since = {"started": "2026-01-01T11:30:00Z"}
        found.append(
            held(f"j{place}", node, *range(first, first + 4), job=f"team/j{place}", **limit, **since)
        )
    return found


@many
@given(drawn(lambda draws: draws))
def test_every_job_that_is_named_must_end_and_together_they_suffice(draws: Draws) -> None:
    nodes = [dgx(name, rack=str(index // 2)) for index, name in enumerate(NODES)]
    bound = running(draws)
    count, level = 1 + draws.below(3), "rack" if draws.rarely(3) else ""
    size = draws.one_of([4, 8])
    wanted, policy = group("g", count, required_level=level), Policy(levels=("rack",), whole_for_s=0)
    waiting, groups = members("g", count, size), {"team/g": wanted}

    def starts(ended: set[str]) -> bool:
        left = tuple(pod for pod in bound if pod.key not in ended)
        return bool(
            schedule(
                Snapshot(nodes=tuple(nodes), pods=left), waiting, now=NOW, policy=policy, groups=groups
            ).bindings
        )

    snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(bound))
    found = explain(snapshot, waiting, "team/g", now=NOW, policy=policy, groups=groups)
    assert found is not None
    named = next((set(fix.gangs) for fix in found.fixes if fix.kind == "ends"), None)
    if found.reason == "Fits" or named is None:
        assert found.reason == "Fits" or not starts({pod.key for pod in bound})
        return
    assert starts(named)
    assert not any(starts(named - {one}) for one in named)
    if any(starts({pod.key}) for pod in bound):
        assert len(named) == 1
