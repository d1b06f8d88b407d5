"""The page that holds the topology model against measurements shows what the model says today."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPT = DOCS / "update_topology_model.py"
PAGE = DOCS / "concepts" / "topology-model.md"


def test_tables_and_pictures_of_the_topology_model_are_fresh() -> None:
    """Run `python docs/update_topology_model.py` when this fails."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, "all up to date\n"), done.stderr


def test_the_example_of_the_page_prints_what_the_page_says() -> None:
    found = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[1], str(PAGE), "exec"), {})

    assert printed.getvalue() == found[2]
