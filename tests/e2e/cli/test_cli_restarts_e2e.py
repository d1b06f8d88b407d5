"""Server and node agent start each other again, nobody brings back what `gangline down` has ended."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from gangline.cluster.daemon.daemon import is_alive
from gangline.cluster.node.shim.processes import CLUSTER_MARKER, children, marked
from gangline.cluster.process_lock import read_lock


def status(commands):
    return json.loads(commands("status", "-o", "json").stdout)


def held(commands, process):
    """Return the process id of a daemon that lives, else 0."""
    found = read_lock(commands.home / "default" / f"{process}.lock")
    return found.pid if found.state == "held" else 0


def kill(commands, *processes):
    """Kill daemons at once; return their process ids."""
    pids = [held(commands, process) for process in processes]
    assert all(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def parent_of(pid):
    """Return the process id of a process's parent."""
    fields = Path(f"/proc/{pid}/stat").read_text()
    return int(fields.rpartition(")")[2].split()[1])


def daemons(commands, words):
    """Return the processes of this home that were started with such words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if words in line and f"GANGLINE_HOME={commands.home}".encode() in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("isolation", ["auto", "user", "plain"])
def test_a_killed_server_comes_back_without_a_command(fresh, until, isolation):
    up = fresh("up", "--isolation", isolation)
    if up.returncode == 2 and isolation == "user":
        pytest.skip(up.stderr)
    assert up.returncode == 0, up.stderr
    (killed,) = kill(fresh, "server")

    until(lambda: held(fresh, "server") not in (0, killed), "another server")

    until(lambda: status(fresh)["ready"], "the server to answer")
    report = status(fresh)
    server = report["processes"]["server"]
    assert (server["restarts"], report["processes"]["agent"]["restarts"]) == (1, 0)
    assert server["lastRestartReason"] == f"process {killed} was killed"
    assert Path(f"/proc/{server['pid']}").stat().st_uid == os.getuid()
    assert "started again 1 time" in fresh("status").stdout
    assert f'server was killed; started again" pid={killed}' in (
        fresh.home / "default" / "agent.log"
    ).read_text().replace("'", '"')
    assert "was killed" in fresh("up").stderr
    assert "was killed" not in fresh("up").stderr


def test_each_is_started_again_by_the_other_time_after_time(fresh, until):
    assert fresh("up").returncode == 0
    for process in ("server", "agent", "server", "agent"):
        (killed,) = kill(fresh, process)
        until(lambda p=process, k=killed: held(fresh, p) not in (0, k), f"another {process}")
        until(lambda: status(fresh)["ready"], "the server to answer")
    done = fresh("run", "--name", "after", "-n", "1", "--", "true")
    assert done.returncode == 0, done.stderr


def test_down_brings_nothing_back(fresh, until):
    assert fresh("up").returncode == 0
    agent = held(fresh, "agent")
    beside = children(agent)
    assert beside
    kill(fresh, "server")

    down = fresh("down")

    assert down.returncode == 0, down.stderr
    until(lambda: not any(is_alive(pid) for pid in (agent, *beside)), "whoever could start it again to end")
    assert not held(fresh, "server")
    assert daemons(fresh, "serve-cluster") == daemons(fresh, "serve-agent") == []


def test_down_leaves_nothing_of_a_program_whose_daemons_were_killed(fresh, until):
    process = fresh.start("run", "-n", "1", "--", "sh", "-c", "echo on; exec sleep 600")
    assert process.stdout.readline() == "on\n"
    cluster_id = json.loads((fresh.home / "default" / "cluster.json").read_text())["id"]
    found = marked(CLUSTER_MARKER, cluster_id)
    shims = set(map(parent_of, found)) - set(found)
    assert all("gl-shim" in Path(f"/proc/{pid}/comm").read_text() for pid in shims) and shims
    assert list((fresh.home / "default" / "sessions").iterdir())
    process.kill()
    process.communicate()
    kill(fresh, "server", "agent")

    down = fresh("down")

    assert "ended 1 pod that still ran" in down.stderr
    until(lambda: not any(map(is_alive, shims)), "the end of the shims")
    assert not (fresh.home / "default" / "sessions").exists()


def test_a_server_that_is_asked_to_end_takes_the_agent_with_it(fresh, until):
    assert fresh("up").returncode == 0
    agent = held(fresh, "agent")
    beside = children(agent)
    server = held(fresh, "server")

    os.kill(server, signal.SIGTERM)

    until(lambda: not any(is_alive(pid) for pid in (server, agent, *beside)), "all to end")
    assert daemons(fresh, "serve-cluster") == daemons(fresh, "serve-agent") == []


def test_down_deletes_unfinished_jobs_of_a_server_that_was_just_killed(fresh, pod_manifest, until):
    assert fresh("apply", str(pod_manifest("endless", "exec sleep 600"))).returncode == 0
    until(lambda: "Running" in fresh("get", "pod/endless").stdout, "the pod to run")  # else it is no run
    kill(fresh, "server")

    down = fresh("down")

    assert "default/endless" in down.stderr
    assert fresh("up").returncode == 0
    assert "CANCELLED" in fresh("get", "pod/endless").stdout  # as a run of the past


def test_commands_at_once_start_one_server(fresh):
    assert fresh("up").returncode == 0
    kill(fresh, "server", "agent")

    processes = [fresh.start("up") for _ in range(3)]

    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert len(daemons(fresh, "serve-cluster")) == 1
    assert daemons(fresh, "serve-cluster") == [held(fresh, "server")]


@pytest.mark.parametrize("victims", [("server",), ("server", "agent")])
def test_a_run_goes_on_over_a_kill_and_ends_with_its_own_code(fresh, held_pod, victims):
    manifest, let_go = held_pod("steady")
    process = fresh.start("run", manifest)
    assert process.stdout.readline() == "on\n"
    kill(fresh, *victims)
    let_go()

    out, err = process.communicate(timeout=120)

    assert (process.returncode, out) == (0, "off\n"), err
    assert "succeeded" in err


def test_a_command_waits_for_a_server_that_is_coming_back(fresh, pod_manifest):
    assert fresh("apply", str(pod_manifest("quick", "true"))).returncode == 0
    kill(fresh, "server")

    listed = fresh("get", "pod/quick")

    assert listed.returncode == 0, listed.stderr
    assert "quick" in listed.stdout
