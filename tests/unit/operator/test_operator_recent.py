"""What the operator remembers of its own writes until its caches have caught up; its duration figures."""

from typing import Any

import pytest

from gangline.api.core import ObjectMeta, Pod
from gangline.kube.durations import Durations, samples_max
from gangline.operator import recent as module
from gangline.operator.recent import Recent, is_newer


def pod(version: str, name: str = "a") -> Pod:
    return Pod(metadata=ObjectMeta(name=name, resource_version=version))


def versions(recent: Recent, kind: str = "pods", *, cache: str = "") -> list[str]:
    return [value.metadata.resource_version for value in recent.ahead_of(cache, "job", kind)]


def test_a_write_is_remembered_until_the_cache_has_it() -> None:
    recent = Recent()
    recent.remember("job", "pods", pod("5"))

    recent.caught_up("job", "pods", "a", "4")
    assert versions(recent) == ["5"]

    recent.caught_up("job", "pods", "a", "5")
    assert versions(recent) == []
    assert not recent.has_any("job")


def test_a_deletion_is_always_news() -> None:
    recent = Recent()
    recent.remember("job", "pods", pod("5"))

    recent.caught_up("job", "pods", "a", "")

    assert not recent.has_any("job")


def test_kinds_names_and_owners_are_told_apart() -> None:
    recent = Recent()
    recent.remember("job", "pods", pod("1"))
    recent.remember("job", "jobs", pod("2"))
    recent.remember("other", "pods", pod("3"))

    recent.caught_up("job", "pods", "b", "9")
    recent.forget("other")

    assert (versions(recent), versions(recent, "jobs")) == (["1"], ["2"])
    assert not recent.has_any("other")


def test_what_the_cache_never_hears_of_counts_until_it_is_further() -> None:
    recent = Recent()
    recent.remember("job", "pods", pod("5"))

    assert versions(recent, cache="4") == ["5"]
    assert versions(recent, cache="") == ["5"]  # it must list again
    assert versions(recent, cache="5") == []
    assert not recent.has_any("job")


def test_what_a_server_has_lost_is_dropped_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[float] = [100.0, 100.0 + module.recent_max_s + 1]
    clock: Any = type("Clock", (), {"monotonic": staticmethod(lambda: moments.pop(0))})
    monkeypatch.setattr(module, "time", clock)
    recent = Recent()
    recent.remember("job", "pods", pod("5"))

    assert versions(recent, cache="3") == []


@pytest.mark.parametrize(
    ("version", "than", "want"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("x", "9", False), ("", "", False)],
)
def test_versions_are_compared_as_numbers(version: str, than: str, want: bool) -> None:
    assert is_newer(version, than) is want


def test_percentiles_of_durations() -> None:
    durations = Durations()
    for number in range(1, 101):
        durations.add(number / 1000)

    figures = durations.statistics()

    assert (figures.count, figures.p50_ms, figures.p99_ms) == (100, 51.0, 100.0)
    assert figures.total_s == pytest.approx(5.05)


def test_the_sample_is_bounded_and_the_count_is_not() -> None:
    durations = Durations()
    for _ in range(samples_max + 10):
        durations.add(1.0)

    assert durations.statistics().count == samples_max + 10
    assert len(durations._last) == samples_max


def test_no_durations_no_figures() -> None:
    assert Durations().statistics().p99_ms == 0


def test_what_was_deleted_is_gone_until_the_cache_knows_and_its_successor_is_not() -> None:
    recent = Recent()
    recent.remember_gone("job", "services", "a", "uid-1")

    recent.caught_up("job", "services", "a", "7")  # an older change, on its way still
    assert recent.is_gone("job", "services", "a", "uid-1")
    assert not recent.is_gone("job", "services", "a", "uid-2")
    assert not recent.is_gone("other", "services", "a", "uid-1")

    recent.caught_up("job", "services", "a", "")
    assert not recent.is_gone("job", "services", "a", "uid-1")


def test_what_was_written_and_deleted_at_once_is_not_kept() -> None:
    recent = Recent()
    recent.remember("job", "pods", pod("5"))
    recent.remember_gone("job", "pods", "a", "")

    assert versions(recent) == []
    assert not recent.has_any("job")
