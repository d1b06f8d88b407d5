"""Definitions: written where no others stand, known again as a server gives them back, never lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gangline.api.crds import crds, gang_crds
from gangline.api.definitions import DefinitionOrigin, stamped
from gangline.api.resources import CRDS, Resource
from gangline.kube import definitions
from gangline.kube.client import Client
from gangline.kube.definitions import create_first, ensure, find_strangers, watch_definitions
from gangline.kube.errors import ApiError, Invalid, NotFound, ServerError

WAIT_S = 60.0


def renamed(crd: dict[str, Any], group: str) -> dict[str, Any]:
    """The same definition under a group of the test's own: others use the real one."""
    spec = {**crd["spec"], "group": group}
    name = f"{spec['names']['plural']}.{group}"
    return stamped({**crd, "metadata": {"name": name}, "spec": spec})


@pytest.fixture(params=[*crds(), *gang_crds()], ids=lambda crd: crd["metadata"]["name"])
async def definition(
    request: pytest.FixtureRequest, api: Any, client: Client
) -> AsyncIterator[dict[str, Any]]:
    crd = renamed(request.param, f"{api.namespace}.example.com")
    yield crd
    with contextlib.suppress(ApiError):
        await client.delete(CRDS, crd["metadata"]["name"])


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


async def test_a_definition_is_written_once_and_known_again(
    client: Client, definition: dict[str, Any]
) -> None:
    assert await ensure(client, definition) == ("created", None)
    assert await ensure(client, definition) == ("unchanged", None)
    assert await find_strangers(client, [definition]) == []


async def test_a_first_object_waits_until_its_definition_is_served(
    client: Client, definition: dict[str, Any]
) -> None:
    await ensure(client, definition)
    spec, version = definition["spec"], definition["spec"]["versions"][0]["name"]
    names = spec["names"]
    kind = Resource(
        spec["group"], version, names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced"
    )
    namespace = {"namespace": "default"} if kind.namespaced else {}

    first = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "first", **namespace},
        "spec": {},
    }
    with contextlib.suppress(Invalid):  # a schema of its own, which asks for more: served
        await create_first(client, kind, first)


async def test_one_of_an_earlier_release_is_renewed(client: Client, definition: dict[str, Any]) -> None:
    versions = definition["spec"]["versions"]
    columns = [{**one, "schema": {"openAPIV3Schema": {"type": "object"}}} for one in versions]
    earlier = stamped({**definition, "spec": {**definition["spec"], "versions": columns}})
    await ensure(client, earlier)

    assert await find_strangers(client, [definition]) == []
    assert await ensure(client, definition) == ("configured", None)
    assert await ensure(client, definition) == ("unchanged", None)


async def test_one_of_others_stays_until_it_is_replaced_on_purpose(
    client: Client, definition: dict[str, Any]
) -> None:
    name = definition["metadata"]["name"]
    storage = [one for one in definition["spec"]["versions"] if one["storage"]]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    theirs = {**definition, "metadata": {"name": name}}
    theirs["spec"] = {**definition["spec"], "versions": [{**storage[0], "schema": schema}]}
    created = await client.create(CRDS, theirs)

    verb, verdict = await ensure(client, definition)
    assert (verb, verdict and verdict.state) == ("left", "foreign")
    assert (await client.get(CRDS, name))["spec"] == created["spec"]
    assert verdict is not None
    assert verdict.message.startswith(f"definition {name} is not Gangline's, written by ")

    assert (await ensure(client, definition, replace=True))[0] == "replaced"
    assert await ensure(client, definition) == ("unchanged", None)


async def test_that_all_is_well_is_told_at_first_also_after_a_failure(
    definition: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "FIRST_RETRY_S", 0.01)
    answers = iter([ServerError(500, "InternalError", "a moment"), NotFound(404, "NotFound", "none")])

    class Failing:
        async def get(self, *_: object) -> Any:
            raise next(answers)

    told: list[list[DefinitionOrigin]] = []
    client: Any = Failing()
    watch = asyncio.create_task(watch_definitions(client, [definition], told.append))

    async def has_told() -> bool:
        return told == [[]]

    await until(has_told)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_one_that_is_changed_afterwards_is_noticed_and_so_is_its_return(
    client: Client, definition: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "CHECK_EVERY_S", 0.01)
    await ensure(client, definition)
    told: list[list[DefinitionOrigin]] = []
    watch = asyncio.create_task(watch_definitions(client, [definition], told.append))
    name = definition["metadata"]["name"]
    versions = [
        {**one, "schema": {"openAPIV3Schema": {"type": "object"}}} for one in definition["spec"]["versions"]
    ]

    async def has_told() -> bool:
        return bool(told and told[-1])

    async def has_said_that_all_is_well() -> bool:
        return told[-1] == []

    await client.patch(CRDS, name, {"spec": {"versions": versions}})
    await until(has_told)
    (verdict,) = told[-1]
    assert verdict.state == "changed"
    assert (await ensure(client, definition))[0] == "left"

    await ensure(client, definition, replace=True)
    await until(has_said_that_all_is_well)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_an_absent_one_is_no_stranger(client: Client, definition: dict[str, Any]) -> None:
    with pytest.raises(NotFound):
        await client.get(CRDS, definition["metadata"]["name"])
    assert await find_strangers(client, [definition]) == []
