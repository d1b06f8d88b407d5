"""examples/09-notebook: every cell runs, and prints what is kept beside it.

Cells with the tag `varies` print other words each time; pictures are compared by their last state alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[3] / "examples" / "09-notebook"
CELL_TIMEOUT_S = 120
# succeeded, 4s | 10,841.5 points/s | loss 4.308e-21 | line-launcher-gwhpc | node-0
PASSING = re.compile(r"-launcher-\w+|[\d,.]+(e-\d+)?")


def texts(cell: Any) -> list[str]:
    """What a cell returned or printed; a picture's times are left out."""
    found = []
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream" and output["name"] == "stderr":
            continue  # the start of the cluster
        text = output.get("text") or output["data"].get("text/html") or output["data"]["text/plain"]
        found.append(PASSING.sub("", text) if "<div>" in text else text)
    return found


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_prints_what_is_kept(
    name: str, cluster_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGLINE_HOME", cluster_environment["GANGLINE_HOME"])
    kept = nbformat.read(FOLDER / name, as_version=4)
    run = nbformat.read(FOLDER / name, as_version=4)

    NotebookClient(run, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(FOLDER)}}).execute()

    pairs = list(zip(kept.cells, run.cells, strict=True))
    assert any(texts(before) for before, _ in pairs), "kept without outputs"
    for before, after in pairs:
        if "varies" not in before.metadata.get("tags", ()):
            assert texts(after) == texts(before), before.source
