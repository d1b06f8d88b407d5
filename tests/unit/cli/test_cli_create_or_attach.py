"""What becomes of a job whose name is taken: by a finished one, by a running one, by another command's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.resources import MPIJOBS, PODS
from gangline.cli.output import say
from gangline.client.run.create_or_attach import claim_job, create_job, delete_job
from gangline.errors import UserError
from gangline.kube.errors import Unavailable

FINISHED = {"conditions": [{"type": "Succeeded", "status": "True"}]}


def job(name: str = "train", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"mpiReplicaSpecs": {}},
        **fields,
    }


async def claim(client: Any, wanted: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    return await claim_job(client, MPIJOBS, wanted, logs_hint="train", say=say)


async def test_a_new_job_is_created_with_one_request() -> None:
    client = FakeClient()

    made, was_there = await claim(client, job())

    assert (made["metadata"]["uid"], was_there) == ("uid-1", False)
    assert client.actions == [("create", "mpijobs", "train")]


async def test_a_finished_one_is_replaced_and_a_running_one_followed(capsys: Any) -> None:
    client = FakeClient()
    first, _ = await claim(client, job())
    assert (await claim(client, job()))[1]
    await client.update(MPIJOBS, {**first, "status": FINISHED})

    made, was_there = await claim(client, job())

    assert made["metadata"]["uid"] != first["metadata"]["uid"]
    assert not was_there
    assert "succeeded; replaced" in capsys.readouterr().err


async def test_a_running_one_of_another_specification_is_left_alone() -> None:
    client = FakeClient()
    await claim(client, job())

    with pytest.raises(UserError, match="with another specification"):
        await claim(client, job(spec={"slotsPerWorker": 2}))


async def test_the_pods_of_another_commands_new_job_are_not_waited_for() -> None:
    """Two commands replace a finished job: the slower one finds the job of the faster one, with its pods."""
    client = FakeClient()
    old = await client.create(MPIJOBS, job())
    await client.delete(MPIJOBS, "train")
    await client.create(MPIJOBS, job())  # by another command
    labels = {
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/operator-name": "mpi-operator",
    }
    pod = {"metadata": {"name": "train-worker-0", "labels": labels}, "spec": {}}
    await client.create(PODS, pod)

    async with asyncio.timeout(10):
        await delete_job(client, MPIJOBS, old)

    assert await client.get(MPIJOBS, "train")


async def test_the_first_free_name_is_taken() -> None:
    client = FakeClient()
    await client.create(MPIJOBS, job("train"))
    await client.create(MPIJOBS, job("train-2"))
    names = iter(["train-2", "train-3"])

    made = await create_job(client, MPIJOBS, job("train"), lambda: job(next(names)))

    assert made["metadata"]["name"] == "train-3"


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_creation_without_an_answer_makes_one_job(is_kept: bool) -> None:
    class Killed(FakeClient):
        async def create(self, *arguments: Any, **options: Any) -> dict[str, Any]:
            is_first = not self.actions
            if is_kept or not is_first:
                made = await super().create(*arguments, **options)
            else:
                self.actions.append(("create", "mpijobs", "lost"))
            if is_first:
                raise Unavailable(0, "", "the server was killed")
            return made

    client = Killed()
    made, was_there = await claim(client, job())

    assert (made["metadata"]["name"], was_there) == ("train", False)
    assert [verb for verb, _, _ in client.actions] == ["create", "get"] + ["create"] * (not is_kept)
