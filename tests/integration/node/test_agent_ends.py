"""A pod's end is told exactly once and its program started once, whatever is killed or restored in between.

In scope: what the node agent records, tells and never starts again. Out of scope: who starts server and agent
again (``test_cli_restarts_e2e.py``), random moments (``tests/faults/test_kill_rounds.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from gangline.api.resources import CONFIG_MAPS, PODS
from gangline.cluster.node.shim.processes import children, is_zombie, marked
from gangline.kube.errors import ApiError


class Counted:
    """A program that leaves a line for every start, and ends with a code once it is let go."""

    def __init__(self, folder, name: str = "main", code: int = 0) -> None:
        self.name = name
        self.starts = folder / f"{name}.starts"
        self.go = folder / f"{name}.go"
        self.script = (
            f"echo $$ >> {self.starts}; echo out of {name}; "
            f"until [ -e {self.go} ]; do sleep 0.02; done; exit {code}"
        )

    @property
    def count(self) -> int:
        return len(self.starts.read_text().split()) if self.starts.exists() else 0

    def container(self) -> dict:
        return {"name": self.name, "image": "gangline/base", "command": ["sh", "-c", self.script]}


@pytest.fixture
def counted(tmp_path):
    return lambda *args, **options: Counted(tmp_path, *args, **options)


async def begun(cluster, name, program):
    """Create a pod of one program and wait until it runs and the API says so."""
    await cluster.create_pod(name, container=program.container())
    await cluster.wait_phase(name, "Running")
    await cluster.wait_for(lambda: program.count, "the program")


def folder_of(cluster, uid):
    return cluster.paths.pods / uid


async def ended_on_disk(cluster, uid):
    """Wait until the pod's end is written down, by its shim or by the agent."""

    def is_written():
        state = folder_of(cluster, uid) / "state.json"
        with contextlib.suppress(OSError, ValueError):
            reports = json.loads(state.read_text())["containers"].values()
            return all(one["state"] == "exited" for one in reports)
        return (cluster.paths.ends / f"{uid}.json").exists()

    await cluster.wait_for(is_written, "the record of the end")


