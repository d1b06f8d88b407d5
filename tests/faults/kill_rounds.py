"""Rounds of jobs on a cluster of their own, of which processes are killed at random moments meanwhile.

Every program leaves a line for each of its starts, so a round ends with what a user can check: each program
ran exactly once, each end that is told is the program's own, each command said so, and nothing stays behind.
A pod whose shim was killed ends with it: it has failed, and is told so, and its program never starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from processes_of_cluster import fork_servers, left_behind, of_pods, shims

from gangline.cluster.node.pods.pod_record import PodRecord
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import read_lock
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError

END_TIMEOUT_S = 120.0
COMMAND_TIMEOUT_S = 180.0
KILLS_MAX = 3
WINDOW_S = 3.0
"""Kills fall into this time after the start of a round's command; its job takes about 1.5 s undisturbed."""

VICTIMS: tuple[tuple[str, ...], ...] = (("server",), ("agent",), ("server", "agent"))
ALL_VICTIMS = (
    *VICTIMS,
    ("fork_server",),
    ("shim",),
    ("command",),
    ("shim", "agent"),
    ("fork_server", "shim"),
)
EXIT_CODES = {"good": 0, "bad": 3}
RANKS = 2
KINDS = ("lost", "doubled", "wrong", "stuck")


@dataclass
class Tally:
    """What came of the rounds; the lists name what went wrong."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    programs: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    longest_s: float = 0.0

    @property
    def faults(self) -> list[str]:
        """Everything that went wrong."""
        return [f"{kind}: {one}" for kind in KINDS for one in getattr(self, kind)]

    def __str__(self) -> str:
        counts = ", ".join(
            f"{len(getattr(self, kind))} {kind}" for kind in ("lost", "doubled", "wrong", "stuck")
        )
        kills = ", ".join(f"{number} of {victim}" for victim, number in sorted(self.kills.items()))
        return (
            f"{self.rounds} rounds, {self.kills.total()} kills ({kills}), {self.programs} programs: "
            f"{counts}; longest round {self.longest_s:.1f} s"
        )


class Rounds:
    """A cluster in a home of its own, and rounds on it.

    Args:
        home: becomes GANGLINE_HOME; counters lie beside it.
        seed: decides every moment and victim.
        victims: sets of processes that are killed together: daemons, the fork server, a shim, the command.
    """

    def __init__(self, home: Path, *, seed: int, victims: Sequence[tuple[str, ...]] = VICTIMS) -> None:
        self.home = home
        self.tally = Tally()
        self._random = random.Random(seed)
        self._victims = victims
        self._struck: set[str] = set()
        """Pods of this round, by uid, of which the shim was killed."""
        self._environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self._environment |= {"GANGLINE_HOME": str(home), "COLUMNS": "200"}
        self._paths = ClusterPaths(name="default", state=home / "default")

    def command(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a command of Gangline's."""
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", *words],
            env=self._environment,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for a command; return its exit code and all that it wrote."""
        try:
            out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return -1, f"{out}{err}\nno end within {COMMAND_TIMEOUT_S:.0f} s"
        return process.returncode, out + err

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """Send one request; 0 when nobody answers."""
        try:
            return 200, asyncio.run(self._answer(method, target, body))
        except ApiError as error:
            return error.status, str(error)

    async def _answer(self, method: str, target: str, body: Any) -> Any:
        path, _, query = target.partition("?")
        async with Client(Connection(server=f"unix://{self._paths.api_socket}")) as client:
            type_ = "application/merge-patch+json" if method == "PATCH" else "application/json"
            answer = await client.send(
                method, path, params=dict(parse_qsl(query)), body=body, content_type=type_
            )
            return answer.decode() if path.endswith("/log") else msgspec.json.decode(answer)

    def run(self, rounds: int) -> Tally:
        """Run that many rounds; what went wrong is in the tally."""
        code, words = self.finish(self.command("up"))
        assert code == 0, words
        for _ in range(rounds):
            began_s = time.monotonic()
            self.one_round(self.tally.rounds)
            self.tally.rounds += 1
            self.tally.longest_s = max(self.tally.longest_s, time.monotonic() - began_s)
        return self.tally

    def one_round(self, number: int) -> None:
        """Create pods and a Job, run a program on two ranks, kill meanwhile, and look what came of all."""
        folder = self.home / f"round-{number}"
        folder.mkdir()
        self._struck.clear()
        pods = {f"{kind}-{number}": code for kind, code in EXIT_CODES.items()}
        for name, code in pods.items():
            status, answer = self.ask(
                "POST", "/api/v1/namespaces/default/pods", self._pod(name, code, folder)
            )
            assert status == 200, answer
        job = f"job-{number}"
        template = {"spec": self._pod(job, 0, folder)["spec"]}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job}}
        body |= {"spec": {"template": template, "backoffLimit": 0}}
        status, answer = self.ask("POST", "/apis/batch/v1/namespaces/default/jobs", body)
        assert status == 200, answer
        name = f"run-{number}"
        script = f"echo started >> {name}; sleep {self._random.uniform(0, 0.6):.2f}"
        command = self.command("run", "--name", name, "-n", str(RANKS), "--", "sh", "-c", script, cwd=folder)
        self._kill(time.monotonic(), command)
        code, words = self.finish(command)
        self._bring_up()
        self._touch(pods)
        may_not_start = {pod for pod, expected in pods.items() if self._judge_pod(pod, expected)}
        may_not_start |= {job} if self._judge_job(job) else set()
        may_not_start |= {name} if self._judge_command(name, code, words) else set()
        counts = {**dict.fromkeys(pods, 1), job: 1, name: RANKS}
        for program, expected in counts.items():
            self._judge_starts(folder / program, program, expected, may_be_fewer=program in may_not_start)
        self.tally.programs += len(counts)
        self._remove(pods, job, name)

    def end(self) -> None:
        """Take the cluster down; nothing of it may stay."""
        code, words = self.finish(self.command("down", "--purge"))
        if code != 0:
            self.tally.stuck.append(f"`gangline down --purge` ended with {code}: {words[-500:]}")
        if not self._until(lambda: not left_behind(self._paths)):
            self.tally.stuck += [f"{one} is left" for one in left_behind(self._paths)]

    def _pod(self, name: str, code: int, folder: Path) -> dict[str, Any]:
        pause_s = self._random.uniform(0, 1.5)
        script = f"echo started >> {folder}/{name}; sleep {pause_s:.2f}; echo said by {name}; exit {code}"
        mount = {"name": "counters", "mountPath": str(folder)}
        container = {"name": "main", "image": "gangline/base", "command": ["sh", "-c", script]}
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container | {"volumeMounts": [mount]}],
            "volumes": [{"name": "counters", "hostPath": {"path": str(folder)}}],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def _kill(self, began_s: float, command: subprocess.Popen[str]) -> None:
        moments = sorted(self._random.uniform(0, WINDOW_S) for _ in range(self._random.randint(1, KILLS_MAX)))
        for moment in moments:
            victims = self._random.choice(self._victims)
            time.sleep(max(0.0, began_s + moment - time.monotonic()))
            for victim in victims:
                for pid in self._pids_of(victim, command):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.tally.kills[victim] += 1

    def _pids_of(self, victim: str, command: subprocess.Popen[str]) -> list[int]:
        """Return whom to kill; of the shims, one by chance, whose pod is remembered."""
        if victim == "command":
            return [command.pid] if command.poll() is None else []
        if victim == "shim":
            found = shims(self._paths)
            if not found:
                return []
            pid = self._random.choice(sorted(found))
            self._struck.add(self._pod_name(found[pid]))
            return [pid]
        daemon = read_lock(self._paths.lock("agent" if victim == "fork_server" else victim))
        if daemon.state != "held" or not daemon.pid:
            return []
        return fork_servers(daemon.pid) if victim == "fork_server" else [daemon.pid]

    def _pod_name(self, uid: str) -> str:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            record = (self._paths.pods / uid / "pod.json").read_bytes()
            return msgspec.json.decode(record, type=PodRecord).name
        return ""

    def _is_struck(self, name: str) -> bool:
        """Whether the shim of a pod of that name, or of that job, was killed."""
        return any(pod == name or pod.startswith(f"{name}-") for pod in self._struck)

    def _bring_up(self) -> None:
        """Do what a user does after a kill: use the cluster again."""
        code, words = self.finish(self.command("up"))
        if code != 0:
            self.tally.stuck.append(f"`gangline up` ended with {code}: {words[-500:]}")

    def _touch(self, pods: Iterable[str]) -> None:
        """Write to every pod: whoever takes it for a new one starts it again."""
        patch = {"metadata": {"annotations": {"touched": "true"}}}
        for name in pods:
            self.ask("PATCH", f"/api/v1/namespaces/default/pods/{name}", patch)

    # Judging: each returns whether the program need not have been started, for its pod was struck and failed

    def _judge_command(self, name: str, code: int, words: str) -> bool:
        """Judge what the command said, or where it was killed, what `gangline runs` says instead of it."""
        if code == -signal.SIGKILL:
            return self._judge_run(name)
        if code != 0 and self._is_struck(name):
            if name not in words:
                self.tally.wrong.append(f"`gangline run` of {name} ended with {code}: {words[-800:]}")
            return True
        if code != 0 or f"{name} succeeded" not in words:
            self.tally.wrong.append(f"`gangline run` of {name} ended with {code}: {words[-800:]}")
        return False

    def _judge_run(self, name: str) -> bool:
        def status() -> str:
            code, words = self.finish(self.command("runs", "-o", "json"))
            runs = json.loads(words) if code == 0 else []
            return next((str(one["status"]) for one in runs if one["name"] == name), "NONE")

        if not self._until(lambda: status() in ("SUCCEEDED", "FAILED", "NONE")):
            self.tally.lost.append(f"run {name}, of which the command was killed, is {status()}")
        found = status()
        if found == "FAILED" and not self._is_struck(name):
            self.tally.wrong.append(f"run {name}, of which the command was killed, has failed")
        return found != "SUCCEEDED"

    def _judge_pod(self, name: str, expected: int) -> bool:
        target = f"/api/v1/namespaces/default/pods/{name}"
        found = self._until(lambda: _phase(self.ask("GET", target)) in ("Succeeded", "Failed"))
        _, pod = self.ask("GET", target)
        if not found:
            self.tally.lost.append(f"pod {name} is {_phase((200, pod))}")
            return False
        statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
        ended = statuses[0]["state"].get("terminated") or {}
        phase = "Failed" if expected else "Succeeded"
        _, log = self.ask("GET", f"{target}/log")
        if (ended.get("exitCode"), pod["status"]["phase"]) == (expected, phase):
            if log != f"said by {name}\n":
                self.tally.wrong.append(f"log of pod {name}: {log!r}")
            return False
        is_told = pod["status"]["phase"] == "Failed" and (
            ended.get("message") or pod["status"].get("message")
        )
        if not (self._is_struck(name) and is_told):
            self.tally.wrong.append(f"pod {name}, which exits with {expected}: {json.dumps(pod['status'])}")
        return True

    def _judge_job(self, name: str) -> bool:
        target = f"/apis/batch/v1/namespaces/default/jobs/{name}"

        def ended() -> bool:
            _, job = self.ask("GET", target)
            conditions = job.get("status", {}).get("conditions", []) if isinstance(job, dict) else []
            return any(
                one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions
            )

        if not self._until(ended):
            self.tally.lost.append(f"job {name} has no end")
            return False
        _, job = self.ask("GET", target)
        counts = (job["status"].get("succeeded", 0), job["status"].get("failed", 0))
        if counts != (1, 0) and not (counts == (0, 1) and self._is_struck(name)):
            self.tally.wrong.append(f"job {name}: {json.dumps(job['status'])}")
        return counts != (1, 0)

    def _judge_starts(self, counter: Path, name: str, expected: int, *, may_be_fewer: bool) -> None:
        count = len(counter.read_text().splitlines()) if counter.exists() else 0
        if count > expected:
            self.tally.doubled.append(f"{name} was started {count} times, not {expected}")
        elif count < expected and not may_be_fewer:
            self.tally.lost.append(f"{name} was started {count} times, not {expected}")

    def _remove(self, pods: dict[str, int], job: str, name: str) -> None:
        """Delete what the round made, while the agent is killed once; all of it must go."""
        targets = [f"/api/v1/namespaces/default/pods/{pod}" for pod in pods]
        targets.append(f"/apis/batch/v1/namespaces/default/jobs/{job}")
        targets.append(f"/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/{name}")
        for target in targets:
            self.ask("DELETE", target, {"propagationPolicy": "Background"})
        for target in targets:
            if not self._until(lambda target=target: self.ask("GET", target)[0] == 404):
                self.tally.stuck.append(f"{target} is not removed")
        if not self._until(lambda: not of_pods(self._paths)):
            self.tally.stuck.append(f"processes of pods are left: {of_pods(self._paths)}")

    def _until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + END_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _phase(answer: tuple[int, Any]) -> str:
    status, pod = answer
    return str(pod.get("status", {}).get("phase", "")) if status == 200 else ""
