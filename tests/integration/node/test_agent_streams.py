"""A shell in every pod: exec by kubectl and by the official Python client, in each isolation mode."""

import asyncio
import os
import shutil
from dataclasses import dataclass

import pytest

LIMIT_S = 90.0


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
