"""examples/07-library-placement: where gangs of a snapshot file go, and what is said of a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(examples: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = examples / "07-library-placement" / "place.py"
    return subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_it_prints_what_its_readme_says(examples: Path):
    done = run(examples)

    assert done.returncode == 0, done.stderr
    readme = (examples / "07-library-placement" / "README.md").read_text()
    assert f"prints\n\n```\n{done.stdout}```" in readme


def test_the_gang_gets_the_quad_that_is_left(examples: Path):
    lines = [line.split() for line in run(examples).stdout.splitlines() if "-worker-" in line]

    assert [(words[2], words[4]) for words in lines] == [("dgx-b", str(index)) for index in (4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Service\nmetadata: {name: a}\n", "object 1 of wrong.yaml has kind `Service`"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: 3}\n", "Pod `default/a` of wrong.yaml"),
        ("a: [\n", "wrong.yaml cannot be read"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(examples: Path, tmp_path: Path, text: str, words: str):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text)

    done = run(examples, str(wrong))

    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_told(examples: Path):
    done = run(examples, "nowhere.yaml")

    assert (done.returncode, "nowhere.yaml" in done.stderr) == (1, True)
