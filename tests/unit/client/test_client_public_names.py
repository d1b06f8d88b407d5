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
    return {name for name in vars(found) if not name.startswith("_")}


def test_both_clients_offer_the_same() -> None:
    assert public(client.Client) == public(client.AsyncClient) == OF_CLIENTS
    assert public(client.JobHandle) == OF_JOBS | {"show"}
    assert public(client.AsyncJobHandle) == OF_JOBS - {"view"} | {"follow"}  # `view` is an attribute


@pytest.mark.parametrize("name", [*sorted(OF_CLIENTS), "job"])
def test_both_clients_take_the_same(name: str) -> None:
    ours, theirs = (
        inspect.signature(getattr(found, name)).parameters for found in (client.Client, client.AsyncClient)
    )

    assert ours == theirs
