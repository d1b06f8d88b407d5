"""What of jobs is taken away, so that the next operator goes on with them."""

from __future__ import annotations

from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.resources import JOBS, PODS, SECRETS, Resource
from gangline.installation.handover import find_waiting, hand_over

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


async def test_key_pairs_stay_alone_and_what_waits_goes() -> None:
    client, said = FakeClient(), list[str]()
    pair = {"ssh-privatekey": "eA==", "ssh-publickey": "eQ=="}

    async def make(resource: Resource, name: str, obj: dict[str, Any]) -> None:
        metadata = {"ownerReferences": [MPIJOB], **obj["metadata"], "name": name, "namespace": "default"}
        await client.create(resource, {**obj, "metadata": metadata})

    ours = {
        "metadata": {},
        "type": "kubernetes.io/ssh-auth",
        "data": {**pair, "ssh-config": "eg==", "agent-certificate": "eg=="},
    }
    await make(SECRETS, "ours", ours)
    await make(SECRETS, "theirs", {**ours, "data": pair})
    await make(SECRETS, "nobodys", {**ours, "metadata": {"ownerReferences": []}})
    await make(PODS, "waits", pod("Pending", MPIJOB, OURS))
    await make(PODS, "runs", pod("Running", MPIJOB, OURS))
    await make(JOBS, "launcher", launcher(OURS))

    await hand_over(client, None, said.append)

    secrets = {one["metadata"]["name"]: one["data"] for one in (await client.list(SECRETS)).items}
    assert secrets == {"ours": pair, "theirs": pair, "nobodys": ours["data"]}
    assert [one["metadata"]["name"] for one in (await client.list(PODS)).items] == ["runs"]
    assert (await client.list(JOBS)).items == []
    assert said == ["launchers that had not begun, for the next operator to make: 1"]
