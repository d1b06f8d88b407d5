"""A shell in every pod, by kubectl and the official Python client, in each isolation mode."""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import signal
import struct
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangline.kube.client import Client
from gangline.kube.config import Connection

LIMIT_S = 90.0
SERVE = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
"""
"""Answers with what it is sent, on the loopback address of its network alone, as debuggers and servers do."""


@dataclass
class Ended:
    code: int
    out: bytes
    err: bytes


@pytest.fixture
def kubectl(cluster):
    """Run kubectl to its end."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")

    async def run(*words: str, stdin: bytes = b"") -> Ended:
        process = await start_kubectl(cluster, *words)
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(stdin)
        return Ended(process.returncode or 0, out, err)

    return run


async def start_kubectl(cluster, *words: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    environment = os.environ | {"KUBECONFIG": str(cluster.paths.kubeconfig)}
    return await asyncio.create_subprocess_exec(
        "kubectl", *words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )


async def idle_pod(cluster, name: str = "idle", **fields):
    await cluster.create_pod(name, "sleep", "3600", **fields)
    await cluster.wait_phase(name, "Running")


async def test_program_runs_as_the_containers_own_does(cluster, kubectl):
    variables = [{"name": "RATE", "value": "0.1"}]
    await idle_pod(cluster, container={"env": variables, "workingDir": "/usr"})

    ended = await kubectl(
        "exec", "idle", "--", "sh", "-c", "echo $RATE $(pwd) $HOSTNAME; echo bad >&2; exit 3"
    )

    assert ended.out == b"0.1 /usr idle\n"
    assert ended.err == b"bad\ncommand terminated with exit code 3\n"
    assert ended.code == 3
    assert (await kubectl("exec", "idle", "--", "true")).code == 0
    assert (await kubectl("exec", "idle", "--", "sh", "-c", "kill -9 $$")).code == 137
    assert await cluster.logs("idle") == ""


async def test_what_is_not_there_is_told_in_upstreams_words(cluster, kubectl):
    await idle_pod(cluster)
    await cluster.create_pod("over", "true")
    await cluster.wait_phase("over", "Succeeded")

    command = await kubectl("exec", "idle", "--", "no-such-program")
    container = await kubectl("exec", "idle", "-c", "other", "--", "true")
    pod = await kubectl("exec", "nobody", "--", "true")
    ended = await kubectl("exec", "over", "--", "true")

    assert command.code == container.code == pod.code == ended.code == 1
    assert b'exec: "no-such-program": executable file not found in $PATH' in command.err
    assert container.err == b"Error from server (BadRequest): container other is not valid for pod idle\n"
    assert pod.err == b'Error from server (NotFound): pods "nobody" not found\n'
    assert b"cannot exec into a container in a completed pod; current phase is Succeeded" in ended.err


async def test_input_ends_and_ten_megabytes_come_back_as_they_went(cluster, kubectl):
    await idle_pod(cluster)
    data = os.urandom(10_000_000)

    ended = await kubectl("exec", "-i", "idle", "--", "cat", stdin=data)

    assert ended.code == 0
    assert ended.out == data


async def echo_port(cluster) -> int:
    """Start a pod that sends back what it gets; return its port."""
    await cluster.create_pod("echo", "python3", "-c", SERVE)

    async def port() -> int:
        pod = await cluster.pod("echo")
        return int(await cluster.logs("echo") or 0) if pod["status"]["phase"] == "Running" else 0

    found: int = await cluster.wait_for(port, "the port")
    return found


async def send_and_take(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(LIMIT_S):
        taken = await reader.read()
    writer.close()
    return taken


async def test_port_of_a_pod_is_forwarded_to_many_at_once(cluster):
    port = await echo_port(cluster)
    process = await start_kubectl(cluster, "port-forward", "--address=127.0.0.1", "echo", f":{port}")
    try:
        async with asyncio.timeout(LIMIT_S):
            line = (await process.stdout.readline()).decode()
        local = int(re.search(r"127.0.0.1:([0-9]+) ->", line)[1])
        sent = [os.urandom(300_000) for _ in range(8)]

        taken = [await send_and_take(local, data) for data in sent]

        assert taken == sent
    finally:
        process.kill()
        await process.wait()


async def test_port_on_which_nothing_listens_is_told(cluster):
    await idle_pod(cluster)
    process = await start_kubectl(cluster, "port-forward", "--address=127.0.0.1", "idle", ":9")
    try:
        async with asyncio.timeout(LIMIT_S):
            line = (await process.stdout.readline()).decode()
            local = int(re.search(r"127.0.0.1:([0-9]+) ->", line)[1])

            assert await send_and_take(local, b"") == b""
            assert b"connect: connection refused" in await process.stderr.readline()
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
def python_client(cluster):
    """The official client, which knows of no event loop: its calls go to a thread."""
    kubernetes = pytest.importorskip("kubernetes")
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(cluster.paths.kubeconfig), client_configuration=configuration)
    return kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))


