"""Jobs and runs, seen from Python.

In scope: what `Client` and its jobs answer beside `run`; other processes, interrupts, event loops. Out of
scope: what the answers are made of (tests of the command line, which asks the same functions).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gangline
from gangline.client import NoSuchJobError
from gangline.errors import UserError

LIMIT_S = 60.0
TRAINING = (
    "import json, time\n"
    "for step in (1, 2, 3):\n"
    "    print('@gangline ' + json.dumps(dict(kind='progress', step=step, steps=3, loss=1 / step)))\n"
    "    print('line', step, flush=True)\n"
)
CALLER = """
import sys, time
import gangline

def slow(seconds):
    import time
    print("began", flush=True)
    time.sleep(seconds)
    return "done"

gangline.Client().run(slow, ranks=2, args=(float(sys.argv[2]),), name=sys.argv[1])
"""


def manifest(name: str, **spec: object) -> dict[str, object]:
    container = {"name": "main", "image": "gangline/base", "command": ["echo", "hello"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def sleep_long() -> None:
    time.sleep(600)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def caller(name: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs a function; it is handed over once the function has begun."""
    line = [sys.executable, "-c", CALLER, name, str(seconds)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert "began" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_a_job_goes_on_by_itself_and_is_found_by_its_name(client: gangline.Client) -> None:
    job = client.start(lambda: os.environ["RANK"], ranks=2, name="by-itself")

    assert job.wait(LIMIT_S).status == "SUCCEEDED"
    assert job.results() == ["0", "1"]
    found = client.job("by-itself")
    assert (found.uid, found.kind) == (job.uid, "MPIJob")
    assert "by-itself" in [one.name for one in client.jobs()]


def test_a_log_is_read_as_people_read_it(client: gangline.Client) -> None:
    job = client.start([sys.executable, "-c", TRAINING], name="training")

    assert list(job.logs(follow=True)) == ["line 1", "line 2", "line 3"]
    assert list(job.logs(tail=1)) == ["line 3"]


def test_metrics_are_columns(client: gangline.Client) -> None:
    columns = client.run([sys.executable, "-c", TRAINING], write=lambda text: None).metrics()

    assert columns["step"] == [1, 2, 3]
    assert columns["loss"] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert columns["time"] == sorted(columns["time"])  # type: ignore[type-var]


def test_a_manifest_is_submitted_as_object_and_as_file(client: gangline.Client, tmp_path: Path) -> None:
    job = client.submit(manifest("plain"))
    assert job.wait(LIMIT_S, check=True).status == "SUCCEEDED"
    assert list(job.logs()) == ["hello"]

    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n")
    assert client.submit_all(file) == []
    with pytest.raises(UserError, match="one job was expected, and this one has 0"):
        client.submit(file)


def test_explain_says_why_a_job_waits(client: gangline.Client) -> None:
    job = client.submit(manifest("held", suspend=True))

    assert job.explain()["state"] == "suspended"
    with pytest.raises(TimeoutError):
        job.wait(0.5)
    job.cancel()
    with pytest.raises(NoSuchJobError):
        client.job("no-such-job")


def test_a_cancelled_job_is_kept_as_a_run(client: gangline.Client) -> None:
    job = client.start(sleep_long, name="cancelled")
    wait_until(lambda: job.refresh().status == "RUNNING")

    job.cancel()

    assert [run.status for run in client.runs("cancelled")] == ["CANCELLED"]
    assert job.refresh().status == "CANCELLED"
    job.cancel()  # is gone, and stays so


def test_a_job_is_suspended_goes_on_is_scaled_and_ends_with_its_block(client: gangline.Client) -> None:
    container = {"name": "pytorch", "image": "gangline/base", "command": ["sleep", "600"]}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    roles = {"Master": {"template": template}, "Worker": {"replicas": 1, "template": template}}
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "changed"}}
    with client, client.submit({**manifest, "spec": {"pytorchReplicaSpecs": roles}}) as job:
        wait_until(lambda: len(running(job)) == 2)
        job.suspend()
        wait_until(lambda: not job.refresh().instances)
        assert job.refresh().status == "SUSPENDED"
        job.resume()
        wait_until(lambda: len(running(job)) == 2)
        job.scale(2)
        wait_until(lambda: len(running(job)) == 3)
        with pytest.raises(UserError, match="workers must be 0 to"):
            job.scale(-1)

    assert "changed" not in [one.name for one in client.jobs()]
    with pytest.raises(UserError, match="is over, and cannot be suspended"):
        job.suspend()


def running(job: gangline.JobHandle) -> list[str]:
    seen = job.refresh().instances
    return [one.name for one in seen if one.status == "Running"]


def test_a_killed_caller_leaves_its_job_and_another_finds_the_result(client: gangline.Client) -> None:
    with caller("orphan", 2.0) as process:
        process.kill()
        process.wait()

    assert client.job("orphan").results(LIMIT_S) == ["done", "done"]


def test_ctrl_c_takes_the_job_along(client: gangline.Client) -> None:
    with caller("interrupted", 600.0) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == -signal.SIGINT

    assert [run.status for run in client.runs("interrupted")] == ["CANCELLED"]


def test_an_interrupted_wait_leaves_the_job_alone(client: gangline.Client) -> None:
    job = client.start(sleep_long, name="waited-for")
    wait_until(lambda: job.refresh().status == "RUNNING")
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()

    with pytest.raises(KeyboardInterrupt):
        job.wait()

    assert job.refresh().status == "RUNNING"
    job.cancel()


def test_two_clients_run_at_once_under_names_of_their_own(home: Path) -> None:
    async def both() -> list[list[int]]:
        clients = gangline.AsyncClient(), gangline.AsyncClient()
        calls = (one.run(os.getpid, ranks=2, name="") for one in clients)
        return await asyncio.gather(*calls)

    first, second = asyncio.run(both())

    assert len({*first, *second}) == 4


async def test_an_event_loop_goes_on_while_a_function_runs(home: Path) -> None:
    client = gangline.AsyncClient()
    job = await client.start(lambda: print("one\ntwo"), name="looped")

    assert [line async for line in job.logs(follow=True)] == ["one", "two"]
    assert (await job.wait()).status == "SUCCEEDED"


async def test_a_cancelled_call_takes_its_job_along(home: Path) -> None:
    client = gangline.AsyncClient()
    call = asyncio.create_task(client.run(sleep_long, name="dropped"))
    async with asyncio.timeout(LIMIT_S):
        while "dropped" not in [job.name for job in await client.jobs()]:
            await asyncio.sleep(0.05)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert "dropped" not in [job.name for job in await client.jobs()]


@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.1, 0.2])
async def test_a_call_that_is_dropped_at_any_moment_leaves_no_job(home: Path, delay_s: float) -> None:
    client = gangline.AsyncClient()

    with pytest.raises(TimeoutError):
        await client.run(sleep_long, ranks=2, name="early", timeout_s=delay_s)

    assert "early" not in [job.name for job in await client.jobs()]
