"""Which pods of a gang are linked: those that came last, each with a bounded number, ended ones with none."""

from __future__ import annotations

import pytest

from gangline.cluster.node.network.direct_links import LINKS_MAX, DirectLinks


@pytest.fixture
def made(monkeypatch):
    """The pairs of addresses that were to be linked, in order."""
    pairs = []
    monkeypatch.setattr(
        DirectLinks,
        "_connect",
        lambda _, end, others: pairs.extend((end.address, one.address) for one in others),
    )
    return pairs


@pytest.fixture
def join(tmp_path, made):
    """Let a pod join group ``train``; returns to which addresses it was linked."""
    links, namespace = DirectLinks(1500), tmp_path / "net"
    namespace.touch()

    async def join(pod, known_only=False):
        made.clear()
        if known_only:
            links.adopt(pod, "train", pod, str(namespace))
        elif (future := links.join(pod, "train", pod, str(namespace))) is not None:
            await future
        return [other for _, other in made]

    join.leave = links.leave
    yield join
    links.close()


async def test_a_pod_is_linked_with_those_that_came_last(join):
    came = [await join(f"pod-{index}") for index in range(LINKS_MAX + 2)]

    assert came[:3] == [[], ["pod-0"], ["pod-1", "pod-0"]]
    # The first eight have all the links that they may have.
    assert came[-1] == []


async def test_a_pod_that_starts_again_and_again_is_linked_each_time(join):
    await join("rank-0")

    for attempt in range(3 * LINKS_MAX):
        assert await join(f"rank-1-{attempt}") == ["rank-0"]
        join.leave(f"rank-1-{attempt}")


async def test_a_pod_whose_processes_were_replaced_is_linked_anew(join):
    await join("rank-0")
    assert await join("rank-1") == ["rank-0"]

    for _ in range(3 * LINKS_MAX):
        assert await join("rank-1") == []  # it is known: nothing is to be done
        join.leave("rank-1")
        assert await join("rank-1") == ["rank-0"]


async def test_pods_that_were_found_have_the_links_that_they_had(join):
    for index in range(LINKS_MAX + 1):
        await join(f"pod-{index}", known_only=True)

    assert await join("late") == []
    join.leave("late")
    join.leave("pod-3")
    # Each of the seven that are left has one free again.
    assert await join("later") == [f"pod-{index}" for index in (7, 6, 5, 4, 2, 1, 0)]
