"""Many short jobs: one after another without a trace, and a hundred at once.

A job has one launcher and two workers; the launcher runs `true`. What is counted before and after: processes
of the cluster, network namespaces, network links, files outside the store and the logs, and rows of the store
without events (those are kept for an hour).
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from figures import Figure
from laboratory import Laboratory, command_line, processes_of, processor_s

AT_ONCE = 100
SETTLE_LIMIT_S = 15
JOBS_LIMIT_S = 300

JOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: {name}
spec:
  runPolicy:
    cleanPodPolicy: All
    backoffLimit: 0
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - name: launcher
              image: gangline/base
              command: ["true"]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: worker
              image: gangline/base
"""


def traces(laboratory: Laboratory) -> dict[str, int]:
    """Count everything that a job could leave behind."""
    from gangline.cluster.paths import ClusterPaths

    paths = ClusterPaths(name="default", state=laboratory.home / "default")
    pids = processes_of(laboratory.home)
    namespaces = {Path(f"/proc/{pid}/ns/net").readlink() for pid in pids}
    named = list(Path("/run/netns").iterdir()) if Path("/run/netns").is_dir() else []
    files = [
        path
        for folder in (paths.state, paths.run)
        for path in folder.rglob("*")
        if not path.is_relative_to(paths.logs) and not path.name.startswith(paths.store.name)
    ]
    return {
        "processes": len(pids),
        "network namespaces": len(namespaces) + len(named),
        "network links": len(list(Path("/sys/class/net").iterdir())),
        "files": len(files),
    }


def rows_of_stopped(laboratory: Laboratory) -> set[str]:
    """Stop the cluster, which owns the store, and return its rows without events and node leases."""
    laboratory.gangline("down")
    with closing(sqlite3.connect(laboratory.home / "default" / "store.sqlite")) as store:
        rows = ["/".join(row) for row in store.execute("SELECT collection, namespace, name FROM object")]
    return {row for row in rows if "events" not in row.split("/")[:2] and "kube-node-lease" not in row}


def settled(laboratory: Laboratory, before: dict[str, int]) -> dict[str, int]:
    """Count again until nothing more than before is there, for a bounded time."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    after = traces(laboratory)
    while any(after[name] > before[name] for name in before) and time.monotonic() < deadline:
        time.sleep(0.5)
        after = traces(laboratory)
    return after


def in_a_row(laboratory: Laboratory) -> list[Figure]:
    """Run the jobs one after another, delete each, and compare the traces."""
    manifest = laboratory.home / "short.yaml"
    manifest.write_text(JOB.format(name="short"))

    def one_job() -> float:
        started = time.perf_counter()
        laboratory.gangline("run", str(manifest))
        took_s = time.perf_counter() - started
        laboratory.gangline("delete", "short")
        return took_s

    one_job()
    rows_before = rows_of_stopped(laboratory)
    laboratory.gangline("up")
    one_job()
    before = traces(laboratory)
    durations_s = [one_job() for _ in range(laboratory.jobs)]
    after = settled(laboratory, before)
    rows_left = sorted(rows_of_stopped(laboratory) - rows_before)
    laboratory.gangline("up")
    figures = [
        Figure(f"one job of {laboratory.jobs} in a row, `gangline run` from start to end", "s", durations_s)
    ]
    for name, count in after.items():
        figures.append(Figure(f"- {name} left behind", "count", [count - before[name]], goal="<= 0"))
    named = f": {', '.join(rows_left[:3])}" if rows_left else ""
    figures.append(Figure(f"- rows left behind{named}", "count", [len(rows_left)], goal="<= 0"))
    return figures


def server_processor_s(laboratory: Laboratory) -> float:
    """Return the processor time so far of the process with API, store, controllers, operator, scheduler."""
    pids = [pid for pid in processes_of(laboratory.home) if "serve-cluster" in command_line(pid)]
    return sum(processor_s(pid) for pid in pids)


def operator_figures(laboratory: Laboratory) -> dict[str, float]:
    """Stop the cluster and return the figures that its operator leaves in the log."""
    laboratory.gangline("down")
    log = (laboratory.home / "default" / "server.log").read_text()
    line = [line for line in log.splitlines() if "operator stopped" in line][-1]
    return {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)(?=\s|$)", line)}


def outcomes(laboratory: Laboratory) -> dict[str, str]:
    """Return name -> Succeeded, Failed, or nothing yet, of every MPIJob."""
    answer = laboratory.get("/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs")
    found = {}
    for job in answer["items"]:
        true = [c["type"] for c in job.get("status", {}).get("conditions", []) if c["status"] == "True"]
        found[job["metadata"]["name"]] = next((end for end in ("Succeeded", "Failed") if end in true), "")
    return found


def at_once(laboratory: Laboratory) -> list[Figure]:
    """Create a hundred jobs with one command and wait until each has ended."""
    manifest = laboratory.home / "hundred.yaml"
    manifest.write_text("---\n".join(JOB.format(name=f"many-{index:03}") for index in range(AT_ONCE)))
    used_s, started = server_processor_s(laboratory), time.perf_counter()
    laboratory.gangline("apply", str(manifest))
    deadline = time.monotonic() + JOBS_LIMIT_S
    while not all(ends := outcomes(laboratory).values()) or len(ends) < AT_ONCE:
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    took_s = time.perf_counter() - started
    used_s = server_processor_s(laboratory) - used_s
    succeeded = sum(end == "Succeeded" for end in ends)
    operator = operator_figures(laboratory)
    return [
        Figure(f"{AT_ONCE} jobs at once, succeeded", "jobs", [succeeded], goal=f">= {AT_ONCE}"),
        Figure(f"{AT_ONCE} jobs at once, from apply to the last end", "s", [took_s]),
        Figure("- processor time of the server process for each job", "s", [used_s / AT_ONCE]),
        Figure(
            "- of it the operator's decisions, for each job since the start",
            "s",
            [operator["decide_cpu_s"] / operator["jobs_created"]],
        ),
        Figure("- reconcile p50, decisions and writes", "ms", [operator["reconcile_p50_ms"]]),
        Figure("- reconcile p99, decisions and writes", "ms", [operator["reconcile_p99_ms"]]),
    ]


def run(laboratory: Laboratory) -> list[Figure]:
    laboratory.gangline("up", "--nodes", "2")
    return [*in_a_row(laboratory), *at_once(laboratory)]
