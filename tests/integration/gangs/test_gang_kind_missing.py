"""Gangs on a cluster that has no PodGroups: jobs say so and start once the kind is installed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gangline.api.crds import crds, gang_crds, mpijob_crd
from gangline.api.resources import CRDS, EVENTS, MPIJOBS, PODS, PYTORCHJOBS, VOLCANO_POD_GROUPS
from gangline.cli.app import run
from gangline.jobs.settings import Settings
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.definitions import ensure
from gangline.kube.errors import NotFound
from gangline.operator.children import JobKey
from gangline.operator.operator import Operator, not_ours_retry_s

WAIT_S = 60.0
VOLCANO_CRD = "podgroups.scheduling.volcano.sh"


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def client(api: Any, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of a server with MPIJobs and without PodGroups."""
    if not api.embedded and request.getfixturevalue("real_cluster").plane is None:
        pytest.skip("takes definitions away, which is not done on a cluster that was given")
    async with api.client() as one:
        for definition in crds():
            await apply(one, CRDS, definition)

        async def has_gone() -> bool:
            try:
                await one.delete(CRDS, VOLCANO_CRD)
            except NotFound:
                with contextlib.suppress(NotFound):
                    await one.list(VOLCANO_POD_GROUPS, api.namespace)
                    return False
                with contextlib.suppress(NotFound):
                    return (await one.list(MPIJOBS, api.namespace)).items == []
            return False

        await until(has_gone)
        yield one


async def install(api: Any, capsys: Any) -> str:
    """Run the command as a user would."""
    line = ["crds", "--install", "--gang-scheduling", "volcano", "--kubeconfig", str(api.kubeconfig)]
    assert await asyncio.to_thread(run, line) == 0
    return str(capsys.readouterr().out)


def job(namespace: str) -> dict[str, Any]:
    role = {"template": {"spec": {"containers": [{"name": "main", "image": "gangline/base"}]}}}
    return {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {"name": "pi", "namespace": namespace},
        "spec": {"mpiReplicaSpecs": {"Launcher": role, "Worker": {"replicas": 1, **role}}},
    }


