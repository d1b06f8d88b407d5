"""From the outcome of a job to what its user is told: which rank failed, in which pod, and its last lines."""

from __future__ import annotations

from typing import Any

from gangline.api.mpijob_reading import current_spec
from gangline.cli.jobs.pending_reason import start_error
from gangline.cli.run.follow import Outcome
from gangline.cli.run.view import job_title
from gangline.errors import EXIT_RESUME, JobFailedError
from gangline.launch.mpirun import host_of_rank
from gangline.launch.rank_failure import RankFailure, signal_name
from gangline.workloads.job_state import condition, exit_code_of, primary_pods
from gangline.workloads.kinds import is_worker, kind_of

Obj = dict[str, Any]

_LOST = "was lost"


def failure_of(outcome: Outcome) -> JobFailedError | None:
    """Return the error for a job that failed, ``None`` for one that succeeded.

    A launcher that lost a host and yet ended with 0, as Open MPI 5 does, counts as failed.
    """
    job = outcome.job
    code = outcome.exit_code
    if outcome.status == "DELETED":
        return JobFailedError(f"{job_title(job)} was deleted before it ended", exit_code=code or 1)
    failure = outcome.output.failure(code)
    if outcome.status == "SUCCEEDED":
        if failure is None or _LOST not in failure.what:
            return None
        return JobFailedError(f"{job_title(job)} failed: {failure.what}", exit_code=code or 1)
    hint = (
        "its ranks saved before they ended: the same command goes on from there"
        if code == EXIT_RESUME
        else ""
    )
    return JobFailedError(
        f"{job_title(job)} failed: {describe_failure(outcome)}", exit_code=code or 1, hint=hint
    )


def last_lines(outcome: Outcome, *, is_alone: bool = True) -> list[str]:
    """Return the heading and the last lines of the rank that failed, else of the launcher.

    Lines that nothing came after are still the last ones that the reader has seen, and are not repeated.

    Args:
        outcome: of the job that failed.
        is_alone: whether no other job's log came between.
    """
    failure = outcome.output.failure(outcome.exit_code)
    if failure is None or not failure.lines or (failure.is_last and is_alone):
        return []
    pod = pod_of_failure(outcome, failure)
    primary = kind_of(outcome.job).primary
    whose = f"the {primary}" if primary else "the log"
    if failure.rank is None:
        primaries = primary_pods(outcome.job, outcome.pods)
        pod = str(primaries[-1]["metadata"]["name"]) if primaries else ""
    else:
        whose = f"rank {failure.rank}"
    place = f" in pod {pod}" if pod else ""
    count = len(failure.lines)
    head = f"last {count} lines of {whose}{place}:" if count > 1 else f"last line of {whose}{place}:"
    return [head, *(f"  | {line}" for line in failure.lines)]


def pod_of_failure(outcome: Outcome, failure: RankFailure) -> str:
    """Return the pod in which the failed rank ran: by the host that was named, else by the rank's place."""
    if not kind_of(outcome.job).primary:
        primaries = primary_pods(outcome.job, outcome.pods)
        return str(primaries[-1]["metadata"]["name"]) if primaries else ""
    hosts = _hosts(outcome.job)
    named = failure.host.partition(".")[0]
    if named and any(named == name for name, _ in hosts):
        return named
    if failure.rank is None:
        return ""
    return host_of_rank(failure.rank, hosts, _launcher_command(outcome.job))


def describe_failure(outcome: Outcome) -> str:
    """Return the words for why a job failed, the most exact that are known."""
    failure = outcome.output.failure(outcome.exit_code)
    pod_words = _broken_worker(outcome)
    if pod := _out_of_memory(outcome.pods):
        return f"pod {pod} used more memory than its limit allows (OOMKilled)"
    if failure is not None and failure.rank is not None:
        pod = pod_of_failure(outcome, failure)
        return f"rank {failure.rank}{f' in pod {pod}' if pod else ''} {failure.what}"
    if never := start_error(outcome.pods):
        return str(never)
    if pod_words:
        return pod_words
    ended = condition(outcome.job, "Failed") or {}
    if failure is not None and failure.host and failure.what.startswith(("was killed", "exited", "ended")):
        pod = pod_of_failure(outcome, failure)
        return f"a rank{f' in pod {pod}' if pod else ''} {failure.what}"
    if failure is not None and outcome.exit_code:
        if not kind_of(outcome.job).primary:
            return failure.what.replace("the launcher", f"pod {pod_of_failure(outcome, failure)}")
        return failure.what
    return str(ended.get("message") or ended.get("reason") or "it says no reason")


def _out_of_memory(pods: list[Obj]) -> str:
    """Return the first pod of which a container was ended for want of memory, empty when there is none."""
    for pod in pods:
        for known in (pod.get("status") or {}).get("containerStatuses") or []:
            ended = (known.get("state") or {}).get("terminated") or {}
            if ended.get("reason") == "OOMKilled":
                return str(pod["metadata"]["name"])
    return ""


def _broken_worker(outcome: Outcome) -> str:
    """Return how a worker pod ended badly by itself, empty when none did."""
    for pod in outcome.pods:
        code = exit_code_of(pod)
        if not is_worker(pod) or not code or pod["metadata"].get("deletionTimestamp"):
            continue
        ended = (pod["status"]["containerStatuses"][0].get("state") or {}).get("terminated") or {}
        how = ended.get("reason") if ended.get("reason") not in (None, "Error") else f"exit code {code}"
        if 128 < code < 160:
            how = f"signal {code - 128} ({signal_name(code - 128)})"
        return f"pod {pod['metadata']['name']} ended with {how}"
    return ""


def _hosts(job: Obj) -> list[tuple[str, int]]:
    """Return host names and slots in the order of the hostfile."""
    spec = current_spec(job)
    slots = int(spec.get("slotsPerWorker") or 1)
    name = job["metadata"]["name"]
    workers = int(((spec.get("mpiReplicaSpecs") or {}).get("Worker") or {}).get("replicas") or 0)
    hosts = [(f"{name}-worker-{index}", slots) for index in range(workers)]
    if spec.get("runLauncherAsWorker"):
        hosts.insert(0, (f"{name}-launcher", slots))
    return hosts


def _launcher_command(job: Obj) -> list[str]:
    """Return the launcher's command and arguments; a shell line is split into words."""
    launcher = ((current_spec(job).get("mpiReplicaSpecs") or {}).get("Launcher") or {}).get("template") or {}
    containers = (launcher.get("spec") or {}).get("containers") or [{}]
    given = [*(containers[0].get("command") or []), *(containers[0].get("args") or [])]
    if given and str(given[0]).rpartition("/")[2] in ("mpirun", "mpiexec"):
        return [str(word) for word in given]
    return [part for word in given for part in str(word).split()]
