"""Which pod `gangline exec` means, and which ports are named."""

import asyncio
import concurrent.futures

import pytest

from gangline.cli.pods import terminal
from gangline.cli.pods.port_forward import parse_ports
from gangline.errors import UserError
from gangline.kube.errors import ServerError
from gangline.kube.pod_streams.program import exit_code_of
from gangline.workloads.running_pod import choose_pod

JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "bert"},
    "spec": {
        "slotsPerWorker": 2,
        "mpiReplicaSpecs": {
            "Launcher": {"template": {"spec": {"containers": [{"command": ["mpirun", "-n", "4", "train"]}]}}},
            "Worker": {"replicas": 2},
        },
    },
}


def pod(name: str, role: str, phase: str = "Running") -> dict:
    labels = {"training.kubeflow.org/job-role": role}
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}


PODS = [
    pod("bert-launcher-x7k2p", "launcher"),
    pod("bert-worker-0", "worker"),
    pod("bert-worker-1", "worker"),
]


def test_launchers_pod_is_meant_unless_a_rank_or_a_pod_is_named():
    def chosen(**options):
        return choose_pod(JOB, PODS, **{"instance": None, "rank": None} | options)["metadata"]["name"]

    assert chosen() == "bert-launcher-x7k2p"
    assert chosen(rank=1) == "bert-worker-0"
    assert chosen(rank=3) == "bert-worker-1"
    assert chosen(instance="worker-1") == "bert-worker-1"


def test_pod_that_does_not_run_is_told_with_those_there_are():
    pods = [pod("bert-launcher-x7k2p", "launcher", "Pending")]

    with pytest.raises(UserError, match="no primary pod of job `bert` runs") as caught:
        choose_pod(JOB, pods, instance=None, rank=None)
    assert caught.value.hint == "its pods: `bert-launcher-x7k2p` (Pending)"


def test_ports_are_read_as_by_kubectl():
    assert [parse_ports(text) for text in ("80", "8080:80", ":80")] == [(80, 80), (8080, 80), (0, 80)]
    for text in ("0", "80:", "65536", "a", "1:2:3"):
        with pytest.raises(UserError, match="names no ports"):
            parse_ports(text)


def test_exit_code_is_that_of_the_status():
    cause = '{"causes":[{"reason":"ExitCode","message":"137"}]}'
    failed = f'{{"status":"Failure","reason":"NonZeroExitCode","details":{cause}}}'.encode()

    assert exit_code_of(b'{"metadata":{},"status":"Success"}') == 0
    assert exit_code_of(failed) == 137
    with pytest.raises(ServerError, match="no such program"):
        exit_code_of(b'{"kind":"Status","status":"Failure","message":"no such program","code":500}')
    with pytest.raises(ServerError, match="no exit code"):
        exit_code_of(b'{"status":"Failure","reason":"NonZeroExitCode"}')


def test_input_that_comes_after_the_end_is_no_error(monkeypatch):
    def too_late(coroutine, loop):
        coroutine.close()
        sent: concurrent.futures.Future[None] = concurrent.futures.Future()
        sent.cancel()
        return sent

    class Ended:
        async def send(self, data): ...

    monkeypatch.setattr(terminal.asyncio, "run_coroutine_threadsafe", too_late)
    monkeypatch.setattr(terminal.os, "read", lambda number, size: b"late")

    terminal._read_input(Ended(), asyncio.new_event_loop())
