"""How daemons are started again: pauses, what is told once, what is counted."""

from __future__ import annotations

from gangline.cluster.daemon.restarts import (
    RestartDelay,
    forget_restarts,
    note_restart,
    read_restarts,
    take_notices,
)
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import ProcessLock, read_lock


def test_pauses_double_up_to_a_bound_and_start_anew_after_a_long_life():
    delay = RestartDelay()

    assert [delay.after(0.1) for _ in range(10)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert delay.after(11.0) == 0.2


def test_restarts_are_counted_and_told_once(tmp_path):
    paths = ClusterPaths("test", tmp_path)
    note_restart(paths, "server", 7, "was killed")
    note_restart(paths, "server", 8, "was killed")
    note_restart(paths, "agent", 9, "was killed")

    assert take_notices(paths) == [
        ("server", 7, "was killed"),
        ("server", 8, "was killed"),
        ("agent", 9, "was killed"),
    ]
    assert take_notices(paths) == []
    assert (read_restarts(paths, "server").count, read_restarts(paths, "agent").count) == (2, 1)
    assert read_restarts(paths, "server").why == "process 8 was killed"

    forget_restarts(paths)

    assert read_restarts(paths, "server").count == 0


def test_notices_are_bounded(tmp_path):
    paths = ClusterPaths("test", tmp_path)
    for pid in range(1000):
        note_restart(paths, "server", pid, "was killed")

    assert len(take_notices(paths)) < 300
    assert read_restarts(paths, "server").count == 1000


def test_a_lock_that_was_abandoned_is_as_that_of_a_killed_process(tmp_path):
    lock = ProcessLock(tmp_path / "x.lock")
    assert lock.acquire()

    with lock:
        lock.abandon()

    assert read_lock(tmp_path / "x.lock").state == "killed"
