"""In which pod a rank of an MPIJob ran: from the order of its hosts and the launcher's command line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.api.mpijob_reading import current_spec

Obj = dict[str, Any]


def pod_of_rank(rank: int, job: Obj) -> str:
    """Return the pod of a rank, empty where the launcher maps ranks in another way."""
    return host_of_rank(rank, hosts_of(job), launcher_command(job))


def hosts_of(job: Obj) -> list[tuple[str, int]]:
    """Return host names and slots in the order of the hostfile."""
    spec = current_spec(job)
    slots = int(spec.get("slotsPerWorker") or 1)
    name = job["metadata"]["name"]
    workers = int(((spec.get("mpiReplicaSpecs") or {}).get("Worker") or {}).get("replicas") or 0)
    hosts = [(f"{name}-worker-{index}", slots) for index in range(workers)]
    if spec.get("runLauncherAsWorker"):
        hosts.insert(0, (f"{name}-launcher", slots))
    return hosts


def launcher_command(job: Obj) -> list[str]:
    """Return the launcher's command and arguments; a shell line is split into words."""
    launcher = ((current_spec(job).get("mpiReplicaSpecs") or {}).get("Launcher") or {}).get("template") or {}
    containers = (launcher.get("spec") or {}).get("containers") or [{}]
    given = [*(containers[0].get("command") or []), *(containers[0].get("args") or [])]
    if given and str(given[0]).rpartition("/")[2] in ("mpirun", "mpiexec"):
        return [str(word) for word in given]
    return [part for word in given for part in str(word).split()]


def host_of_rank(rank: int, hosts: Sequence[tuple[str, int]], command: Sequence[str]) -> str:
    """Return the host on which a rank ran, from (host, slots) in the order of the hostfile; ``""`` unknown.

    Open MPI and Hydra fill host after host up to its slots unless the command line maps otherwise; by node,
    ``-N``/``-npernode``/``-ppn`` and ``ppr:N:node`` are understood, other mappings are not.
    """
    if not hosts:
        return ""
    if len(hosts) == 1:
        return hosts[0][0]
    mapping = _mapping(command)
    if mapping == "other":
        return ""
    if mapping == "node":
        return hosts[rank % len(hosts)][0]
    for name, slots in hosts:
        filled = int(mapping) if mapping else slots
        if rank < filled:
            return name
        rank -= filled
    return ""


def _mapping(command: Sequence[str]) -> str:
    """Return ``""`` for by slot, ``node``, a number of ranks for each host, or ``other``."""
    for option, value in zip(command, [*command[1:], ""], strict=True):
        if (option, value) == ("sh", "-c"):
            return ""  # the options behind it are the program's
        name = option.lstrip("-") if option.startswith("-") else ""
        name, equals, tail = name.partition("=")
        value = tail if equals else value
        if name in ("bynode", "rr"):
            return "node"
        if name in ("N", "npernode", "ppn", "perhost") and value.isdigit():
            return value
        if name in ("rankfile", "rf", "host", "H", "hosts", "f", "hostfile", "machinefile"):
            return "other"
        if name == "map-by":
            return _map_by(value)
    return ""


def _map_by(value: str) -> str:
    unit = value.lower().split(",")[0]
    parts = unit.split(":")
    if parts[0] == "ppr":
        return parts[1] if len(parts) > 2 and parts[2] == "node" and parts[1].isdigit() else "other"
    if parts[0] in ("slot", "core", "socket", "package", "numa"):
        return "" if "oversubscribe" not in parts and "span" not in parts else "other"
    if parts[0] == "node":
        return "node"
    return "" if parts == ["", "nooversubscribe"] else "other"
