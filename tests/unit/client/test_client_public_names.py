"""What users may import: its names, what importing them costs, and that each is described.

In scope: the surface of `gangline` and `gangline.client`. Out of scope: what the calls do (tests/e2e/client).
"""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import gangline
from gangline import client

NAMES = ["AsyncClient", "AsyncJobHandle", "Client", "Columns", "JobHandle", "NoSuchJobError"]
NAMES += ["PodOptions", "RankError", "RanksFailedError", "RunOptions", "RunReport"]
OF_CLIENTS = {"job", "jobs", "run", "runs", "start", "submit", "submit_all"}
OF_JOBS = {
    "cancel",
    "explain",
    "logs",
    "metrics",
    "refresh",
    "results",
    "resume",
    "scale",
    "suspend",
    "view",
    "wait",
}
CHECK = """
import sys
before = set(sys.modules)
import gangline
print(*sorted(name for name in set(sys.modules) - before))
"""


def test_the_names_are_these() -> None:
    assert sorted(client.__all__) == NAMES
    assert set(gangline.__all__) <= set(client.__all__)
    for name in gangline.__all__:
        assert getattr(gangline, name) is getattr(client, name)


@pytest.mark.parametrize("module", [gangline, client])
def test_another_name_is_an_error_of_attributes(module: object) -> None:
    with pytest.raises(AttributeError, match="no attribute `Klient`"):
        module.Klient  # type: ignore[attr-defined]  # noqa: B018


def test_importing_gangline_imports_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["gangline"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_described(name: str) -> None:
    found = getattr(client, name)

    assert inspect.getdoc(found)
    methods = [value for key, value in vars(found).items() if inspect.isfunction(value) and key[0] != "_"]
    assert [method.__name__ for method in methods if not method.__doc__] == []


def public(found: type) -> set[str]:
    return {name for one in found.__mro__[:-1] for name in vars(one) if not name.startswith("_")}


def test_both_clients_offer_the_same() -> None:
    assert public(client.Client) == public(client.AsyncClient) == OF_CLIENTS
    assert public(client.JobHandle) == OF_JOBS | {"show"}
    assert public(client.AsyncJobHandle) == OF_JOBS - {"view"} | {"follow"}  # `view` is an attribute


PAIRS = [(client.Client, client.AsyncClient, name) for name in sorted(OF_CLIENTS | {"__init__"})]
PAIRS += [(client.JobHandle, client.AsyncJobHandle, name) for name in sorted(OF_JOBS - {"view"})]


@pytest.mark.parametrize(("ours", "theirs", "name"), PAIRS)
def test_both_take_the_same_and_say_the_same_of_it(ours: type, theirs: type, name: str) -> None:
    waited, awaited = getattr(ours, name), getattr(theirs, name)

    assert inspect.signature(waited).parameters == inspect.signature(awaited).parameters
    assert "Awaited" not in str(inspect.signature(waited))
    assert not inspect.iscoroutinefunction(waited) and not inspect.isasyncgenfunction(waited)
    assert name == "__init__" or inspect.getdoc(waited) == inspect.getdoc(awaited)
