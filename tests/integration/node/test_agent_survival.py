"""What happens to pods when processes are killed: the agent, a pod's shim, and the pod itself."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from gangline.api.resources import CONFIG_MAPS


def shim_of(pid: int) -> int:
    """Return the parent of a container's main process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def main_process(cluster, name: str) -> int:
    pod = await cluster.wait_phase(name, "Running")
    uid = pod["metadata"]["uid"]

    def find() -> int:
        from gangline.cluster.node.shim.processes import marked

        pids = marked("GANGLINE_POD_UID", uid)
        with contextlib.suppress(OSError):  # one has ended meanwhile
            return next((pid for pid in pids if shim_of(pid) not in pids), 0)
        return 0

    return await cluster.wait_for(find, "the pod's process")


async def test_next_agent_adopts_pods_of_a_killed_one(cluster):
    await cluster.create_pod(
        "long", "sh", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    )
    pid = await main_process(cluster, "long")

    cluster.stop_agent(signal.SIGKILL)
    os.kill(pid, 0)
    await cluster.start_agent()

    assert '"adopted": 1' in (cluster.paths.state / "agent.json").read_text()
    os.kill(pid, 0)
    await cluster.delete("long")
    await cluster.wait_gone("long")
    assert cluster.marked_processes() == []
    assert list(cluster.paths.pods.iterdir()) == []


