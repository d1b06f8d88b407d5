"""``gangline status``: the one-machine cluster, its processes and its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gangline.api.resources import NODES, PODS
from gangline.cli.options.home import usable_paths
from gangline.cli.options.images import describe_map
from gangline.cli.options.target import cluster_option
from gangline.cli.output import Column, print_table, print_value
from gangline.cluster.daemon.cluster import Cluster, ClusterStatus
from gangline.cluster.daemon.kept_image_map import load_image_map
from gangline.cluster.daemon.restarts import read_restarts
from gangline.kube.errors import NotFound
from gangline.units import format_bytes, plural

EXIT_DOWN = 3

_NODE_COLUMNS = (
    Column("NODE"),
    Column("STATUS"),
    Column("PODS"),
    Column("CPU"),
    Column("MEMORY"),
    Column("GPUS", rank=2),
    Column("ADDRESS", rank=1),
)


@click.command("status")
@cluster_option
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print JSON or YAML.")
def command(cluster: str, output: str | None) -> int:
    """Show the cluster's processes with their memory, and its nodes; exit code 3 when it is not up."""
    found = Cluster(usable_paths(cluster))
    report = describe(found, found.status())
    if output:
        print_value(report, output)
    else:
        _print(report)
    return 0 if report["ready"] else EXIT_DOWN


def describe(cluster: Cluster, status: ClusterStatus) -> dict[str, Any]:
    """Return everything that the command shows, as plain values."""
    facts = status.facts
    report: dict[str, Any] = {
        "cluster": cluster.paths.name,
        "ready": status.ready,
        "processes": {},
        "nodes": [],
    }
    for process, lock in (("server", status.server), ("agent", status.agent)):
        memory = pss_bytes(lock.pid) if lock.state == "held" else None
        again = read_restarts(cluster.paths, process)
        report["processes"][process] = {
            "state": lock.state,
            "pid": lock.pid,
            "pssBytes": memory,
            "restarts": again.count,
            "lastRestart": again.last or None,
            "lastRestartReason": again.why or None,
        }
    if facts is not None:
        report |= {
            "port": facts.port,
            "controlPlane": facts.control_plane,
            "isolation": facts.isolation,
            "keep": facts.keep,
            "operator": facts.has_operator,
            "created": facts.created,
        }
    report["state"] = str(cluster.paths.state)
    if status.ready:
        report["isolation"] = cluster.isolation_in_use() or report.get("isolation")
        report["outside"] = cluster.outside()
        report["nodes"] = _nodes(cluster)
        report["images"] = describe_map(load_image_map(cluster), cluster.paths)
        report["definitions"] = _strangers(cluster, facts is None or facts.has_operator)
    return report


def _strangers(cluster: Cluster, has_operator: bool) -> list[str]:
    """Return what is wrong with the definitions that the cluster's services work by, in words."""
    from gangline.api.crds import crds, gang_crds
    from gangline.api.definitions import judge
    from gangline.api.resources import CRDS

    found = []
    for crd in (*(crds() if has_operator else ()), *gang_crds()):
        name = crd["metadata"]["name"]
        try:
            verdict = judge(crd, cluster.request("GET", CRDS.path(name=name)))
            found.append(verdict.message if verdict else "")
        except NotFound:
            found.append(f"definition {name} is gone: `gangline down` and `gangline up` put it back")
    return [message for message in found if message]


def pss_bytes(pid: int) -> int | None:
    """Return the proportional set size of a process (Linux), ``None`` where it cannot be read."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


def _nodes(cluster: Cluster) -> list[dict[str, Any]]:
    from gangline.cli.jobs.gpu_kind import kind_of_nodes
    from gangline.units import quantity_ceil
    from gangline.workloads.requests import pod_gpus, read_gpu_count

    pods = cluster.call(lambda client: client.list(PODS)).items
    running: dict[str, int] = {}
    held: dict[str, int] = {}
    for pod in pods:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            node = pod["spec"].get("nodeName", "")
            running[node] = running.get(node, 0) + 1
            held[node] = held.get(node, 0) + pod_gpus(pod["spec"])
    rows = []
    for node in cluster.call(lambda client: client.list(NODES)).items:
        status = node.get("status", {})
        ready = any(
            one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or []
        )
        capacity = status.get("capacity") or {}
        gpus = read_gpu_count(capacity)
        addresses = {one["type"]: one["address"] for one in status.get("addresses") or []}
        rows.append(
            {
                "name": node["metadata"]["name"],
                "ready": ready,
                "pods": running.get(node["metadata"]["name"], 0),
                "cpu": str(capacity.get("cpu", "")),
                "memoryBytes": quantity_ceil(capacity.get("memory", 0)),
                "gpus": gpus,
                "gpusFree": max(0, gpus - held.get(node["metadata"]["name"], 0)),
                "gpuKind": kind_of_nodes([node]) or None,
                "address": addresses.get("InternalIP", ""),
            }
        )
    return rows


def _gpus(node: dict[str, Any]) -> str:
    """Return ``8 simulated, 6 free``."""
    if not node["gpus"]:
        return "0"
    kind = f" {node['gpuKind']}" if node["gpuKind"] else ""
    return f"{node['gpus']}{kind}, {node['gpusFree']} free"


def _print(report: dict[str, Any]) -> None:
    state = "up" if report["ready"] else "not up"
    if not report["ready"] and "killed" in {one["state"] for one in report["processes"].values()}:
        state = (
            "not up: its server was killed"
            if report["processes"]["server"]["state"] == "killed"
            else "not up"
        )
    if not report["ready"] and report["processes"]["server"]["state"] == "held":
        state = "starting, or hung"
    print(f"cluster   {report['cluster']}: {state}")
    if "port" in report:
        print(f"api       https://127.0.0.1:{report['port']}, control plane `{report['controlPlane']}`")
        print(f"isolation {report['isolation']}")
        if not report["operator"]:
            print("operator  none: MPIJobs are left to one that you install")
    if report.get("outside"):
        print(f"outside   {report['outside']}")
    for process, found in report["processes"].items():
        memory = f", {format_bytes(found['pssBytes'])}" if found["pssBytes"] else ""
        words = (
            f"process {found['pid']}{memory}"
            if found["state"] == "held"
            else found["state"].replace("free", "none")
        )
        if found["restarts"]:
            times = plural(found["restarts"], "time")
            last = f"{found['lastRestart']}, {found['lastRestartReason']}"
            words += f"; started again {times} (last {last})"
        print(f"{process:9} {words}")
    print(f"files     {report['state']}")
    for message in report.get("definitions", []):
        print(f"warning   {message}")
    for line in report.get("images", []):
        print(f"images    {line.removeprefix('image ')}")
    if not report["nodes"]:
        return
    print()
    rows = [
        [
            node["name"],
            "Ready" if node["ready"] else "NotReady",
            str(node["pods"]),
            node["cpu"],
            format_bytes(node["memoryBytes"]),
            _gpus(node),
            node["address"],
        ]
        for node in report["nodes"]
    ]
    print_table(_NODE_COLUMNS, rows)
