"""The front of mpirun: old options made new, a lost host told by the exit code, streams and signals kept.

A shell script stands in for the real launcher; `tests/e2e` run the real one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.launch import mpirun_front
from gangline.launch.mpirun_front import ErrorStream, modern_options

FRONT = mpirun_front.__file__


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (
            "-np 2 -bind-to none -map-by slot -x A=1 -mca pml ob1 prog -bind-to x",
            "-np 2 --bind-to none --map-by slot -x A=1 -mca pml ob1 prog -bind-to x",
        ),
        ("--mca btl -bind-to prog -map-by", "--mca btl -bind-to prog -map-by"),
        ("-n 1 a -map-by : -n 1 -map-by node b", "-n 1 a -map-by : -n 1 --map-by node b"),
        ("--tag-output -H a:2,b:2 prog", "--tag-output -H a:2,b:2 prog"),
        ("", ""),
    ],
)
def test_only_options_before_the_program_change(line: str, want: str) -> None:
    assert modern_options(line.split()) == want.split()


def test_a_lost_host_is_seen_also_in_pieces() -> None:
    stream = ErrorStream("launcher")
    text = b"PRTE has lost communication with a remote daemon.\n"

    shown = b"".join(stream.feed(text[i : i + 7]) for i in range(0, len(text), 7)) + stream.flush()

    assert stream.host_was_lost
    assert shown == text


def front(tmp_path: Path, script: str) -> subprocess.Popen[str]:
    real = tmp_path / "mpirun"
    real.write_text(f"#!/bin/sh\n{script}\n")
    real.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", FRONT, str(real), "5", "-np", "2", "prog"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("code", [0, 3, 127])
def test_streams_and_exit_code_are_the_launchers(tmp_path: Path, code: int) -> None:
    process = front(tmp_path, f'echo "out $*"; echo err >&2; exit {code}')

    assert process.communicate(timeout=20) == ("out -np 2 prog\n", "err\n")
    assert process.returncode == code


def test_a_lost_host_ends_with_code_1(tmp_path: Path) -> None:
    process = front(tmp_path, 'echo "PRTE has lost communication with a remote daemon." >&2')
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "a host was lost" in errors


def test_the_harmless_warning_is_left_out(tmp_path: Path) -> None:
    host = os.uname().nodename
    warning = f"[{host}:12] plm:ssh: Warning: setpgid(7,7) failed in parent with errno=x"
    process = front(tmp_path, f'echo "{warning}" >&2; echo kept >&2')

    assert process.communicate(timeout=20)[1] == "kept\n"


def test_a_signal_reaches_the_launcher(tmp_path: Path) -> None:
    process = front(tmp_path, "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.02; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=20)[0] == "got it\n"
    assert process.returncode == 9
