"""A program on a cluster with its folder: in an image with Python and nothing of ours, as any user.

The image of the tests is that of MPI's, of which only its Python is used.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from node import PAUSE_IMAGE

from gangline.api.resources import JOBS, PODS, SECRETS, SERVICES
from gangline.workloads.job_state import finished

PROGRAM = """
import os, socket, sys, time
from parts.words import WORD

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", place[1])) as server:
        hosts = [server.accept()[0].recv(99).decode() for _ in range(size - 1)]
    print("met", *sorted({*hosts, socket.gethostname()}), WORD, os.getuid(), os.environ.get("SECRET"))
else:
    while True:
        try:
            met = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.05)
    met.send(socket.gethostname().encode())
if sys.argv[1:] == [str(rank)]:
    raise ValueError("as asked")
"""
LIMIT_S = 90.0


def _take_ctrl_c() -> None:
    """Undo what a shell does to commands in the background, of which the tests may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """`gangline run --context` in a folder of the user's."""

    def __init__(self, jobs: Any, image: str, folder: Path) -> None:
        self.jobs, self.folder = jobs, folder / "code"
        (self.folder / "parts").mkdir(parents=True)
        (self.folder / "parts" / "words.py").write_text("WORD = 'in the folder'\n")
        (self.folder / "train.py").write_text(PROGRAM)
        (self.folder / ".gitignore").write_text("*.bin\n")
        (self.folder / "data.bin").write_bytes(os.urandom(9_000_000))
        self.line = ["--context", "tests", "--namespace", jobs.namespace, "--image", image]
        self.environment = os.environ | {
            "KUBECONFIG": str(jobs.nodes.kubeconfig),
            "GANGLINE_HOME": str(folder / "home"),
        }

    async def start(self, *words: str, start_new_session: bool = False) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gangline", "run", *self.line, *words),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=start_new_session,
            preexec_fn=_take_ctrl_c,
        )

    async def __call__(self, *words: str) -> tuple[int | None, str, str]:
        process = await self.start(*words)
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def left(self) -> list[str]:
        """Return what there is of jobs, with what belongs to them."""
        found = []
        for resource in (JOBS, SECRETS, SERVICES, PODS):
            items = (await self.jobs.client.list(resource, self.jobs.namespace)).items
            found += [f"{resource.kind} {one['metadata']['name']}" for one in items]
        return found


@pytest.fixture
def program(jobs: Any, image: Callable[[str], str], tmp_path: Path) -> Program:
    return Program(jobs, image("openmpi"), tmp_path)


async def test_ranks_on_two_nodes_meet_with_the_code_of_the_folder(program: Program) -> None:
    (program.folder / "secrets.env").write_text("# for the ranks\nSECRET=hush\n")
    code, out, err = await program(
        *("-n", "4", "--nodes", "2", "--env-file", "secrets.env", "--shm", "64Mi", "--cpus", "100m"),
        *("--", "python3", "train.py"),
    )

    assert code == 0, out + err
    assert "met train-0 train-1 in the folder 0 hush\n" in out
    assert "Job " in err and "/train succeeded" in err
    pods = (await program.jobs.client.list(PODS, program.jobs.namespace)).items
    assert len({pod["spec"]["nodeName"] for pod in pods}) in (1, 2)
    assert "hush" not in str(pods)


async def test_the_rank_that_fails_is_named_and_its_code_is_the_commands(program: Program) -> None:
    code, out, err = await program("-n", "4", "--nodes", "2", "--", "python3", "train.py", "3")

    assert code == 1
    assert "[3] ValueError: as asked" in out
    assert re.search(r"failed: rank 3 in pod train-1-\w+ exited with code 1", err), err


AGAIN = """
import os, sys, time
tries = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if os.environ["RANK"] == "3" and tries == 0:
    raise ValueError("at first")
if os.environ["RANK"] == "2" and len(sys.argv) > 1:
    print("waits", tries, flush=True)
    time.sleep(2 if tries else 99)
print("done", flush=True)
"""