async def test_end_of_a_container_while_no_agent_lived_is_reported_by_the_next(cluster):
    script = "trap 'exit 4' USR1; echo up; while :; do sleep 0.02; done"
    await cluster.create_pod("brief", "sh", "-c", script)
    pid = await main_process(cluster, "brief")

    async def has_trap():
        return "up" in await cluster.logs("brief")

    await cluster.wait_for(has_trap, "the trap")
    shim = shim_of(pid)
    cluster.stop_agent(signal.SIGKILL)
    os.kill(pid, signal.SIGUSR1)
    await cluster.wait_for(
        lambda: '"exit_code": 4' in next(cluster.paths.pods.iterdir()).joinpath("state.json").read_text(),
        "end",
    )

    await cluster.start_agent()

    pod = await cluster.wait_phase("brief", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert shim > 1


async def test_leftovers_of_a_pod_deleted_while_no_agent_lived_are_removed(cluster):
    await cluster.create_pod("gone", "sh", "-c", "(setsid sleep 500 &) ; sleep 500")
    await main_process(cluster, "gone")
    cluster.stop_agent(signal.SIGKILL)
    await cluster.delete("gone", grace_period_s=0)

    await cluster.start_agent()

    assert '"removed": 1' in (cluster.paths.state / "agent.json").read_text()
    assert cluster.marked_processes() == []
    assert list(cluster.paths.pods.iterdir()) == []
    assert not [path for path in cluster.paths.run.iterdir() if path.suffix in (".rsh",)]


@pytest.mark.parametrize("agent_lives", [True, False], ids=["agent lives", "agent is dead too"])
async def test_container_of_a_killed_shim_is_reported_failed_and_its_processes_end(cluster, agent_lives):
    await cluster.create_pod("orphan", "sh", "-c", "(setsid sleep 500 &) ; sleep 500")
    pid = await main_process(cluster, "orphan")
    if not agent_lives:
        cluster.stop_agent(signal.SIGKILL)
    os.kill(shim_of(pid), signal.SIGKILL)
    if not agent_lives:
        await cluster.start_agent()

    pod = await cluster.wait_phase("orphan", "Failed")

    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    assert "watched over this container was killed" in ended["message"]
    await cluster.wait_for(lambda: cluster.marked_processes() == [], "processes to end")


async def test_deleted_pod_gets_its_grace_period_then_is_killed(cluster):
    await cluster.create_pod("deaf", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await cluster.create_pod(
        "polite", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    )
    for name in ("deaf", "polite"):
        await cluster.wait_phase(name, "Running")

        async def has_trap(name=name):
            return "up" in await cluster.logs(name)

        await cluster.wait_for(has_trap, "the trap")

    await cluster.delete("deaf", grace_period_s=1)
    await cluster.delete("polite", grace_period_s=60)

    await cluster.wait_gone("polite")
    await cluster.wait_gone("deaf")
    assert cluster.marked_processes() == []


async def test_failing_container_is_restarted_and_then_backs_off(cluster):
    await cluster.create_pod("loop", "sh", "-c", "exit 1", restartPolicy="OnFailure")

    async def backs_off():
        pod = await cluster.pod("loop")
        statuses = pod["status"].get("containerStatuses", [{}])
        return pod if "CrashLoopBackOff" in str(statuses[0].get("state")) else None

    pod = await cluster.wait_for(backs_off, "CrashLoopBackOff")

    status = pod["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert pod["status"]["phase"] == "Running"


async def test_changed_config_map_reaches_a_running_pod(cluster):
    await cluster.create(CONFIG_MAPS, "live", data={"word": "one"})
    script = 'cat "$FILE"; echo; until grep -q two "$FILE"; do sleep 0.02; done; cat "$FILE"; echo'
    await cluster.create_pod(
        "reader",
        "sh",
        "-c",
        script,
        container={
            "env": [{"name": "FILE", "value": "/live/word"}],
            "volumeMounts": [{"name": "live", "mountPath": "/live"}],
        },
        volumes=[{"name": "live", "configMap": {"name": "live"}}],
    )
    await cluster.wait_phase("reader", "Running")

    async def has_read():
        return "one" in await cluster.logs("reader")

    await cluster.wait_for(has_read, "the first word")
    await cluster.client.patch(CONFIG_MAPS, "live", {"data": {"word": "two"}}, "default")

    await cluster.wait_phase("reader", "Succeeded")
    assert await cluster.logs("reader") == "one\ntwo\n"


async def test_pod_waits_for_a_missing_config_map_and_starts_when_it_appears(cluster):
    await cluster.create_pod(
        "waiting",
        "true",
        container={"envFrom": [{"configMapRef": {"name": "late"}}]},
    )

    async def waits():
        pod = await cluster.pod("waiting")
        return "CreateContainerConfigError" in str(pod["status"].get("containerStatuses"))

    await cluster.wait_for(waits, "CreateContainerConfigError")
    await cluster.create(CONFIG_MAPS, "late", data={"A": "1"})

    await cluster.wait_phase("waiting", "Succeeded")


async def test_command_that_does_not_exist_is_a_start_error(cluster):
    await cluster.create_pod("typo", "no-such-program")

    pod = await cluster.wait_phase("typo", "Failed")

    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert ended["message"] == 'exec: "no-such-program": executable file not found in $PATH'


async def test_unknown_image_waits_with_a_message_that_names_the_ways_on(cluster):
    await cluster.create_pod("strange", "true", container={"image": "example.com/other:1"})

    async def waits():
        pod = await cluster.pod("strange")
        return "ErrImageNeverPull" in str(pod["status"].get("containerStatuses")) and pod

    pod = await cluster.wait_for(waits, "ErrImageNeverPull")
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert "gangline/base" in waiting["message"]
    assert "--context" in waiting["message"]


async def test_terminated_shim_ends_its_pod_with_it(cluster):
    await cluster.create_pod("asked", "sh", "-c", "(setsid sleep 500 &) ; sleep 500")
    shim = shim_of(await main_process(cluster, "asked"))
    cluster.stop_agent(signal.SIGKILL)

    os.kill(shim, signal.SIGTERM)

    await cluster.wait_for(lambda: cluster.marked_processes() == [], "processes to end")
    await cluster.wait_for(lambda: not Path(f"/proc/{shim}").exists(), "the shim to end")


async def test_pod_whose_cluster_was_erased_ends_by_itself(cluster):
    await cluster.create_pod("forsaken", "sh", "-c", "sleep 500")
    shim = shim_of(await main_process(cluster, "forsaken"))
    cluster.stop_agent(signal.SIGKILL)

    shutil.rmtree(cluster.paths.pods)

    await cluster.wait_for(lambda: not Path(f"/proc/{shim}").exists(), "the shim to end")
    assert cluster.marked_processes() == []
    cluster.paths.pods.mkdir()
