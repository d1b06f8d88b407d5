"""Containers that kubectl debug adds to running pods, in each isolation mode."""

import asyncio
import os
import shutil

import pytest

LIMIT_S = 90.0


async def kubectl(cluster, *words: str, stdin: bytes = b"") -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    environment = os.environ | {"KUBECONFIG": str(cluster.paths.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        "kubectl", *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=environment
    )
    async with asyncio.timeout(LIMIT_S):
        out, _ = await process.communicate(stdin)
    return process.returncode or 0, out.decode()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
async def test_container_is_added_to_a_running_pod(cluster):
    await cluster.create_pod("idle", "sleep", "3600")
    await cluster.wait_phase("idle", "Running")

    added = await kubectl(
        cluster,
        *("debug", "idle", "-i", "--image=gangline/base", "--target=main", "-c", "debugger"),
        *("--", "sh", "-c", "read word; echo $word $HOSTNAME $(pgrep -x sleep | wc -l)"),
        stdin=b"hello\n",
    )

    assert added == (0, added[1])
    text = (await kubectl(cluster, "logs", "idle", "-c", "debugger"))[1]
    assert text.split()[:2] == ["hello", "idle"], (added, text)
    if cluster.mode != "plain":  # one process namespace for all containers of the pod
        assert int(text.split()[2]) >= 1, text

    async def ended():
        pod = await cluster.pod("idle")
        states = pod["status"].get("ephemeralContainerStatuses") or [{}]
        return states[0].get("state", {}).get("terminated") and pod

    pod = await cluster.wait_for(ended, "the end of the added container")
    assert pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
