"""Two users on one machine: one has a cluster, the other wants its secrets, its data and its commands.

What must hold: nothing of the cluster's owner reaches the other user, and the owner is told what stands in
the way. Both are made of numbers alone; neither has an account.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import everyones_python
import pytest

from gangline.cluster.paths import ClusterPaths

OWNER, STRANGER = 54_321, 54_322
COMMAND_TIMEOUT_S = 120
LISTEN_STATE = "0A"
SECRET = "hunter2-of-the-owner"
OPEN_PATHS = {"/healthz", "/readyz", "/livez", "/version"}
PATHS = [
    "/", "/api", "/apis", "/metrics", "/openapi/v3", "/api/v1/secrets", "/api/v1/pods", "/healthz",
    "/version",
    "/api/v1/namespaces/default/pods/mine/log", "/api/v1/namespaces/default/configmaps?watch=1",
]  # fmt: skip

pytestmark = [
    pytest.mark.hostile,
    pytest.mark.root,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.getuid() != 0, reason="becomes two other users: needs root"),
]


class User:
    """A user by number, with a home of its own."""

    def __init__(self, number: int, python: Path) -> None:
        self.number, self.executable = number, str(python)
        self.home = Path(tempfile.mkdtemp(prefix=f"gangline-user-{number}-", dir="/tmp"))
        self.home.chmod(0o755)  # as homes are on many machines
        os.chown(self.home, number, number)
        self.environment = {
            # Behind it, where the MPI of the tests is, if it is a wheel.
            "PATH": f"{python.parent}:/usr/bin:/bin:{Path(sys.executable).parent}",
            "HOME": str(self.home), "GANGLINE_HOME": str(self.home / "state"),
            "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "OWN_SECRET": SECRET,
        }  # fmt: skip

    def run(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            check=False,
            user=self.number,
            group=self.number,
            extra_groups=[],
            env=self.environment | more,
            cwd=self.home,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
        )

    def gangline(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.executable, "-m", "gangline", *words, **more)

    def python(self, script: str, *words: str) -> str:
        done = self.run(self.executable, "-c", script, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def paths(self) -> ClusterPaths:
        return ClusterPaths("default", self.home / "state" / "default")

    @property
    def run_folder(self) -> Path:
        return Path(f"/tmp/gangline-{self.number}")


@pytest.fixture
def users() -> Iterator[tuple[User, User]]:
    if reason := everyones_python.why_not():
        pytest.skip(reason)
    with everyones_python.everyones_python() as python:
        made = User(OWNER, python), User(STRANGER, python)
        yield made
        for user in made:
            shutil.rmtree(user.run_folder, ignore_errors=True) if not user.run_folder.is_symlink() else None
            user.run_folder.unlink(missing_ok=True) if user.run_folder.is_symlink() else None
            user.gangline("down", "--purge")
            shutil.rmtree(user.home, ignore_errors=True)


def sockets_of(user: User) -> list[str]:
    return [str(path) for path in user.run_folder.rglob("*") if path.is_socket()]


@pytest.fixture
def cluster(users: tuple[User, User]) -> Iterator[tuple[User, User]]:
    """The owner's cluster is up, with a secret and a pod that runs; the stranger stands beside."""
    owner, _ = users
    done = owner.gangline("up")
    assert done.returncode == 0, done.stderr
    manifest = owner.home / "objects.yaml"
    manifest.write_text(
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: mine}}\nstringData: {{password: {SECRET}}}\n---\n"
        "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\nspec:\n  restartPolicy: Never\n"
        "  containers: [{name: main, image: gangline/base, command: [sleep, '600']}]\n"
    )
    done = owner.gangline("apply", str(manifest))
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while len(sockets_of(owner)) < 2:
        assert time.monotonic() < deadline, "the cluster has its own, and its pod has"
    yield users
    assert owner.gangline("down", "--purge").returncode == 0


# What the stranger plants before the owner comes


