"""A real notebook kernel: its stop button, and its restart, leave jobs as the guide says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

import gangline

LIMIT_S = 60.0
CELL = """
import gangline, pathlib, time
def wait_for(path):
    while not pathlib.Path(path).exists(): time.sleep(0.05)
    return "went on"
gangline.Client().run(wait_for, ranks=1, args=({path!r},), name={name!r})
"""

Kernel = tuple[KernelManager, BlockingKernelClient]


@pytest.fixture
def kernel(client: gangline.Client) -> Iterator[Kernel]:
    """A kernel and what talks to it; the cluster is up, and its jobs are the client's."""
    client.run(os.getpid, ranks=1)
    manager, notebook = start_new_kernel(startup_timeout=LIMIT_S)
    yield manager, notebook
    notebook.stop_channels()
    manager.shutdown_kernel(now=True)


def until_it_runs(client: gangline.Client, name: str) -> None:
    def is_so() -> bool:
        return any(job.name == name and job.view.status == "RUNNING" for job in client.jobs())

    wait_until(is_so)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_stop_button_takes_the_job_along(kernel: Kernel, client: gangline.Client, tmp_path: Path) -> None:
    manager, notebook = kernel
    cell = notebook.execute(CELL.format(path=str(tmp_path / "never"), name="stopped"))
    until_it_runs(client, "stopped")

    manager.interrupt_kernel()

    reply = notebook.get_shell_msg(timeout=LIMIT_S)
    assert (reply["parent_header"]["msg_id"], reply["content"]["ename"]) == (cell, "KeyboardInterrupt")
    assert [run.status for run in client.runs("stopped")] == ["CANCELLED"]


def test_a_kernel_that_restarts_leaves_its_job_and_finds_the_result(
    kernel: Kernel, client: gangline.Client, tmp_path: Path
) -> None:
    manager, notebook = kernel
    notebook.execute(CELL.format(path=str(tmp_path / "go"), name="left"))
    until_it_runs(client, "left")

    manager.restart_kernel(now=True)
    notebook.wait_for_ready(timeout=LIMIT_S)
    (tmp_path / "go").touch()
    reply = notebook.execute_interactive(
        "import gangline; assert gangline.Client().job('left').results() == ['went on']",
        timeout=LIMIT_S,
        output_hook=lambda _: None,
    )

    assert reply["content"]["status"] == "ok", reply["content"]
