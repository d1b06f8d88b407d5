"""Upstream's own tests, from a checkout that ``HOROVOD_SOURCE`` names, do what `upstream_tests.toml` says."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path

import pytest
from upstream_ranks import Outcome, run_upstream

TABLE = tomllib.loads(Path(__file__).with_name("upstream_tests.toml").read_text())
RUNS = [(path, ranks) for path, entry in TABLE.items() for ranks in entry["ranks"]]
SOURCE = os.environ.get("HOROVOD_SOURCE", "")

from_a_checkout = pytest.mark.skipif(not SOURCE, reason="HOROVOD_SOURCE names no checkout of Horovod")


@cache
def outcomes(path: str, ranks: int, folder: Path) -> dict[str, Outcome]:
    """Return what the tests of a file did: once for all names, starting torch costs more than they do."""
    python, overlay = os.environ["GANGLINE_TRAIN_PYTHON"], os.environ["GANGLINE_HOROVOD_OVERLAY"]
    found = run_upstream(python, overlay, Path(SOURCE), path, ranks, folder)
    for name in TABLE[path]["timing"]:
        for turn in range(2):
            if not found[name].passed:
                again = folder / f"{name}-{turn}"
                again.mkdir()
                found |= run_upstream(python, overlay, Path(SOURCE), path, ranks, again, ["-k", name])
    return found


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory):
    made = {run: tmp_path_factory.mktemp("upstream") for run in RUNS}
    return made.__getitem__


def test_most_of_upstreams_tests_are_said_to_pass() -> None:
    said = list(TABLE["test/parallel/test_torch.py"]["tests"].values())
    assert said.count("pass") >= 100
    assert all(text == "pass" or len(text.split()) > 3 for text in said)


@from_a_checkout
@pytest.mark.horovod
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("path", "ranks"), RUNS)
def test_the_table_names_the_tests_of_the_checkout(path: str, ranks: int, folder_of) -> None:
    assert set(outcomes(path, ranks, folder_of((path, ranks)))) == set(TABLE[path]["tests"])


@from_a_checkout
@pytest.mark.horovod
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("path", "ranks", "name"), [(path, ranks, name) for path, ranks in RUNS for name in TABLE[path]["tests"]]
)
def test_upstreams_test_does_what_the_table_says(path: str, ranks: int, name: str, folder_of) -> None:
    outcome = outcomes(path, ranks, folder_of((path, ranks)))[name]
    assert outcome.passed == (TABLE[path]["tests"][name] == "pass"), outcome.text