class Trap:
    """A socket of the stranger that writes down whatever it is told, and answers that all is well."""

    def __init__(self, path: Path) -> None:
        self.heard = b""
        self._socket = socket.socket(socket.AF_UNIX)
        os.setegid(STRANGER)
        os.seteuid(STRANGER)  # the peer of whoever connects is whoever called listen()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.parent.chmod(0o777)
            path.parent.chmod(0o777)
            self._socket.bind(str(path))
            path.chmod(0o777)
            self._socket.listen()
        finally:
            os.seteuid(0)
            os.setegid(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(1)
            try:
                self.heard += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            except OSError:
                pass
            connection.close()

    def close(self) -> None:
        self._socket.close()


def plant_socket(owner: User) -> Trap:
    return Trap(owner.run_folder / owner.paths.cluster_id / "api.sock")


def plant_folder(owner: User) -> None:
    owner.run_folder.mkdir(mode=0o777)
    os.chown(owner.run_folder, STRANGER, STRANGER)


def plant_link(owner: User) -> None:
    place = owner.home.parent / f"gangline-trap-{STRANGER}"
    place.mkdir(mode=0o777, exist_ok=True)
    os.chown(place, STRANGER, STRANGER)
    owner.run_folder.symlink_to(place)
    os.chown(owner.run_folder, STRANGER, STRANGER, follow_symlinks=False)


@pytest.mark.parametrize("plant", [plant_socket, plant_folder, plant_link])
def test_what_another_user_has_planted_is_refused_by_name_and_told_nothing(
    users: tuple[User, User], plant: Callable[[User], Trap | None], tmp_path: Path
) -> None:
    owner, _ = users
    trap = plant(owner)
    try:
        for words in (("up",), ("status",), ("run", "-n", "1", "--", "true"), ("get", "pod/x"), ("down",)):
            done = owner.gangline(*words)
            if words[0] in ("up", "run"):
                assert done.returncode != 0, f"{words}: {done.stdout}{done.stderr}"
                assert str(owner.run_folder) in done.stderr, done.stderr
                assert "XDG_RUNTIME_DIR" in done.stderr
            assert "Traceback" not in done.stderr
            assert SECRET not in done.stdout + done.stderr
        assert trap is None or trap.heard == b""
        assert not (owner.paths.api_socket.parent / "api.sock").is_socket() or trap is not None

        own = owner.home / "r"  # what the hint asks for
        own.mkdir(mode=0o700)
        os.chown(own, owner.number, owner.number)
        short = Path("/tmp") / f"r{owner.number}"
        short.symlink_to(own)
        try:
            done = owner.gangline("run", "-n", "1", "--", "echo", "ran", XDG_RUNTIME_DIR=str(short))
            logs = owner.gangline("logs", "echo", XDG_RUNTIME_DIR=str(short))
            assert (done.returncode, "ran" in done.stdout) == (0, True), (
                done.stderr + logs.stdout + logs.stderr
            )
            assert owner.gangline("down", XDG_RUNTIME_DIR=str(short)).returncode == 0
        finally:
            short.unlink()
        assert trap is None or trap.heard == b""
    finally:
        if trap is not None:
            trap.close()
        shutil.rmtree(owner.home.parent / f"gangline-trap-{STRANGER}", ignore_errors=True)
    print(f"{plant.__name__}: refused by name; the other user heard 0 bytes")


# What the stranger does to a cluster that runs

_LOOK = """
import json, os, sys
opened, entered = [], []
for place in sys.argv[1:]:
    for folder, folders, files in os.walk(place):
        entered.append(folder)
        for name in files:
            try:
                open(os.path.join(folder, name), "rb").read(1)
                opened.append(os.path.join(folder, name))
            except OSError:
                pass
print(json.dumps([opened, entered]))
"""

_PEEK = """
import json, os, sys
found = []
for pid in sys.argv[1:]:
    for name in ("environ", "mem", "maps"):
        try:
            if open(f"/proc/{pid}/{name}", "rb").read(1):  # one that is ending opens, and holds nothing
                found.append(f"{pid}/{name}")
        except OSError:
            pass
    try:
        os.kill(int(pid), 0)
        found.append(f"{pid}/kill")
    except OSError:
        pass
print(json.dumps(found))
"""

_CONNECT = """
import json, os, socket, sys
found = []
for path in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(path)
            found.append(path)
    except OSError:
        pass
print(json.dumps(found))
"""


def test_a_stranger_reads_no_file_and_reaches_no_socket_and_no_process(cluster: tuple[User, User]) -> None:
    owner, stranger = cluster
    state, run = owner.paths.state, owner.run_folder
    sockets = sockets_of(owner)

    opened, entered = json.loads(stranger.python(_LOOK, str(state), str(run)))
    assert (opened, entered) == ([], [])
    assert json.loads(stranger.python(_CONNECT, *sockets)) == []
    pids = [pid for pid in processes_of(owner.number) if pid != os.getpid()]
    assert pids
    assert json.loads(stranger.python(_PEEK, *map(str, pids))) == []
    token = owner.paths.token.read_text().strip()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            line = Path(f"/proc/{pid}/cmdline").read_text()
            assert token not in line
            assert SECRET not in line
    files = sum(1 for path in state.rglob("*") if path.is_file())
    print(f"{files} files, {len(sockets)} sockets, {len(pids)} processes: the other user opened none")


def test_a_stranger_without_a_token_is_told_nothing_on_any_port(cluster: tuple[User, User]) -> None:
    owner, _ = cluster
    ports = listening_ports(owner.number)
    assert ports
    answers: dict[int, set[int]] = {}
    for address, port in ports:
        for path in PATHS:
            for token in ("", "Bearer x", "Bearer gl.x.y", "Basic YWRtaW46YWRtaW4="):
                status, body = ask(address, port, path, token)
                answers.setdefault(port, set()).add(status)
                assert SECRET not in body
                assert "mine" not in body.replace("determine", "")
                if path not in OPEN_PATHS:
                    assert status in (0, 401, 403), f"{address}:{port}{path}: {status} {body[:300]}"
    print(f"ports of the owner's cluster, statuses without its token: {answers}")


def processes_of(user: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user or f"\nUid:\t{user}\t" in (entry / "status").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def listening_ports(user: int) -> list[tuple[str, int]]:
    """Return where processes of a user listen."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN_STATE and int(words[7]) == user:
                found.add(("::1" if table == "tcp6" else "127.0.0.1", int(words[1].split(":")[1], 16)))
    return sorted(found)


def ask(address: str, port: int, path: str, token: str) -> tuple[int, str]:
    """Return status and body of an answer, 0 where none comes."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": token} if token else {}
    for kind in (
        lambda: http.client.HTTPSConnection(address, port, timeout=5, context=context),
        lambda: http.client.HTTPConnection(address, port, timeout=5),
    ):
        connection = kind()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return 0, ""
