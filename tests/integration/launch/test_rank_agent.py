"""The rank agent as processes: what runs in a pod, for whom, and for how long."""

from __future__ import annotations

import base64
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangline.jobs.remote_access import AGENT_PROGRAMS
from gangline.launch.pods.programs import source_of
from gangline.operator.key_pair import generate_key_pair

LIMIT_S = 30.0


def make_agent(folder: Path) -> Path:
    """Lay out a job's agent with a fresh key."""
    folder.mkdir()
    for name in AGENT_PROGRAMS:
        (folder / name).write_text(source_of(name))
    pair = generate_key_pair(has_certificate=True)
    for file, key in (("agent.key", "ssh-privatekey"), ("agent.crt", "agent-certificate")):
        (folder / file).write_bytes(base64.b64decode(pair[key]))
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Pod:
    """An agent that serves at a free port."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "GANGLINE_AGENT_PORT": str(self.port),
            "GANGLINE_RSH_WAIT_S": "10",
            "ITS": "pod's own",
        }
        line = [sys.executable, "-I", str(folder / "rank_agent.py"), "serve", "--", *command]
        self.process = subprocess.Popen(line, env=self.environment)

    def run(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-I", str((folder or self.folder) / "rank_agent.py"), "run", *words]
        return subprocess.run(
            line, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(LIMIT_S)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    found = Pod(make_agent(tmp_path / "agent"))
    yield found
    found.end()


def until(found: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not found():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_command_runs_with_the_pods_environment_and_its_outputs_and_code_come_back(pod: Pod) -> None:
    done = pod.run("-x", "-o", "BatchMode=yes", "127.0.0.1", "echo $ITS;", "echo lost >&2;", "exit 7")

    assert (done.returncode, done.stdout, done.stderr) == (7, "pod's own\n", "lost\n")


def test_output_of_any_size_comes_whole(pod: Pod) -> None:
    done = pod.run("127.0.0.1", "seq 1 2000000")

    assert done.returncode == 0
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 2000001))


def test_another_job_is_refused_by_either_side(pod: Pod, tmp_path: Path) -> None:
    other = make_agent(tmp_path / "other")

    done = pod.run("127.0.0.1", "touch", str(tmp_path / "reached"), folder=other)

    assert done.returncode == 255
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    blind.load_cert_chain(str(other / "agent.crt"), str(other / "agent.key"))
    request = b'{"command": "touch %s"}\n' % str(tmp_path / "reached").encode()
    with (
        pytest.raises(OSError),
        socket.create_connection(("127.0.0.1", pod.port)) as plain,
        blind.wrap_socket(plain) as stream,
    ):
        stream.sendall(request)
        assert not stream.recv(1), "answered"
        raise ConnectionError
    assert pod.run("127.0.0.1", "echo still here").stdout == "still here\n"
    assert not (tmp_path / "reached").exists()


def test_a_peer_that_says_nothing_of_tls_does_no_harm(pod: Pod) -> None:
    pod.run("127.0.0.1", "true")
    with socket.create_connection(("127.0.0.1", pod.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert pod.run("127.0.0.1", "echo served").stdout == "served\n"


def test_a_port_that_another_pod_of_the_host_has_is_named(pod: Pod) -> None:
    assert pod.run("127.0.0.1", "true").returncode == 0
    line = [sys.executable, "-I", str(pod.folder / "rank_agent.py"), "serve"]

    second = subprocess.run(
        line, env=pod.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert second.returncode == 1
    assert second.stderr.startswith(f"gangline: the rank agent cannot serve at port {pod.port}: ")


def test_one_pod_tells_another_to_end(pod: Pod) -> None:
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from rank_agent import end\n"
        "end(Path(sys.argv[1]), '127.0.0.1', 3, time.monotonic() + 10, int(sys.argv[2]))"
    )
    line = [sys.executable, "-c", program, str(pod.folder), str(pod.port)]

    subprocess.run(line, check=True, timeout=LIMIT_S)

    assert pod.process.wait(LIMIT_S) == 3


def test_a_command_that_calls_back_by_name_waits_until_the_name_is_known(pod: Pod) -> None:
    done = pod.run("127.0.0.1", "echo --control-port", f"{socket.gethostname()}:4711")

    assert done.stdout == f"--control-port {socket.gethostname()}:4711\n"


def test_a_command_ends_with_its_launcher(pod: Pod, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    line = [sys.executable, "-I", str(pod.folder / "rank_agent.py"), "run", "127.0.0.1"]
    launcher = subprocess.Popen([*line, f"echo $$ > {mark}; exec sleep 600"], env=pod.environment)
    until(lambda: mark.exists() and mark.read_text().strip() != "")
    launcher.kill()
    launcher.wait()

    until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists())


def test_the_agent_ends_with_its_own_command_and_ends_what_it_runs(tmp_path: Path) -> None:
    marks = [tmp_path / "own", tmp_path / "rank"]
    folder = make_agent(tmp_path / "agent")
    pod = Pod(
        folder, "sh", "-c", f"echo $$ > {marks[0]}; while [ ! -e {marks[1]} ]; do sleep 0.05; done; exit 5"
    )
    line = [sys.executable, "-I", str(folder / "rank_agent.py"), "run", "127.0.0.1"]
    launcher = subprocess.Popen([*line, f"echo $$ > {marks[1]}; exec sleep 600"], env=pod.environment)

    assert pod.process.wait(LIMIT_S) == 5
    assert launcher.wait(LIMIT_S) in (128 + signal.SIGTERM, 255)
    until(lambda: not Path(f"/proc/{marks[1].read_text().strip()}").exists())


def test_a_pod_that_is_not_up_is_waited_for(tmp_path: Path) -> None:
    folder = make_agent(tmp_path / "agent")
    late = Pod(folder)
    late.end()
    line = [sys.executable, "-I", str(folder / "rank_agent.py"), "run", "127.0.0.1", "echo here"]
    launcher = subprocess.Popen(line, env=late.environment, stdout=subprocess.PIPE)
    serve = [sys.executable, "-I", str(folder / "rank_agent.py"), "serve"]
    with subprocess.Popen(serve, env=late.environment) as server:
        out, _ = launcher.communicate(timeout=LIMIT_S)
        server.terminate()

    assert out == b"here\n"
    assert server.returncode == 128 + signal.SIGTERM
