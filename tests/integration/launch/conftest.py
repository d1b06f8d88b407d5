"""Three hosts with ssh servers, made once for all tests of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plain_hosts import PlainHosts, why_not


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainHosts]:
    if reason := why_not():
        pytest.skip(reason)
    made = PlainHosts(tmp_path_factory.mktemp("hosts"), 3)
    try:
        made.start()
        yield made
    finally:
        made.close()