async def test_with_restarts_all_ranks_of_both_nodes_start_again(program: Program) -> None:
    (program.folder / "again.py").write_text(AGAIN)
    line = ("-n", "4", "--nodes", "2", "--restarts", "2", "--", "python3", "again.py")
    code, out, err = await program(*line)

    assert code == 0, out + err
    assert out.count("done\n") in range(4, 8)
    assert out.count("gangline: exit code 1: all ranks start again, 1 of 2\n") == 1, out


async def test_with_restarts_a_pod_that_is_deleted_comes_back_and_all_start_again(program: Program) -> None:
    (program.folder / "again.py").write_text(AGAIN.replace("tries == 0", "False"))
    process = await program.start(
        "-n", "4", "--nodes", "2", "--restarts", "2", "--", "python3", "again.py", "x"
    )
    assert process.stdout is not None
    seen = b""
    async with asyncio.timeout(LIMIT_S):
        while b"waits 0" not in seen:
            seen += await process.stdout.readline()
        pods = (await program.jobs.client.list(PODS, program.jobs.namespace)).items
        other = next(pod for pod in pods if "again-1" in pod["metadata"]["name"])
        await program.jobs.client.delete(PODS, other["metadata"]["name"], program.jobs.namespace)
        out, err = await process.communicate()

    assert process.returncode == 0, seen + out + err
    assert b"all ranks start again, 1 of 2" in seen + out
    assert out.count(b"done\n") >= 4


