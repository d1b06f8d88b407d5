"""How the list of runs shows what ran."""

from __future__ import annotations

import pytest

from gangline.cli.runs.command import command_in_words


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/opt/env/bin/python train.py --data /data/a", "python train.py --data /data/a"),
        ("../env/bin/python train.py", "python train.py"),
        ("python /opt/train.py", "python /opt/train.py"),
        ("./train.sh", "train.sh"),
        ("'/my env/bin/python' train.py", "'/my env/bin/python' train.py"),
        ("(of image example/train:1)", "(of image example/train:1)"),
        ("", ""),
    ],
)
def test_the_program_is_shown_without_its_folder(command, shown):
    assert command_in_words(command) == shown
