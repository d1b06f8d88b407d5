"""Scalars of real ranks over torch's gloo: rank 0 writes what all have together."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.train.records import parse_record

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("scalars_script.py")


def test_scalars_of_three_ranks_are_reduced(torch_python, ranks):
    ranks.start(torch_python, SCRIPT, 3)
    assert ranks.wait() == [0, 0, 0]

    said = [
        [record for line in ranks.log(rank).splitlines() if (record := parse_record(line))]
        for rank in range(3)
    ]
    values = [(record["step"], record["values"]) for record in said[0] if record["kind"] == "scalars"]
    assert values == [
        (1, {"loss": 1.0, "lr": pytest.approx(0.1)}),
        (2, {"loss": 1.0, "lr": pytest.approx(0.2)}),
        (2, {"slowest": 2.0}),
        (2, {"own": 0.0}),
    ]
    assert said[1] == said[2] == []
