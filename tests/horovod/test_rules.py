"""The seventeen rules of Horovod's semantics, each with real ranks on this machine.

What a rule says is in `rules_script.py`, which every rank runs. Upstream's names of what it covers:
`test_upstream_names.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from launch_ranks import Ended, run_ranks

pytestmark = pytest.mark.horovod

SCRIPT = Path(__file__).with_name("rules_script.py")
RULES = re.findall(r"^def (rule_\w+)", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture(scope="module", params=[2, 4])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """All rules in one set of ranks: starting torch costs more than they do."""
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-horovod`")
    overlay = os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")
    folder = tmp_path_factory.mktemp("ranks")
    return run_ranks(python, [str(SCRIPT), *RULES], request.param, folder, overlay=overlay)


@pytest.mark.parametrize("rule", RULES)
def test_rule_holds_on_every_rank(ended: list[Ended], rule: str) -> None:
    for rank, one in enumerate(ended):
        assert f"{rule} holds" in one.log, f"rank {rank}: {one.log[-3000:]}"


def test_all_ranks_end_well(ended: list[Ended]) -> None:
    assert [one.code for one in ended] == [0] * len(ended)
