"""Clients that write all the time and remember what was acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gangline.api.resources import CONFIG_MAPS
from gangline.cluster.paths import ClusterPaths
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, NotFound

LANES = 6
NAMES_OF_LANE = 5
NAMESPACE = "default"


def client_of(paths: ClusterPaths) -> Client:
    """Return an administrator's client, which gives up at once where nobody answers."""
    return Client(Connection(server=f"unix://{paths.api_socket}"))


@dataclass
class Memory:
    """What the clients know.

    Attributes:
        held: number that each object carries, None: it is deleted; by name, as acknowledged last.
        unsure: numbers that it may carry as well, for they were sent and never answered.
        writes: acknowledged.
        refused: answers by status that said no.
        revisions: resource versions that were acknowledged.
        faults: what must not be, in words.
    """

    held: dict[str, int | None] = field(default_factory=dict)
    unsure: dict[str, set[int | None]] = field(default_factory=dict)
    writes: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    revisions: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def acknowledge(self, name: str, number: int | None, revision: int | None) -> None:
        self.writes += 1
        self.held[name] = number
        self.unsure.pop(name, None)
        if revision is not None and revision in self.revisions:
            self.faults.append(f"revision {revision} was given twice")
        if revision is not None:
            self.revisions.add(revision)

    async def check(self, client: Client) -> None:
        """Look at all that is stored: nothing acknowledged is lost, nothing is there that nobody wrote."""
        found = {}
        for one in (await client.list(CONFIG_MAPS, NAMESPACE)).items:
            if "number" in (one.get("data") or {}):
                found[one["metadata"]["name"]] = int(one["data"]["number"])
        for name in self.held.keys() | self.unsure.keys() | found.keys():
            allowed = {self.held.get(name), *self.unsure.get(name, ())}
            if found.get(name) not in allowed:
                self.faults.append(f"{name} is {found.get(name)}, may be {sorted(map(str, allowed))}")
            self.held[name] = found.get(name)
            self.unsure.pop(name, None)


async def write(
    client: Client, memory: Memory, lane: int, seed: int, stop: asyncio.Event, *, payload: int = 500
) -> None:
    """Create, update and delete the objects of one lane until a request finds no server, or the stop.

    Args:
        client: of the server.
        memory: is filled.
        lane: whose objects; no two lanes share one.
        seed: decides what is done.
        stop: set when enough is done; a request that is under way is waited for.
        payload: characters of each object.
    """
    random_ = random.Random(f"{seed}-{lane}")
    number = random_.randrange(1 << 40)
    while not stop.is_set():
        name = f"lane-{lane}-{random_.randrange(NAMES_OF_LANE)}"
        number += 1
        try:
            await _once(client, memory, name, number, random_, payload)
        except ApiError as error:
            if not error.status:
                return
            memory.refused[error.status] += 1
            memory.unsure.get(name, set()).clear()  # it was answered: nothing was done
            if error.status == 500:
                memory.faults.append(f"500: {error}")
            await asyncio.sleep(0.01)


async def _once(
    client: Client, memory: Memory, name: str, number: int, random_: random.Random, payload: int
) -> None:
    held = memory.held.get(name)
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    body["data"] = {"number": str(number), "text": "x" * payload}
    unsure = memory.unsure.setdefault(name, set())
    try:
        if held is None:
            unsure.add(number)
            made = await client.create(CONFIG_MAPS, body)
        elif random_.random() < 0.2:
            unsure.add(None)
            await client.delete(CONFIG_MAPS, name, NAMESPACE)
            return memory.acknowledge(name, None, None)
        else:
            before = await client.get(CONFIG_MAPS, name, NAMESPACE)
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
            unsure.add(number)
            made = await client.update(CONFIG_MAPS, body)
    except (AlreadyExists, NotFound, Conflict) as error:
        # A client that sends again after a broken connection may meet its own first try.
        seen = await _number(client, name)
        if seen not in {held, *unsure}:
            memory.faults.append(f"{name}: {error}, and it is {seen}, not {held} or {unsure}")
        memory.held[name] = seen
        unsure.clear()
        return None
    memory.acknowledge(name, number, int(made["metadata"]["resourceVersion"]))
    return None


async def _number(client: Client, name: str) -> int | None:
    try:
        return int((await client.get(CONFIG_MAPS, name, NAMESPACE))["data"]["number"])
    except NotFound:
        return None