async def test_official_python_client_runs_a_program_and_talks_to_it(cluster, python_client):
    from kubernetes.stream import stream

    await idle_pod(cluster)

    def talk() -> tuple[str, int]:
        command = ["sh", "-c", "read line; echo got $line; exit 3"]
        session = stream(
            python_client.connect_get_namespaced_pod_exec,
            "idle",
            "default",
            command=command,
            stdin=True,
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
        session.write_stdin("word\n")
        session.run_forever(timeout=LIMIT_S)
        return session.read_stdout(), session.returncode

    assert await asyncio.to_thread(talk) == ("got word\n", 3)


async def test_official_python_client_forwards_a_port(cluster, python_client):
    from kubernetes.stream import portforward

    port = await echo_port(cluster)

    def talk() -> bytes:
        forward = portforward(
            python_client.connect_get_namespaced_pod_portforward, "echo", "default", ports=str(port)
        )
        connection = forward.socket(port)
        connection.setblocking(True)
        connection.settimeout(LIMIT_S)
        connection.sendall(b"ping")
        answer = connection.recv(4)
        connection.close()
        return answer

    assert await asyncio.to_thread(talk) == b"ping"


SAYS = "echo before; read line; echo got $line; exit 4"


async def test_attaching_gives_the_programs_own_input_and_its_output_from_then_on(cluster, kubectl):
    await cluster.create_pod("asks", "sh", "-c", SAYS, container={"stdin": True, "stdinOnce": True})
    await cluster.wait_phase("asks", "Running")
    await cluster.wait_for(lambda: cluster.logs("asks"), "its first line")

    ended = await kubectl("attach", "-i", "asks", stdin=b"word\n")

    assert (ended.code, ended.out) == (0, b"got word\n")
    assert await cluster.logs("asks") == "before\ngot word\n"
    pod = await cluster.wait_phase("asks", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4


async def test_input_that_is_had_once_ends_with_who_attached(cluster, kubectl):
    await cluster.create_pod("counts", "wc", "-c", container={"stdin": True, "stdinOnce": True})
    await cluster.wait_phase("counts", "Running")

    ended = await kubectl("attach", "-i", "counts", stdin=bytes(3_000_000))

    assert ended.out.strip() == b"3000000"


async def test_output_waits_for_who_is_attached_and_none_is_lost(cluster, kubectl):
    script = "read line; seq 1 300000; exit 0"
    await cluster.create_pod("talks", "sh", "-c", script, container={"stdin": True})
    await cluster.wait_phase("talks", "Running")

    ended = await kubectl("attach", "-i", "talks", stdin=b"go\n")

    assert ended.out.split() == [b"%d" % number for number in range(1, 300_001)]
    assert (await cluster.logs("talks")).split() == [str(number) for number in range(1, 300_001)]


async def test_terminal_has_the_size_it_is_told(cluster, terminal):
    await cluster.create_pod("shell", "sh", container={"stdin": True, "tty": True})
    await idle_pod(cluster)
    await cluster.wait_phase("shell", "Running")

    for words in (("attach", "-it", "shell"), ("exec", "-it", "idle", "--", "sh")):
        session = await terminal(*words, rows=33, columns=99)
        await session.say(
            "test -t 0 && while [ \"$(stty size)\" != '33 99' ]; do sleep 0.05; done; "
            "echo now $((98 + 1)); tty\n",
            "now 99",
        )
        await session.say("", "/dev/pts/")
        session.resize(rows=20, columns=50)
        await session.say(
            "while [ \"$(stty size)\" != '20 50' ]; do sleep 0.05; done; echo new $((40 + 2))\n", "new 42"
        )
        await session.say("exit 5\n", "exit 5")
        assert await session.ended() == (5 if words[0] == "exec" else 0)
    assert "now 99" in await cluster.logs("shell")


class Terminal:
    """kubectl at a terminal of ours."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process, self._master = process, master
        self._seen = ""

    def resize(self, *, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process.send_signal(signal.SIGWINCH)

    async def say(self, text: str, answer: str) -> None:
        """Type, and wait for what is shown."""
        os.write(self._master, text.encode())
        async with asyncio.timeout(LIMIT_S):
            while answer not in self._seen:
                self._seen += (
                    (await asyncio.to_thread(os.read, self._master, 4096)).decode().replace("\r", "")
                )
        self._seen = self._seen.partition(answer)[2]

    async def ended(self) -> int:
        async with asyncio.timeout(LIMIT_S):
            return await self._process.wait()


@pytest.fixture
async def terminal(cluster):
    """Start kubectl at a terminal."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    started = []

    async def start(*words: str, rows: int, columns: int) -> Terminal:
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = os.environ | {"KUBECONFIG": str(cluster.paths.kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        started.append((process, master))
        return Terminal(process, master)

    yield start
    for process, master in started:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


async def start_gangline(cluster, *words: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    words = (words[0], "--kubeconfig", str(cluster.paths.kubeconfig), *words[1:])
    line = [sys.executable, "-m", "gangline", *words]
    return await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe, stderr=pipe)


async def test_own_commands_do_the_same_on_any_cluster(cluster):
    await idle_pod(cluster)
    port = await echo_port(cluster)
    data = os.urandom(3_000_000)

    process = await start_gangline(cluster, "exec", "-i", "idle", "--", "sh", "-c", "cat; exit 3")
    async with asyncio.timeout(LIMIT_S):
        out, _ = await process.communicate(data)
    assert (process.returncode, out == data) == (3, True)

    process = await start_gangline(cluster, "shell", "idle")
    async with asyncio.timeout(LIMIT_S):
        out, _ = await process.communicate(b"echo $HOSTNAME; kill -9 $$\n")
    assert (process.returncode, out) == (137, b"idle\n")

    process = await start_gangline(cluster, "port-forward", "echo", f":{port}")
    try:
        async with asyncio.timeout(LIMIT_S):
            line = (await process.stdout.readline()).decode()
            local = int(re.match(r"127.0.0.1:([0-9]+) leads to port", line)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            writer.close()
    finally:
        process.terminate()
        await process.wait()


async def test_program_ends_with_its_client_and_with_its_pod(cluster):
    seconds = 4320 + ["network", "user", "plain"].index(cluster.mode)  # that nobody else sleeps
    await idle_pod(cluster)
    line = ("exec", "-i", "idle", "--", "sh", "-c", f"echo begun; sleep {seconds}; true")
    left, right = await start_kubectl(cluster, *line), await start_kubectl(cluster, *line)
    async with asyncio.timeout(LIMIT_S):
        assert await left.stdout.readline() == await right.stdout.readline() == b"begun\n"
    await cluster.wait_for(lambda: len(sleepers(seconds)) == 2, "both programs")

    left.kill()
    await cluster.wait_for(
        lambda: len(sleepers(seconds)) == 1, "the end of the program whose client was killed"
    )
    assert right.returncode is None
    await cluster.delete("idle", grace_period_s=0)
    async with asyncio.timeout(LIMIT_S):
        _, told = await right.communicate()

    assert right.returncode in (1, 137), told
    await cluster.wait_for(lambda: not sleepers(seconds), "the end of the other")
    await left.wait()


def sleepers(seconds: int) -> list[str]:
    """Return the processes that sleep for that long."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if entry.read_bytes() == b"sleep\0%d\0" % seconds:
                found.append(entry.parent.name)
    return found


async def test_twenty_talk_to_one_pod_at_once(cluster, python_client):
    from gangline.kube.pod_streams.program import PodProgram

    await idle_pod(cluster)

    async def talk(number: int) -> tuple[int, bytes]:
        words = ["sh", "-c", f"read line; echo $line; exit {number}"]
        program = await PodProgram.run(cluster.client, "idle", "default", words, stdin=True)
        await program.send(b"%d\n" % (number * number))
        out = b"".join([data async for _, data in program.output()])
        await program.close()
        return program.exit_code, out

    async with asyncio.timeout(LIMIT_S):
        ended = await asyncio.gather(*(talk(number) for number in range(20)))

    assert ended == [(number, b"%d\n" % (number * number)) for number in range(20)]


async def test_who_may_not_is_refused_before_anything_runs(plain):
    from gangline.kube.errors import Forbidden, Unauthorized
    from gangline.kube.pod_streams.program import PodProgram

    await idle_pod(plain)
    account = await plain.client.request(
        "POST", "/api/v1/namespaces/kube-node-lease/serviceaccounts", body={"metadata": {"name": "other"}}
    )
    assert account["metadata"]["name"] == "other"
    path = "/api/v1/namespaces/kube-node-lease/serviceaccounts/other/token"
    token = (await plain.client.request("POST", path, body={"spec": {}}))["status"]["token"]
    server = f"https://127.0.0.1:{plain.server.port}"

    for shown, error in (("no-token", Unauthorized), (token, Forbidden)):
        connection = Connection(server=server, insecure=True, token=shown)
        async with Client(connection) as stranger:
            with pytest.raises(error):
                await PodProgram.run(stranger, "idle", "default", ["touch", "/tmp/written"])