async def test_what_kubectl_applies_of_a_dry_run_runs_for_a_user_who_is_not_root(program: Program) -> None:
    code, out, _ = await program(
        "-n", "2", "--nodes", "2", "--dry-run", "-o", "yaml", "--", "python3", "train.py"
    )
    assert code == 0
    objects = list(yaml.safe_load_all(out))
    job = objects[-1]
    spec = job["spec"]["template"]["spec"]
    spec["securityContext"] = {"runAsUser": 12345, "runAsGroup": 12345, "runAsNonRoot": True}
    spec["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    applied = {"input": yaml.safe_dump_all(objects), "env": program.environment, "text": True}
    subprocess.run(["kubectl", "apply", "-f", "-"], check=True, **applied)  # type: ignore[call-overload]

    async def succeeded() -> bool:
        found = await program.jobs.get(JOBS, "train")
        return bool(found) and found.get("status", {}).get("succeeded") == 2

    await program.jobs.until(succeeded, "end of the job")
    pods = (await program.jobs.client.list(PODS, program.jobs.namespace)).items
    logs = [await program.jobs.log(pod["metadata"]["name"]) for pod in pods]
    assert any("met train-0 train-1 in the folder 12345 None" in log for log in logs)


async def test_ctrl_c_leaves_nothing_and_a_detached_job_goes_on(program: Program) -> None:
    process = await program.start(
        "-n", "1", "--", "python3", "-c", "import time; print('on'); time.sleep(99)"
    )
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130

    async def nothing() -> bool:
        return not [one for one in await program.left() if "-" in one]

    await program.jobs.until(nothing, "end of all that belonged to the job")
    code, _, err = await program("--name", "later", "--detach", "--", "python3", "-c", "print('later')")
    assert (code, "detached from Job" in err) == (0, True)

    async def succeeded() -> bool:
        return bool(((await program.jobs.get(JOBS, "later")) or {}).get("status", {}).get("succeeded"))

    await program.jobs.until(succeeded, "end of the job")


async def test_an_image_that_cannot_be_pulled_or_has_no_python_is_told_in_a_line(program: Program) -> None:
    program.line[-1] = "registry.invalid/no/image:1"
    process = await program.start("-n", "2", "--nodes", "2", "--", "python3", "train.py")
    assert process.stderr is not None
    async with asyncio.timeout(LIMIT_S):
        while b"registry.invalid/no/image:1" not in (line := await process.stderr.readline()):
            assert line, "it ended"
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert b"Failed to pull image" in line

    program.line[-1] = PAUSE_IMAGE
    code, out, err = await program("--", "python3", "train.py")
    assert code != 0, out + err
    assert "python3" in err.splitlines()[-1], err


SWEPT = """
import json, pathlib, sys, time
lr, seed = float(sys.argv[1]), int(sys.argv[2])
for step in (1, 2):
    values = {"loss": lr / step + seed}
    print("@gangline " + json.dumps({"kind": "scalars", "step": step, "values": values}), flush=True)
while pathlib.Path("slow").exists() and not pathlib.Path("/tmp/go").exists():
    time.sleep(0.05)
sys.exit(3 if seed == 1 and not pathlib.Path("mended").exists() else 0)
"""
SWEEP = ("--sweep", "lr=2,1", "--sweep", "seed=0..1", "--parallel", "2", "--best", "loss")


async def test_a_sweep_runs_on_the_cluster_and_resumes_what_failed(program: Program) -> None:
    (program.folder / "train.py").write_text(SWEPT)
    line = ("--", "python3", "train.py", "{lr}", "{seed}")
    code, out, err = await program(*SWEEP, *line)

    assert code == 1, out + err
    assert "(lr=1 seed=0), loss 0.5 at step 2" in out
    assert out.count("failed (3)") == 2 and "exited with code 3" in err
    (program.folder / "mended").touch()
    code, out, err = await program(*SWEEP, "--resume", *line)
    assert code == 0, out + err
    assert "2 of 4 runs have succeeded before" in err
    assert [row.split()[1:4] for row in out.splitlines()[1:5]] == [
        ["1", "0", "succeeded"],
        ["2", "0", "succeeded"],
        ["1", "1", "succeeded"],
        ["2", "1", "succeeded"],
    ]


async def test_a_sweep_whose_commands_were_killed_finds_its_runs_again(
    program: Program, kubectl: Callable[..., str]
) -> None:
    (program.folder / "train.py").write_text(SWEPT)
    (program.folder / "slow").touch()
    line = ("--sweep", "lr=1,2", "--parallel", "2", "--", "python3", "train.py", "{lr}", "0")
    process = await program.start(*line, start_new_session=True)
    jobs = program.jobs

    async def running() -> list[str]:
        pods = (await jobs.client.list(PODS, jobs.namespace)).items
        return [one["metadata"]["name"] for one in pods if one["status"]["phase"] == "Running"]

    async with asyncio.timeout(LIMIT_S):
        while len(await running()) < 2:
            await asyncio.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    one, other = await running()
    kubectl("-n", jobs.namespace, "exec", one, "--", "touch", "/tmp/go")
    async with asyncio.timeout(LIMIT_S):
        while not any(finished(one) for one in (await jobs.client.list(JOBS, jobs.namespace)).items):
            await asyncio.sleep(0.05)
    again = await program.start(line[0], line[1], "--resume", *line[2:])
    assert again.stderr is not None
    told = b""
    async with asyncio.timeout(LIMIT_S):
        while b"goes on since it was begun before" not in told:
            told += await again.stderr.readline()
        kubectl("-n", jobs.namespace, "exec", other, "--", "touch", "/tmp/go")
        out, err = await again.communicate()

    assert again.returncode == 0, told + err
    assert b"1 of 2 runs have succeeded before" in told
    assert out.count(b"succeeded") == 2
    assert len((await jobs.client.list(JOBS, jobs.namespace)).items) == 2  # and none anew


async def test_ctrl_c_deletes_the_jobs_of_a_sweep(program: Program) -> None:
    (program.folder / "train.py").write_text(SWEPT)
    (program.folder / "slow").touch()
    line = ("--sweep", "lr=1..3", "--parallel", "2", "--", "python3", "train.py", "{lr}", "0")
    process = await program.start(*line, start_new_session=True)
    async with asyncio.timeout(LIMIT_S):
        while len([one for one in await program.left() if one.startswith("Pod ")]) < 2:
            await asyncio.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    async with asyncio.timeout(LIMIT_S):
        _, err = await process.communicate()

    assert process.returncode == 130, err
    assert b"by the same line with --resume" in err
    assert [one for one in await program.left() if one.startswith("Job ")] == []
