"""The host lists of an MPIJob: ``hostfile`` for mpirun, ``discover_hosts.sh`` for elastic programs.

When the second is rewritten is ours (`docs/decisions/0002-discover-hosts.md`): upstream writes it at each
start of a worker, W writes of O(W) bytes. Here a job whose launcher names the script gets just that; any
other job gets it once all workers run, and whenever a listed worker no longer runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gangline.api.mpijob import LAUNCHER, MPIJob
from gangline.jobs.names import DISCOVER_HOSTS_KEY, Names

_HEAD: Final = "#!/bin/sh\n"
_SCRIPT_MARK: Final = DISCOVER_HOSTS_KEY.removesuffix(".sh")


def render_hostfile(job: MPIJob, cluster_domain: str = "") -> str:
    """Return one line for each host, the launcher first if it takes ranks, then the workers by number."""
    names = Names.of(job)
    pods = [names.launcher] if job.spec.run_launcher_as_worker else []
    pods += [names.worker(index) for index in range(job.worker_count)]
    form = "{} slots={}\n" if job.spec.mpi_implementation == "OpenMPI" else "{}:{}\n"
    slots = job.spec.slots_per_worker
    return "".join(form.format(names.host(pod, cluster_domain), slots) for pod in pods)


def render_discover_hosts(job: MPIJob, pods: Iterable[str], cluster_domain: str = "") -> str:
    """Return the script that prints hosts: the launcher if it takes ranks, then ``pods`` sorted as text."""
    names = Names.of(job)
    hosts = [names.launcher] if job.spec.run_launcher_as_worker else []
    hosts += sorted(pods)
    return _HEAD + "".join(f"echo {names.host(pod, cluster_domain)}\n" for pod in hosts)


def next_discover_hosts(job: MPIJob, running: set[str], now: str | None, cluster_domain: str = "") -> str:
    """Return the script that the job should have.

    Args:
        job: the job.
        running: names of the worker pods that run.
        now: the script as it is; None when there is none yet.
        cluster_domain: appended to host names.
    """
    wanted = render_discover_hosts(job, running, cluster_domain)
    if now is None or now == wanted or is_elastic(job) or len(running) >= job.worker_count:
        return wanted
    listed = set(now.removeprefix(_HEAD).splitlines())
    gone = listed - set(wanted.removeprefix(_HEAD).splitlines())
    return wanted if gone or not now.startswith(_HEAD) else now


def is_elastic(job: MPIJob) -> bool:
    """Whether the launcher's containers mention the script, so that workers may come and go."""
    launcher = job.spec.replica(LAUNCHER)
    return launcher is not None and any(
        _SCRIPT_MARK in text
        for container in launcher.containers
        for part in ("command", "args", "env")
        for text in _texts(container.get(part))
    )


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(value.get("value"))
