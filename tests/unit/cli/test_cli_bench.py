"""What `gangline bench scaling` shows of the runs that it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gangline.cli.bench import _follow

RUN = """
import sys
print("started cluster `default` in 3.1 s; `gangline down` ends it", file=sys.stderr)
print("Model: lenet")
sys.exit(3)
"""


def test_start_of_the_cluster_is_said_on_stderr_and_the_rest_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = _follow([sys.executable, "-c", RUN], tmp_path)

    assert code == 3
    assert "Model: lenet\n" in said
    assert capfd.readouterr() == ("", "started cluster `default` in 3.1 s; `gangline down` ends it\n")
