"""What a page shows of a cluster with one user's rights, wired together."""

from __future__ import annotations

import contextlib
import io
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from gangline.client.target import ClusterTarget
    from gangline.kube.client import Client
    from gangline.page.rows import RunRow
    from gangline.page.sessions import Workspace


def make_workspace(target: ClusterTarget, client: Client, *, has_files: bool, user: str = "") -> Workspace:
    """Return what one user sees of a cluster.

    Args:
        target: the cluster.
        client: with the user's rights.
        has_files: whether this machine is the user's: runs are kept on it, and programs start from it.
        user: by the server's name.
    """
    from gangline.cluster.gpu_use import read_samples
    from gangline.page.actions import Actions
    from gangline.page.program import Programs
    from gangline.page.scene import Scene
    from gangline.page.sessions import Workspace

    scene = Scene(
        client,
        title=target.title.replace("`", ""),
        is_local=target.is_local,
        has_files=has_files,
        options=target.options,
        kube_options=target.kube_options,
        explain=lambda name, namespace: _explain(target, name, namespace),
        runs=(lambda: _runs(target)) if has_files else None,
        run_series=(lambda run: _read_series(target, run)) if has_files else None,
        use_record=(lambda: read_samples(target.paths.gpu_use, time.time())) if target.is_local else None,
    )
    programs = Programs(target) if has_files else None
    return Workspace(client, scene, Actions(client, is_local=target.is_local, programs=programs), user)


async def _explain(target: ClusterTarget, name: str, namespace: str) -> tuple[dict[str, object], str, str]:
    """Return what `gangline explain NAME --placement` finds, and prints: why it waits, and where it lies."""
    from gangline.cli.explain.text import print_placement, print_report
    from gangline.client.explain.explanation import explain_job
    from gangline.client.explain.workload import read_workload

    there = replace(target, namespace=namespace)
    value = await explain_job(there, name, read_workload("vgg16", None, ""), placement=True)
    texts = []
    for show, part in ((print_report, value), (print_placement, value.get("placement"))):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            if part is not None and "began" not in value:
                show(part)
        texts.append(text.getvalue().strip("\n"))
    return value, texts[0], texts[1]


async def _runs(target: ClusterTarget) -> list[RunRow]:
    from gangline.client.jobs.past_runs import read_runs
    from gangline.client.run_report import metrics_in_words
    from gangline.page.rows import RUNS_MAX, RunRow, job_key

    reports = await read_runs(target, None, only_failed=False, limit=RUNS_MAX)
    return [
        RunRow(
            id=run["id"],
            key=job_key(run["kind"], run["namespace"], run["name"]),
            name=run["name"],
            namespace=run["namespace"],
            status=run["status"],
            command=run["command"],
            started=run["began"],
            duration_s=run["durationSeconds"],
            last=metrics_in_words(run["metrics"]),
            reason=run["reason"],
        )
        for run in reports
    ]


async def _read_series(target: ClusterTarget, run: str) -> dict[str, list[float | None]]:
    from gangline.cluster.runs.reading import find_past
    from gangline.page.log_reading import read_curves
    from gangline.workloads.job_state import primary_pods

    past = find_past(target.kept, run, None)
    chiefs = primary_pods(past.record.job, past.record.pods) if past else []
    if not past or not chiefs:
        return {}
    meta = chiefs[-1]["metadata"]
    return await read_curves(past.logs(meta["name"], meta["namespace"]), chiefs[-1])
