"""What `gangline bench scaling` shows of the runs that it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gangline.cli.bench import command as bench
from gangline.cli.bench.command import _follow, _measure
from gangline.errors import UserError

RUN = """
import sys
print("Model: lenet")
print("no more data", file=sys.stderr)
sys.exit(3)
"""


def test_the_output_of_a_run_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = _follow([sys.executable, "-c", RUN], tmp_path)

    assert code == 3
    assert "Model: lenet\n" in said
    assert "no more data\n" in said
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("python", "words"), [("false", "has no torch"), ("true", "the benchmark on 2 ranks ended with code 2")]
)
def test_a_python_without_torch_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, words: str
) -> None:
    """``true`` and ``false`` answer as a Python does that has torch, or has not."""
    monkeypatch.setattr(bench, "_follow", lambda line, folder: (2, "no more data"))

    with pytest.raises(UserError, match=words):
        _measure(2, python, [], tmp_path / "result.json")
