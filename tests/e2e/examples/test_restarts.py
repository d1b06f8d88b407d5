"""Ranks that fail start again, so often as was said, and the end is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
tries = Path("tries")
done = int(tries.read_text()) if tries.exists() else 0
tries.write_text(str(done + 1))
print("try", done + 1, flush=True)
sys.exit(0 if done + 1 >= int(sys.argv[1]) else 75)
"""


@pytest.mark.parametrize(("needed", "event", "tries"), [("2", "succeeded", 2), ("9", "failed", 2)])
def test_ranks_start_again_and_the_end_is_told(gangline, tmp_path: Path, needed, event, tries) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    line = (
        "run",
        "--restarts",
        "1",
        "--notify",
        f"cat > {tmp_path}/notice",
        "--",
        "python3",
        "train.py",
        needed,
    )
    done = gangline(*line, cwd=tmp_path)

    assert done.returncode == (0 if event == "succeeded" else 75), done.stdout
    assert (tmp_path / "tries").read_text() == str(tries)
    assert re.search(r"launcher\S* failed with exit code 75; attempt 2 in pod train", done.stdout)
    assert json.loads((tmp_path / "notice").read_text())["event"] == event
