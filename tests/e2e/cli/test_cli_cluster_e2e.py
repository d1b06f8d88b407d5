"""The one-machine cluster's life: start, kills, two clusters, the end without leftovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from gangline.cluster.daemon.daemon import is_alive
from gangline.cluster.node.shim.processes import marked


def status(commands):
    return json.loads(commands("status", "-o", "json").stdout)


def test_a_cluster_starts_is_shown_and_leaves_nothing(fresh):
    up = fresh("up", "--nodes", "2")
    assert up.returncode == 0, up.stderr
    assert "2 nodes" in up.stderr
    report = status(fresh)
    assert [node["name"] for node in report["nodes"]] == ["node-0", "node-1"]
    assert all(node["ready"] for node in report["nodes"])
    pids = [process["pid"] for process in report["processes"].values()]
    down = fresh("down", "--purge")
    assert down.returncode == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not (fresh.home / "default").exists()
    assert fresh("status").returncode == 3


def test_a_cluster_that_starts_again_counts_the_nodes_it_has(fresh):
    fresh("up", "--nodes", "2")
    fresh("down")

    up = fresh("up")

    assert "2 nodes" in up.stderr
    assert len(status(fresh)["nodes"]) == 2


def test_an_interrupt_of_the_terminal_does_not_reach_the_daemons(fresh):
    process = fresh.start("up", start_new_session=True)
    assert process.wait(60) == 0
    before = status(fresh)["processes"]
    for found in before.values():
        assert os.getsid(found["pid"]) != os.getsid(process.pid if process.poll() is None else 0)
        assert os.getsid(found["pid"]) == found["pid"]


def test_a_killed_server_is_started_again_and_adopts_the_pods(fresh, held_pod):
    manifest, let_go = held_pod("steady")
    process = fresh.start("run", manifest)
    assert process.stdout.readline() == "on\n"
    os.kill(status(fresh)["processes"]["server"]["pid"], signal.SIGKILL)
    said = []
    while not said or "1 running pod adopted" not in said[-1]:
        said.append(process.stderr.readline())
        assert said[-1], "".join(said)
    assert "was killed" in "".join(said)
    let_go()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "off\n"), err


def test_a_killed_agent_is_started_again_while_a_job_runs(fresh, held_pod, until):
    manifest, let_go = held_pod("steady")
    process = fresh.start("run", manifest)
    assert process.stdout.readline() == "on\n"
    killed = status(fresh)["processes"]["agent"]["pid"]
    os.kill(killed, signal.SIGKILL)
    report = fresh.home / "default" / "agent.json"
    until(lambda: json.loads(report.read_text())["pid"] != killed, "another agent")
    let_go()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "off\n"), err
    assert "node agent" in fresh("up").stderr


def test_down_ends_what_killed_daemons_left(fresh, pod_manifest):
    process = fresh.start("run", str(pod_manifest("steady", "echo on; exec sleep 600")))
    assert process.stdout.readline() == "on\n"
    facts = json.loads((fresh.home / "default" / "cluster.json").read_text())
    process.kill()
    process.communicate()
    found = status(fresh)["processes"]
    for name in ("server", "agent"):  # the server would start an agent again
        os.kill(found[name]["pid"], signal.SIGKILL)
    assert marked("GANGLINE_CLUSTER_ID", facts["id"])

    down = fresh("down", "--purge")

    assert "ended 1 pod that still ran" in down.stderr
    assert not [pid for pid in marked("GANGLINE_CLUSTER_ID", facts["id"]) if is_alive(pid)]
    assert not Path("/sys/class/net", facts["bridge"]).exists()
    assert not (fresh.home / "default").exists()


def test_two_clusters_of_one_user_do_not_meet(fresh, pod_manifest):
    assert fresh("up").returncode == 0
    assert fresh("up", "--cluster", "other").returncode == 0
    try:
        assert fresh("run", str(pod_manifest("here", "true"))).returncode == 0
        assert fresh("get", "here").returncode == 0
        assert fresh("get", "here", "--cluster", "other").returncode == 2
        assert (
            status(fresh)["port"]
            != json.loads(fresh("status", "-o", "json", "--cluster", "other").stdout)["port"]
        )
    finally:
        fresh("down", "--purge", "--cluster", "other")


def kubectl(commands, *words):
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    path = commands.home / "kubeconfig"
    path.write_text(commands("kubeconfig").stdout)
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(path), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubectl_can_use_the_kubeconfig(fresh):
    assert kubectl(fresh, "get", "nodes", "-o", "name") == "node/node-0\n"


def test_up_adds_the_nodes_that_are_asked_for_and_those_that_were_deleted(fresh):
    assert fresh("up", "--nodes", "2").returncode == 0
    kubectl(fresh, "delete", "node", "node-1")

    assert fresh("up", "--nodes", "3").returncode == 0

    names = ["node/node-0", "node/node-1", "node/node-2"]
    assert kubectl(fresh, "get", "nodes", "-o", "name").splitlines() == names


def test_a_deployment_holds_no_down_up_and_goes_on_at_the_next_start(fresh):
    served = ("rollout", "status", "deployment/served", "--timeout=60s")
    kubectl(fresh, "create", "deployment", "served", "--image=gangline/base", "--", "sleep", "600")
    kubectl(fresh, *served)

    down = fresh("down")

    assert "did not end" not in down.stderr
    assert fresh("up").returncode == 0
    kubectl(fresh, *served)


def test_down_ends_unfinished_jobs_and_says_which(fresh, pod_manifest):
    assert fresh("apply", str(pod_manifest("endless", "exec sleep 600"))).stdout == "pod/endless created\n"
    down = fresh("down")
    assert "default/endless" in down.stderr
    assert fresh("up").returncode == 0
    assert fresh("delete", "pod/endless").returncode == 2, "it did not begin again"
    assert json.loads(fresh("get", "pod/endless", "-o", "json").stdout)["status"] == "CANCELLED"
