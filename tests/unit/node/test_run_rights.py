"""Pods may clear this machine's page caches only where the cluster was told so."""

from __future__ import annotations

from pathlib import Path

from gangline.bench import netapp_run
from gangline.cluster.node import run_rights
from gangline.cluster.node.run_rights import right_variables, set_drop_caches, writable_in_proc
from gangline.cluster.paths import ClusterPaths


def test_it_is_forbidden_until_allowed_and_can_be_forbidden_again(tmp_path: Path) -> None:
    paths = ClusterPaths(name="default", state=tmp_path)

    assert writable_in_proc(right_variables(paths)) == ()
    set_drop_caches(paths, True)
    assert writable_in_proc(right_variables(paths)) == ("/proc/sys/vm/drop_caches",)
    set_drop_caches(paths, False)
    set_drop_caches(paths, False)
    assert right_variables(paths) == {}


def test_the_program_reads_the_variable_that_the_agent_sets() -> None:
    assert run_rights.ALLOW_VARIABLE == netapp_run.ALLOW_VARIABLE
