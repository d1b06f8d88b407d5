"""What is read from a cluster: which installation is there, and whose operator."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fake_client import FakeClient

from gangline import __version__
from gangline.api.resources import CRDS, DEPLOYMENTS, MPIJOBS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.installation.found import Found, installation_in
from gangline.installation.objects import Installation, definitions, objects
from gangline.installation.removal import plan_removal
from gangline.installation.replaced import find_operators


def installed(installation: Installation) -> list[Found]:
    return [Found(DEPLOYMENTS, obj) for obj in objects(installation) if obj["kind"] == "Deployment"]


@pytest.mark.parametrize(
    ("image", "after"),
    [
        ("gangline:0.0.9", f"gangline:{__version__}"),
        (
            "registry.example.com:5000/ml/gangline:0.0.9",
            f"registry.example.com:5000/ml/gangline:{__version__}",
        ),
        ("r.example.com/gangline@sha256:" + "0" * 64, f"r.example.com/gangline:{__version__}"),
    ],
)
def test_an_upgrade_takes_the_images_from_the_same_registry(image: str, after: str) -> None:
    deployed = installed(Installation())
    for one in deployed:
        one.value["spec"]["template"]["spec"]["containers"][0]["image"] = image

    found = installation_in(deployed, Installation())

    assert found is not None
    assert found.image("operator") == after
    assert found.image("scheduler") == after.replace("gangline:", "gangline-scheduler:")


def test_a_registry_that_is_asked_for_counts() -> None:
    asked = Installation(image_prefix="other.example.com")

    found = installation_in(installed(Installation(image_prefix="r.example.com")), asked)

    assert found is not None
    assert found.image_prefix == asked.image_prefix


@pytest.mark.parametrize("services", [{"has_scheduler": False}, {"has_operator": False}, {}])
def test_an_upgrade_brings_the_services_that_are_there(services: dict[str, bool]) -> None:
    installation = Installation(**services)  # type: ignore[arg-type]

    assert installation_in(installed(installation), Installation()) == installation
    assert installation_in([], Installation()) is None


def deployment(image: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    metadata = {"name": f"d-{abs(hash(image))}", "namespace": "theirs"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


@pytest.mark.parametrize(
    ("image", "is_other"),
    [
        ("mpioperator/mpi-operator:0.8.2", True),
        ("registry.example.com:5000/mirror/mpi-operator@sha256:" + "0" * 64, True),
        ("mpi-operator", True),
        ("gangline:0.1.0", False),
        ("mpioperator/mpi-pi:openmpi", False),
        ("example.com/mpi-operator/dashboard:1", False),
    ],
)
async def test_an_operator_of_others_is_known_by_its_image(image: str, is_other: bool) -> None:
    client = FakeClient()
    await client.create(DEPLOYMENTS, deployment(image))

    assert bool(await find_operators(client)) is is_other


async def test_one_without_pods_is_in_nobodys_way() -> None:
    client = FakeClient()
    await client.create(DEPLOYMENTS, deployment("mpioperator/mpi-operator", replicas=0))

    assert await find_operators(client) == []


def of_kind(resource: Any, name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": "default", **metadata},
    }


async def planned(client: FakeClient, **options: Any) -> tuple[set[str], list[str]]:
    plan = await plan_removal(client, Installation(), **{"keep_jobs": False, **options})
    return {one.name for one in plan.definitions}, [job["metadata"]["name"] for job in plan.jobs]


async def with_definitions() -> FakeClient:
    client = FakeClient()
    for crd in definitions(Installation()):
        await client.create(CRDS, crd)
    await client.create(MPIJOBS, of_kind(MPIJOBS, "pi"))
    return client


async def test_jobs_and_their_groups_go_with_the_definitions() -> None:
    client = await with_definitions()
    owner = [{"kind": "MPIJob", "name": "pi"}]
    await client.create(
        SCHEDULER_PLUGINS_POD_GROUPS, of_kind(SCHEDULER_PLUGINS_POD_GROUPS, "pi", ownerReferences=owner)
    )

    names, jobs = await planned(client)

    assert names == {crd["metadata"]["name"] for crd in definitions(Installation())}
    assert jobs == ["pi"]
    assert await planned(client, keep_jobs=True) == (set(), [])


async def test_groups_of_others_keep_their_definition() -> None:
    client = await with_definitions()
    await client.create(SCHEDULER_PLUGINS_POD_GROUPS, of_kind(SCHEDULER_PLUGINS_POD_GROUPS, "somebodys"))

    names, _ = await planned(client)

    assert "podgroups.scheduling.x-k8s.io" not in names


async def test_a_definition_of_others_stays() -> None:
    client = FakeClient()
    (crd, *_) = definitions(Installation())
    theirs = msgspec.json.decode(msgspec.json.encode(crd))
    theirs["metadata"].pop("annotations")
    await client.create(CRDS, theirs)

    assert await planned(client) == (set(), [])