async def test_a_job_says_that_the_kind_is_missing_and_starts_once_it_is_there(
    api: Any, client: Client, capsys: Any
) -> None:
    where = api.namespace
    operator = Operator(client, namespace=where, settings=Settings(gang_scheduling="volcano"))
    running = asyncio.create_task(operator.run())

    async def blocked() -> Any:
        status = (await client.get(MPIJOBS, "pi", where)).get("status", {})
        return [one for one in status.get("conditions", []) if one["type"] == "Blocked"]

    try:
        await client.create(MPIJOBS, job(where))

        (condition,) = await until(blocked)
        assert (condition["status"], condition["reason"]) == ("True", "PodGroupsNotServed")
        assert "gangline crds --install --gang-scheduling volcano" in condition["message"]
        assert operator.statistics().is_synced
        assert (await client.list(PODS, where)).items == []
        await operator.flush_events()
        told = [
            one["type"]
            for one in (await client.list(EVENTS, where)).items
            if one["reason"] == "PodGroupsNotServed"
        ]
        assert told == ["Warning"]

        assert f"{VOLCANO_CRD} created" in await install(api, capsys)

        async def worker() -> bool:
            return any(
                one["metadata"]["name"] == "pi-worker-0" for one in (await client.list(PODS, where)).items
            )

        await until(worker)
        assert [one["spec"]["minMember"] for one in (await client.list(VOLCANO_POD_GROUPS, where)).items] == [
            2
        ]
        assert not await blocked()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def of_others(crd: dict[str, Any]) -> dict[str, Any]:
    """A definition of the same name as upstream would install it: without our note, and saying less."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{**version, "schema": schema} for version in crd["spec"]["versions"]]
    return {
        **crd,
        "metadata": {"name": crd["metadata"]["name"]},
        "spec": {**crd["spec"], "versions": versions},
    }


async def test_a_kind_that_is_there_is_left_as_it_is(api: Any, client: Client, capsys: Any) -> None:
    (theirs,) = [crd for crd in gang_crds() if crd["metadata"]["name"] == VOLCANO_CRD]
    made = await client.create(CRDS, of_others(theirs))

    output = await install(api, capsys)

    assert f"{VOLCANO_CRD} left as it is, written by " in output
    assert "mpijobs.kubeflow.org unchanged" in output
    found = await client.get(CRDS, VOLCANO_CRD)
    assert found["metadata"].get("annotations") == made["metadata"].get("annotations")
    assert found["spec"]["versions"] == made["spec"]["versions"]


async def test_a_job_kind_of_others_is_replaced_only_when_asked_for(
    api: Any, client: Client, capsys: Any
) -> None:
    ours = mpijob_crd()
    metadata = (await client.get(CRDS, ours["metadata"]["name"]))["metadata"]
    theirs = of_others(ours) | {"metadata": {k: v for k, v in metadata.items() if k != "annotations"}}
    await client.update(CRDS, theirs)
    line = ["crds", "--install", "--kubeconfig", str(api.kubeconfig)]

    assert await asyncio.to_thread(run, line) != 0
    told = " ".join(capsys.readouterr().err.split())
    assert "customresourcedefinition/mpijobs.kubeflow.org is left as it is" in told
    assert "is not Gangline's, written by " in told
    assert "gangline crds --install --replace" in told

    assert await asyncio.to_thread(run, [*line, "--replace"]) == 0
    assert "mpijobs.kubeflow.org replaced" in capsys.readouterr().out
    assert await asyncio.to_thread(run, line) == 0
    assert "mpijobs.kubeflow.org unchanged" in capsys.readouterr().out


async def test_the_operator_says_that_its_definition_was_replaced(
    api: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.kube.definitions.CHECK_EVERY_S", 0.05)
    ours = mpijob_crd()
    name = ours["metadata"]["name"]
    operator = Operator(client, namespace=api.namespace)
    running = asyncio.create_task(operator.run())

    async def noted() -> bool:
        return bool(operator.notes)

    async def forgotten() -> bool:
        return not operator.notes

    try:
        await client.patch(CRDS, name, {"spec": {"versions": of_others(ours)["spec"]["versions"]}})
        await until(noted)
        assert operator.notes[0].startswith(f"definition {name} was changed, written by ")
        await operator.flush_events()
        events = (await client.list(EVENTS, "default")).items
        told = [one for one in events if one["reason"] == "DefinitionReplaced"]
        assert {one["involvedObject"]["name"] for one in told} == {name}
        assert "gangline crds --install --replace" in told[0]["message"]

        assert (await ensure(client, ours, replace=True))[0] == "replaced"
        await until(forgotten)
    finally:
        await ensure(client, ours, replace=True)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_training_jobs_are_left_to_whoever_brought_their_definition(api: Any, client: Client) -> None:
    ours = next(crd for crd in crds() if crd["metadata"]["name"] == "pytorchjobs.kubeflow.org")
    name = ours["metadata"]["name"]
    await ensure(client, ours)
    where = api.namespace or "default"
    await client.patch(CRDS, name, {"spec": {"versions": of_others(ours)["spec"]["versions"]}})
    container = {"name": "pytorch", "image": "image"}
    job_ = {
        "apiVersion": PYTORCHJOBS.api_version,
        "kind": PYTORCHJOBS.kind,
        "metadata": {"name": "theirs", "namespace": where},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [container]}}}}},
    }
    operator = Operator(client, namespace=api.namespace)
    running = asyncio.create_task(operator.run())
    try:
        await client.create(PYTORCHJOBS, job_)

        key = JobKey(PYTORCHJOBS.kind, where, "theirs")

        async def left_alone() -> bool:
            return await operator.reconcile(key) == not_ours_retry_s

        await until(left_alone)
        assert "status" not in await client.get(PYTORCHJOBS, "theirs", where)
        assert (await client.list(PODS, where)).items == []
    finally:
        await ensure(client, ours, replace=True)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
