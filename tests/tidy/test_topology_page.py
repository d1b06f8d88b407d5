"""The page that holds the topology model against measurements shows what the model says today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "update_topology_model.py"


def test_tables_and_pictures_of_the_topology_model_are_fresh() -> None:
    """Run `python docs/update_topology_model.py` when this fails."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, "all up to date\n"), done.stderr
