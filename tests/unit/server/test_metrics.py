"""What processes use of processors and memory, and which container that counts to."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.pod_usage import ProcessUsage, Usage, read_processes, usage_of
from gangline.cluster.server.verbs.metrics import Metrics

STAT = "(py (x) y) S 7 1 1 0 -1 0 1 2 3 4 {user} {system} {waited_user} {waited_system} 20 0 1 0 99 8192 25 0"


def test_processes_are_read_with_the_children_that_they_have_waited_for(tmp_path: Path):
    tick = os.sysconf("SC_CLK_TCK")
    (tmp_path / "12").mkdir()
    times = {"user": tick, "system": 2 * tick, "waited_user": 3 * tick, "waited_system": 4 * tick}
    (tmp_path / "12" / "stat").write_text(f"12 {STAT.format(**times)}\n")
    (tmp_path / "13").mkdir()  # has ended meanwhile
    (tmp_path / "meminfo").touch()

    pages = 25 * os.sysconf("SC_PAGE_SIZE")
    assert read_processes(tmp_path) == {12: ProcessUsage(7, Usage(10.0, pages))}


def test_this_process_is_found():
    assert read_processes()[os.getpid()].usage.memory_bytes > 1 << 20


def test_a_container_has_all_below_its_first_process():
    """1 is the machine's first process, 10 a shim, 11 and 12 its containers, 15 an ``exec``, 20 another's."""
    parents = {1: 0, 10: 1, 11: 10, 12: 10, 13: 12, 14: 13, 15: 10, 20: 1}
    processes = {pid: ProcessUsage(parent, Usage(1.0, pid)) for pid, parent in parents.items()}
    main, side = ("uid", "main", 11), ("uid", "side", 12)

    found = usage_of(processes, {11: main, 12: side}, {10: main})

    assert found == {main: Usage(2.0, 11 + 15), side: Usage(3.0, 12 + 13 + 14)}


def test_a_container_whose_processes_have_just_ended_uses_nothing():
    container = ("uid", "main", 11)
    assert usage_of({}, {11: container}, {}) == {container: Usage()}


def test_what_is_remembered_of_a_container_goes_with_its_pod(tmp_path: Path):
    paths = ClusterPaths("default", tmp_path)
    folder = paths.pods / "uid"
    folder.mkdir(parents=True)
    main = {"name": "main", "state": "running", "pid": os.getpid(), "started_at": 0.0}
    (folder / "state.json").write_text(json.dumps({"pid": 1, "containers": {"main": main}}))
    metrics = Metrics(cast(Any, SimpleNamespace(paths=paths)))

    assert set(metrics._measure(["uid"])) == {"uid"}
    assert len(metrics._samples) == 1
    shutil.rmtree(folder)
    assert metrics._measure([]) == {}
    assert not metrics._samples
