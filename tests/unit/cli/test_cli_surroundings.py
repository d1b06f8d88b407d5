"""What the machine refuses is said in one line, without a traceback, and ends no daemon."""

import io
import os
import sys

import pytest

from gangline.cli.app import run
from gangline.cli.group import EXIT_MACHINE, invoke
from gangline.client.home import usable_paths
from gangline.cluster.service_log import ServiceLog

COMMANDS = (
    ["up"],
    ["down", "--purge"],
    ["status"],
    ["kubeconfig"],
    ["list"],
    ["get", "x"],
    ["logs", "x"],
    ["explain", "x"],
    ["top", "node"],
    ["top", "job"],
    ["delete", "x"],
    ["node", "set-gpu", "node-0", "0", "unhealthy"],
    ["run", "-n", "1", "--", "true"],
    ["run", "--dry-run", "-n", "1", "--", "true"],
    ["submit", "mpi", "--name", "x", "--image", "gangline/base", "true"],
)
"""Every command that uses the one-machine cluster; ``apply`` takes a manifest and has a test of its own."""


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "file"
    found.write_text("")
    return found


def refused(argv, home, monkeypatch, capsys):
    """Run a command with a home, and return the one error that it prints."""
    monkeypatch.setenv("GANGLINE_HOME", str(home))

    assert invoke(list(argv)) == 2

    said = capsys.readouterr().err
    assert said.startswith("error[bad-input]: cannot use `")
    assert said.endswith("\n\nhint: set GANGLINE_HOME to a folder that you can write to\n")
    assert said.count("\n") == 3
    return said


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_home_that_is_a_file_is_refused_by_every_command(argv, file, monkeypatch, capsys):
    assert f"`{file}` is no folder" in refused(argv, file, monkeypatch, capsys)


def test_home_that_is_a_file_is_refused_before_a_manifest_is_applied(file, monkeypatch, capsys):
    manifest = file.with_name("one.yaml")
    manifest.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")

    refused(["apply", str(manifest)], file, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("home", "rule"),
    [
        ("/proc/none", "no folder can be made in `/proc`: No such file or directory"),
        ("/tmp/" + 300 * "a", "File name too long"),
        ("/tmp/" + 50 * "0123456789/", "480 at most"),
        ("/tmp/\udcff", "its path is no UTF-8"),
    ],
    ids=["system", "name", "path", "bytes"],
)
def test_home_that_cannot_be_made_is_said_with_the_rule(home, rule, monkeypatch, capsys):
    assert rule in refused(["list"], home, monkeypatch, capsys)


def test_home_behind_a_link_that_leads_nowhere_is_refused(tmp_path, monkeypatch, capsys):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "none")

    assert f"`{link}` is a link that leads nowhere" in refused(["up"], link, monkeypatch, capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_home_that_may_not_be_written_is_refused(tmp_path, monkeypatch, capsys):
    tmp_path.chmod(0o500)

    assert "Permission denied" in refused(["list"], tmp_path / "home", monkeypatch, capsys)


def test_home_that_can_be_made_is_not_made_by_looking(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "a" / "b"))

    assert usable_paths("test").state == tmp_path / "a" / "b" / "test"
    assert not list(tmp_path.iterdir())


def test_long_folder_for_temporary_files_leaves_sockets_a_short_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", "/" + 90 * "x")

    socket = usable_paths("test").pod_socket("01234567-89ab-cdef-0123-456789abcdef")

    assert len(os.fsencode(socket)) <= 107  # unix(7): 108 with the zero at the end


def test_current_folder_that_was_deleted_is_said(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert invoke(["run", "--", "python3", "train.py"]) == EXIT_MACHINE

    said = capsys.readouterr().err
    assert said.startswith("error[machine]: the current folder is gone")
    assert "Traceback" not in said


@pytest.mark.parametrize("argv", [["run"], ["apply"], ["topology"], ["topology", "show"]], ids=" ".join)
def test_word_that_no_file_can_be_called_is_said(argv, capsys):
    assert invoke([*argv, 5000 * "x"]) == 2

    assert capsys.readouterr().err == f"error[bad-input]: `{60 * 'x'}…` is too long for the name of a file\n"


def test_full_disk_loses_lines_of_a_log_and_nothing_else():
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("this system has no /dev/full")
    with io.FileIO("/dev/full", "w") as full:
        log = ServiceLog(descriptor=full.fileno())

        assert log.write("lost\n") == 0
        log.flush()


def test_choices_of_a_missing_argument_stand_on_one_line(capsys):
    assert invoke(["completion"]) == 2

    assert "Choose from: bash, zsh, fish\n" in capsys.readouterr().err


def test_interrupt_while_the_commands_are_imported_is_no_traceback(monkeypatch, capsys):
    class Importing:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "gangline.cli.group", Importing())

    assert run(["list"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
