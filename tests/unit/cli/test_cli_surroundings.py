"""What the machine refuses is said in one line, without a traceback, and ends no daemon."""

import io
import os

import pytest

from gangline.cli.group import EXIT_MACHINE, invoke
from gangline.cli.serve import LossyLog


@pytest.fixture
def file_as_home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.write_text("")
    monkeypatch.setenv("GANGLINE_HOME", str(home))
    return home


def test_home_that_cannot_be_written_is_said_with_its_path_and_the_way_on(file_as_home, capsys):
    assert invoke(["up"]) == EXIT_MACHINE

    said = capsys.readouterr().err
    assert said.startswith(f"error[machine]: cannot use `{file_as_home}")
    assert "hint: set GANGLINE_HOME" in said
    assert "Traceback" not in said


def test_current_folder_that_was_deleted_is_said(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert invoke(["run", "--", "python3", "train.py"]) == EXIT_MACHINE

    said = capsys.readouterr().err
    assert said.startswith("error[machine]: the current folder is gone")
    assert "Traceback" not in said


def test_full_disk_loses_lines_of_a_log_and_nothing_else():
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("this system has no /dev/full")
    with io.FileIO("/dev/full", "w") as full:
        log = LossyLog(io.TextIOWrapper(full, line_buffering=True, write_through=True))

        assert log.write("lost\n") == 0
        log.flush()


def test_choices_of_a_missing_argument_stand_on_one_line(capsys):
    assert invoke(["completion"]) == 2

    assert "Choose from: bash, zsh, fish\n" in capsys.readouterr().err
