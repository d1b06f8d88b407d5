"""Programs behind ``--`` run in the session of the user who asks: files, variables, network, rights."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

TEN_PATHS = """
import os, pathlib, sys, tempfile
here, outside, data, name = pathlib.Path.cwd(), *map(pathlib.Path, sys.argv[1:3]), sys.argv[3]
places = {
    "~/results": pathlib.Path.home() / "results", "/tmp": pathlib.Path("/tmp"), "../": here / "..",
    "/data0": data, "./": here, "$TMPDIR": pathlib.Path(os.environ["TMPDIR"]),
    "~/.cache": pathlib.Path.home() / ".cache", "/dev/shm": pathlib.Path("/dev/shm"),
    "symlink": here / "link", "absolute": outside,
}
for folder in places.values():
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(os.environ["RANK"])
print("written", len(places), flush=True)
"""

SECRET = "hf_secret_of_the_test_9d1c"


@pytest.fixture
def home(fresh: Any, tmp_path: Path) -> Path:
    """A home folder of a user's own, for a cluster of this test's own."""
    folder = tmp_path / "ada"
    for name in ("work", "tmp", "elsewhere"):
        (folder / name).mkdir(parents=True)
    fresh.environment |= {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "HF_TOKEN": SECRET}
    return folder


def test_what_a_script_writes_is_there_afterwards_at_ten_paths(
    fresh: Any, home: Path, tmp_path: Path
) -> None:
    work, data = home / "work", tmp_path / "data0"
    (work / "link").symlink_to(home / "elsewhere")
    (work / "write.py").write_text(TEN_PATHS)
    name = f"gangline-session-{os.getpid()}.pt"
    outside = tmp_path / "outside"
    shared = [Path("/tmp") / name, Path("/dev/shm") / name]
    own = [home / "results", home, data, work, home / "tmp", home / ".cache", home / "elsewhere", outside]
    try:
        done = fresh("run", "--", "python3", "write.py", str(outside), str(data), name, cwd=work)

        assert (done.returncode, done.stdout) == (0, "written 10\n"), done.stderr
        missing = [path for path in [*shared, *(folder / name for folder in own)] if not path.exists()]
        assert missing == []
        assert all((folder / name).stat().st_uid == os.getuid() for folder in own)
    finally:
        for path in shared:
            path.unlink(missing_ok=True)


def test_isolated_is_todays_way(fresh: Any, home: Path) -> None:
    show = 'echo "$HOME $HF_TOKEN"; echo x > lost; echo x > "$HOME/lost"'

    done = fresh("run", "--isolated", "--", "sh", "-c", show, cwd=home / "work")

    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout and str(home) not in done.stdout
    assert (home / "work" / "lost").exists()
    assert not (home / "lost").exists()


def test_variables_and_packages_are_the_users_and_stay_secret(fresh: Any, home: Path) -> None:
    package = home / "package"
    package.mkdir()
    (package / "editable_of_ada.py").write_text("WHERE = __file__\n")
    fresh.environment |= {"PYTHONPATH": str(package), "CUDA_VISIBLE_DEVICES": "1", "RANK": "77"}
    program = (
        "import os, pathlib, editable_of_ada as e\n"
        "assert e.WHERE.startswith(os.environ['HOME'])\n"
        "lines = [p.read_bytes() for p in pathlib.Path('/proc').glob('[0-9]*/cmdline') if p.exists()]\n"
        "print(os.environ['RANK'], os.environ['CUDA_VISIBLE_DEVICES'], len(os.environ['HF_TOKEN']),\n"
        "      os.environ['GIVEN'], any(os.environ['HF_TOKEN'].encode() in c for c in lines), flush=True)\n"
    )
    (home / "work" / "show.py").write_text(program)

    done = fresh("run", "-e", "GIVEN=7", "--", "python3", "show.py", cwd=home / "work")

    assert done.stdout == f"0 1 {len(SECRET)} 7 False\n", done.stderr
    shown = fresh("run", "--dry-run", "--", "python3", "show.py", cwd=home / "work")
    assert "kind: MPIJob" in shown.stdout and SECRET not in shown.stdout + shown.stderr
    texts = [
        path
        for path in fresh.home.rglob("*")
        if path.is_file() and path.stat().st_size < 10_000_000 and SECRET.encode() in path.read_bytes()
    ]
    # The log has what the program printed itself, and nothing else has anything.
    assert {path.parent.name for path in texts} <= {"launcher", "sessions"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in texts if path.parent.name == "sessions")


def test_the_machines_network_is_there(fresh: Any, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"), daemon=True).start()
        program = (
            "import socket, sys; print(socket.create_connection(('localhost', int(sys.argv[1]))).recv(9))"
        )
        port = str(server.getsockname()[1])

        done = fresh("run", "--", "python3", "-c", program, port, cwd=home / "work")

    assert done.stdout == "b'hello'\n", done.stderr


def test_umask_limits_and_groups_are_those_of_the_shell(fresh: Any, home: Path) -> None:
    show = "umask; ulimit -n; id -u; id -G; hostname"
    line = (
        f"umask 027; ulimit -n 777; {{ {show}; }} > want; exec {' '.join(command('run'))} -- sh -c '{show}'"
    )

    done = subprocess.run(
        ["sh", "-c", line],
        env=fresh.environment,
        cwd=home / "work",
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == (home / "work" / "want").read_text()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "gangline", *words]


@pytest.mark.parametrize("kind", ["job", "pytorchjob"])
def test_a_job_of_another_kind_runs_in_the_same_session(
    fresh: Any, home: Path, until: Any, kind: str
) -> None:
    (home / "work" / "write.py").write_text(
        "import os, pathlib\n"
        "(pathlib.Path.home() / f'rank-{os.environ[\"RANK\"]}').write_text(os.environ['HF_TOKEN'])\n"
    )
    done = fresh("run", "-n", "2", "--kind", kind, "--", "python3", "write.py", cwd=home / "work")

    assert done.returncode == 0, done.stderr
    assert [(home / f"rank-{rank}").read_text() for rank in (0, 1)] == [SECRET, SECRET]
    sessions = Path(fresh.environment["GANGLINE_HOME"]) / "default" / "sessions"
    until(lambda: [*sessions.glob("*.json")] == [], "end of the session")


def test_several_pods_here_are_an_mpijobs(fresh: Any, home: Path) -> None:
    done = fresh("run", "-n", "2", "--nodes", "2", "--kind", "pytorchjob", "--", "true", cwd=home / "work")

    assert done.returncode == 2
    assert "--kind pytorchjob on this machine has one pod (found --nodes 2)" in done.stderr


def test_the_session_is_gone_with_the_job(fresh: Any, home: Path, until: Any) -> None:
    held = home / "held"
    os.mkfifo(held)
    started = fresh.start("run", "--name", "held", "--", "cat", str(held), cwd=home / "work")
    sessions = fresh.home / "default" / "sessions"
    until(lambda: sessions.is_dir() and list(sessions.glob("*.json")), "the session to be handed over")
    assert sessions.stat().st_mode & 0o777 == 0o700

    with held.open("w") as pipe:  # opens once the program reads
        pipe.write("done\n")

    assert started.communicate(timeout=60)[0] == "done\n"
    until(lambda: not list(sessions.iterdir()), "the session to be removed")


def test_a_session_is_found_by_the_agent_after_one_that_was_killed(fresh: Any, home: Path) -> None:
    assert fresh("up").returncode == 0
    agent = json.loads((fresh.home / "default" / "agent.json").read_text())["pid"]
    os.kill(agent, 9)

    done = fresh("run", "--", "sh", "-c", "echo ${#HF_TOKEN}", cwd=home / "work")

    assert done.stdout == f"{len(SECRET)}\n", done.stderr


def test_a_progress_bar_is_seen_while_it_grows(fresh: Any, home: Path) -> None:
    go = home / "go"
    os.mkfifo(go)
    program = (
        "import sys\n"
        "for step in range(3):\n"
        "    sys.stderr.write(f'\\r {step}0%'); sys.stderr.flush()\n"
        f"    open({str(go)!r}).read()\n"
        "print(' done')\n"
    )
    (home / "work" / "bar.py").write_text(program)
    started = fresh.start("run", "--", "python3", "bar.py", cwd=home / "work")
    assert started.stdout is not None
    shown = b""
    for step in range(3):  # each step waits until the one before it was seen
        while f"\r {step}0%".encode() not in shown:
            piece = os.read(started.stdout.fileno(), 4096)
            assert piece, f"ended before step {step}: {shown!r}"
            shown += piece
        go.open("w").close()
    started.communicate(timeout=60)
    assert started.returncode == 0
