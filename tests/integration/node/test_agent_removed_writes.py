"""A pod that ends tells what it wrote to places that go with it, in an event and in its status."""

import json
import os
import signal

import pytest

from gangline.api.resources import EVENTS
from gangline.workloads.removed_writes import removed_writes

UNTIL_TOLD = "while [ ! -e /kept/go ]; do sleep 0.05; done"
"""A program that ends within milliseconds has taken its home folder with it: see docs/limits.md."""
REMOVED = "removed with the pod: mount a volume"


async def told(cluster, name: str) -> list[str]:
    events = (await cluster.client.list(EVENTS, "default")).items
    found = [
        one for one in events if one["involvedObject"]["name"] == name and one["reason"] == "WritesRemoved"
    ]
    assert all(one["type"] == "Warning" for one in found)
    return [one["message"] for one in found]


async def wait_told(cluster, name: str) -> str:
    (message,) = set(await cluster.wait_for(lambda: told(cluster, name), "the event"))
    return message


async def test_checkpoints_in_home_and_scratch_are_told_and_volumes_are_not(cluster, tmp_path):
    script = (
        "mkdir -p ~/results; echo weights > ~/results/m.pt; echo weights > ${TMPDIR:-/tmp}/n.ckpt; "
        "echo weights > /empty/e.pt; echo weights > /kept/k.pt; echo log > ~/results/log.txt; " + UNTIL_TOLD
    )
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("empty", "kept")]
    await cluster.create_pod(
        "writes",
        "sh",
        "-c",
        script,
        container={"volumeMounts": mounts},
        volumes=[
            {"name": "empty", "emptyDir": {}},
            {"name": "kept", "hostPath": {"path": str(tmp_path)}},
        ],
    )

    await cluster.wait_phase("writes", "Running")
    (tmp_path / "go").touch()
    pod = await cluster.wait_phase("writes", "Succeeded")
    message = await wait_told(cluster, "writes")

    assert removed_writes(pod) == message
    assert message.startswith("wrote 8 B to ")
    assert message.endswith(REMOVED)
    assert "/results/m.pt" in message
    assert ("$TMPDIR/n.ckpt" if cluster.mode == "plain" else "/tmp/n.ckpt") in message
    assert not any(name in message for name in ("e.pt", "k.pt", "log.txt"))
    assert (tmp_path / "k.pt").exists()


async def test_much_in_a_layer_is_told_and_little_is_not(cluster):
    folder = "$HOME/data0" if cluster.mode == "plain" else "/data0"
    much = f"mkdir {folder}; head -c 101000000 /dev/zero | tr '\\0' x > {folder}/log"
    await cluster.create_pod("much", "sh", "-c", much)
    await cluster.create_pod("little", "sh", "-c", f"mkdir {folder}; echo x > {folder}/log")

    pod = await cluster.wait_phase("much", "Succeeded")
    little = await cluster.wait_phase("little", "Succeeded")

    assert "wrote 96.3 MiB to " in removed_writes(pod)
    assert "/data0/log" in removed_writes(pod)
    assert removed_writes(little) == ""
    assert await told(cluster, "little") == []


async def test_pod_that_is_deleted_tells_it_too(cluster):
    await cluster.create_pod(
        "stays",
        "sh",
        "-c",
        "echo weights > ~/m.pt; echo ready; trap 'exit 0' TERM; while :; do sleep 0.05; done",
    )
    await cluster.wait_phase("stays", "Running")

    async def is_ready():
        return "ready" in await cluster.logs("stays")

    await cluster.wait_for(is_ready, "the write")
    await cluster.delete("stays")
    await cluster.wait_gone("stays")

    assert "m.pt" in await wait_told(cluster, "stays")


async def test_container_that_starts_again_tells_what_its_last_start_wrote(cluster, tmp_path):
    if cluster.mode == "plain":
        pytest.skip("HOME is the pod's there, and stays until its end")
    await cluster.create_pod(
        "again",
        "sh",
        "-c",
        f"echo weights > /data.pt; {UNTIL_TOLD}; exit 3",
        container={"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]},
        volumes=[{"name": "kept", "hostPath": {"path": str(tmp_path)}}],
        restartPolicy="OnFailure",
    )
    await cluster.wait_phase("again", "Running")
    (tmp_path / "go").touch()

    message = await wait_told(cluster, "again")

    assert message == "wrote 8 B to /data.pt, which is removed with each start of `main`: mount a volume"


async def test_layer_of_a_pod_whose_shim_was_killed_is_told(cluster):
    place = "~/m.pt" if cluster.mode == "plain" else "/var/lib/m.pt"
    await cluster.create_pod("lost", "sh", "-c", f"echo weights > {place}; echo ready; sleep 600")
    pod = await cluster.wait_phase("lost", "Running")

    async def is_ready():
        return "ready" in await cluster.logs("lost")

    await cluster.wait_for(is_ready, "the write")
    state = json.loads((cluster.paths.pods / pod["metadata"]["uid"] / "state.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)

    pod = await cluster.wait_phase("lost", "Failed")

    assert "m.pt" in removed_writes(pod)