def kill_pod(uid, *, cluster):
    """Kill all processes of a pod and the shim that watches over them."""
    pids = [pid for pid in marked("GANGLINE_POD_UID", uid) if not is_zombie(pid)]
    shims = {parent(pid) for pid in pids} - set(pids)
    for pid in (*shims, *pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def settle(cluster):
    """Have the agent do whatever it would do: a pod created now has come to its end."""
    name = f"after-{os.urandom(3).hex()}"
    await cluster.create_pod(name, "true")
    await cluster.wait_phase(name, "Succeeded")


async def test_an_end_while_the_server_is_away_is_told_when_it_is_back(plain, counted):
    program = counted(code=3)
    await begun(plain, "away", program)
    await plain.server.stop()
    program.go.touch()
    uid = (await uids(plain))[0]
    await ended_on_disk(plain, uid)
    await plain.wait_for(lambda: not folder_of(plain, uid).exists(), "the pod's place to be given back")
    await plain.server.start()

    pod = await plain.wait_phase("away", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3

    await plain.client.patch(PODS, "away", {"metadata": {"labels": {"written": "later"}}}, "default")
    await settle(plain)
    assert program.count == 1
    assert await plain.logs("away") == "out of main\n"


async def uids(cluster):
    return [path.name for path in cluster.paths.pods.iterdir()]


@pytest.mark.parametrize("agent_sees_the_end", [True, False])
async def test_an_end_that_nobody_could_be_told_is_told_by_the_next_agent(plain, counted, agent_sees_the_end):
    program = counted()
    await begun(plain, "away", program)
    uid = (await uids(plain))[0]
    await plain.server.stop()
    if not agent_sees_the_end:
        plain.stop_agent(signal.SIGKILL)
    program.go.touch()
    await ended_on_disk(plain, uid)
    if agent_sees_the_end:
        await plain.wait_for(lambda: (plain.paths.ends / f"{uid}.json").exists(), "the record of the end")
        plain.stop_agent(signal.SIGKILL)
    await plain.server.start()
    await plain.start_agent()

    await plain.wait_phase("away", "Succeeded")
    await settle(plain)
    assert program.count == 1


async def test_a_pod_of_which_the_api_was_set_back_is_not_started_again(plain, counted, tmp_path):
    program = counted()
    await begun(plain, "back", program)
    older = tmp_path / "older"
    await plain.server.stop()
    older.mkdir()
    for path in plain.paths.state.glob("store.sqlite*"):
        shutil.copy(path, older)
    await plain.server.start()
    program.go.touch()
    await plain.wait_phase("back", "Succeeded")
    await plain.delete("back")
    await plain.wait_gone("back")

    await plain.server.stop()
    for path in plain.paths.state.glob("store.sqlite*"):
        path.unlink()
    for path in older.iterdir():
        shutil.copy(path, plain.paths.state)
    await plain.server.start()

    await plain.wait_phase("back", "Succeeded")
    await settle(plain)
    assert program.count == 1


@pytest.mark.parametrize("phase", ["Running", "Pending"])
async def test_a_pod_of_which_the_status_was_changed_is_not_started_again(plain, counted, phase):
    program = counted()
    await begun(plain, "changed", program)
    program.go.touch()
    await plain.wait_phase("changed", "Succeeded")

    status = {"status": {"phase": phase, "containerStatuses": None}}
    with contextlib.suppress(ApiError):  # a server that refuses this is right as well
        await plain.client.patch(PODS, "changed", status, "default", subresource="status")

    pod = await plain.wait_phase("changed", "Succeeded")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert program.count == 1


async def test_a_running_pod_whose_record_is_gone_has_failed_and_is_not_started_again(plain, counted):
    program = counted()
    await begun(plain, "bare", program)
    plain.stop_agent(signal.SIGKILL)
    shutil.rmtree(plain.paths.pods)
    await plain.start_agent()

    pod = await plain.wait_phase("bare", "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137
    assert "no record" in ended["message"]
    assert program.count == 1
    await plain.wait_for(lambda: plain.marked_processes() == [], "its processes to end")


@pytest.mark.parametrize("place", ["as it was", "without the pods' folder"])
async def test_a_deletion_that_a_killed_agent_did_not_confirm_is_finished_by_the_next(plain, counted, place):
    running, ended, fresh = counted("running"), counted("ended"), counted("fresh")
    await begun(plain, "running", running)
    await begun(plain, "ended", ended)
    plain.stop_agent(signal.SIGKILL)
    await plain.create_pod("fresh", container=fresh.container())
    for name in ("running", "ended", "fresh"):
        await plain.delete(name, grace_period_s=30)
    patch = {"status": {"phase": "Succeeded"}}
    await plain.client.patch(PODS, "ended", patch, "default", subresource="status")
    if place != "as it was":
        shutil.rmtree(plain.paths.pods)
    running.go.touch()
    await plain.start_agent()

    for name in ("running", "ended", "fresh"):
        await plain.wait_gone(name)
    assert (running.count, ended.count, fresh.count) == (1, 1, 0)
    await plain.wait_for(lambda: plain.marked_processes() == [], "processes to end")


async def test_a_deletion_while_the_server_is_away_is_confirmed_when_it_is_back(plain):
    await plain.create_pod("waiting", "true", container={"envFrom": [{"configMapRef": {"name": "never"}}]})

    async def waits():
        return "CreateContainerConfigError" in str((await plain.pod("waiting"))["status"])

    await plain.wait_for(waits, "the pod to wait")
    plain.agent.send_signal(signal.SIGSTOP)
    await plain.delete("waiting", grace_period_s=30)
    await plain.server.stop()
    plain.agent.send_signal(signal.SIGCONT)
    await plain.server.start()

    await plain.wait_gone("waiting")


async def test_a_pod_that_never_started_starts_under_the_next_agent(plain, counted):
    program = counted()
    late = {"envFrom": [{"configMapRef": {"name": "late"}}]}
    await plain.create_pod("late", container=program.container() | late)

    async def waits():
        return "CreateContainerConfigError" in str((await plain.pod("late"))["status"])

    await plain.wait_for(waits, "the pod to wait")
    plain.stop_agent(signal.SIGKILL)
    await plain.start_agent()
    await plain.create(CONFIG_MAPS, "late", data={"A": "1"})
    program.go.touch()

    await plain.wait_phase("late", "Succeeded")
    assert program.count == 1


async def test_containers_that_had_ended_stay_ended_when_shim_and_agent_are_killed_in_turn(plain, counted):
    first, done, long = counted("first"), counted("done"), counted("long", code=0)
    first.go.touch()
    done.go.touch()
    await plain.create_pod(
        "mixed",
        initContainers=[first.container()],
        containers=[done.container(), long.container()],
        restartPolicy="OnFailure",
    )
    await plain.wait_for(lambda: long.count == 1, "the long program")
    uid = (await uids(plain))[0]
    state = folder_of(plain, uid) / "state.json"
    await plain.wait_for(
        lambda: json.loads(state.read_text())["containers"]["done"]["state"] == "exited", "an end on disk"
    )

    for number in (2, 3):
        kill_pod(uid, cluster=plain)
        await plain.wait_for(lambda n=number: long.count == n, f"start {number}")
        plain.stop_agent(signal.SIGKILL)
        await plain.start_agent()

    long.go.touch()
    pod = await plain.wait_phase("mixed", "Succeeded")
    counts = {one["name"]: one["restartCount"] for one in pod["status"]["containerStatuses"]}
    assert counts == {"done": 0, "long": 2}
    assert (first.count, done.count, long.count) == (1, 1, 3)


async def test_pods_of_a_machine_that_was_restarted_have_failed_and_say_so(plain, counted):
    never, always = counted("never"), counted("always")
    await begun(plain, "never", never)
    await plain.create_pod("always", containers=[always.container()], restartPolicy="Always")
    await plain.wait_phase("always", "Running")
    plain.stop_agent(signal.SIGKILL)
    for uid in await uids(plain):
        kill_pod(uid, cluster=plain)
        record = folder_of(plain, uid) / "pod.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"boot": "an earlier one"}))
    await plain.start_agent()

    pod = await plain.wait_phase("never", "Failed")
    assert "machine was restarted" in pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    await plain.wait_for(lambda: always.count == 2, "the second start")
    assert never.count == 1


async def test_pods_go_on_and_new_ones_start_when_the_fork_server_is_killed(plain, counted):
    program = counted()
    await begun(plain, "steady", program)
    fork_server = children(plain.agent.pid)
    assert fork_server
    for pid in fork_server:
        os.kill(pid, signal.SIGKILL)

    await settle(plain)
    program.go.touch()
    await plain.wait_phase("steady", "Succeeded")
    assert program.count == 1
