"""What of jobs is left to the next operator to make again."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.installation.handover import find_waiting

OURS = {"schedulerName": "gangline-scheduler", "volumes": []}
OUR_KEYS = [{"name": "ssh-auth", "secret": {"items": [{"key": "ssh-config", "path": "config"}]}}]
THEIRS = {
    "schedulerName": "default-scheduler",
    "volumes": [{"name": "ssh-auth", "secret": {"items": [{"key": "ssh-publickey", "path": "id_rsa.pub"}]}}],
}
MPIJOB = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "uid": "job", "controller": True}
LAUNCHER = {"apiVersion": "batch/v1", "kind": "Job", "uid": "launcher", "controller": True}


def pod(phase: str, owner: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [owner]}, "spec": spec, "status": {"phase": phase}}


def launcher(spec: dict[str, Any], *conditions: str) -> dict[str, Any]:
    told = [{"type": type_, "status": "True"} for type_ in conditions]
    meta = {"uid": "launcher", "ownerReferences": [MPIJOB]}
    return {"metadata": meta, "spec": {"template": {"spec": spec}}, "status": {"conditions": told}}


@pytest.mark.parametrize(
    ("spec", "goes"), [(OURS, True), ({"volumes": OUR_KEYS}, True), (THEIRS, False), ({}, False)]
)
def test_a_waiting_worker_goes_if_it_asks_for_what_only_gangline_has(
    spec: dict[str, Any], goes: bool
) -> None:
    one = pod("Pending", MPIJOB, spec)

    assert find_waiting([one], []).workers == ([one] if goes else [])


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown"])
def test_a_worker_that_has_run_stays(phase: str) -> None:
    assert find_waiting([pod(phase, MPIJOB, OURS)], []).workers == []


@pytest.mark.parametrize(
    ("phases", "goes"),
    [
        ([], True),  # suspended, or its pod is not made yet
        (["Pending"], True),
        (["Failed", "Failed"], True),  # between two tries: the next pod would wait for ever
        (["Failed", "Running"], False),
        (["Succeeded"], False),
        (["Unknown"], False),  # its node is away
    ],
)
def test_a_launcher_goes_unless_a_pod_of_it_runs_or_has_done_its_work(phases: list[str], goes: bool) -> None:
    one = launcher(OURS)

    found = find_waiting([pod(phase, LAUNCHER, OURS) for phase in phases], [one])

    assert found.launchers == ([one] if goes else [])
    assert found.workers == []


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_launcher_that_has_ended_stays(condition: str) -> None:
    assert find_waiting([], [launcher(OURS, condition)]).launchers == []


def test_what_belongs_to_no_mpijob_stays() -> None:
    alone = {"metadata": {}, "spec": OURS, "status": {"phase": "Pending"}}
    job = {"metadata": {"uid": "else"}, "spec": {"template": {"spec": OURS}}, "status": {}}

    found = find_waiting([alone, pod("Pending", LAUNCHER, OURS)], [job])

    assert (found.workers, found.launchers) == ([], [])
