"""``gangline status``: the one-machine cluster, its processes and its nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from gangline.api.resources import DEPLOYMENTS, NODES, PODS
from gangline.cli.options.images import describe_map
from gangline.cli.options.target import target_options
from gangline.cli.output import Column, print_table, print_value
from gangline.client.home import usable_paths
from gangline.client.target import ClusterTarget, open_client
from gangline.cluster.daemon.cluster import Cluster, ClusterStatus
from gangline.cluster.daemon.kept_image_map import load_image_map
from gangline.cluster.daemon.restarts import read_restarts
from gangline.kube.errors import Forbidden, NotFound
from gangline.units import format_bytes, plural

EXIT_DOWN = 3
SERVICES_SELECTOR = "app.kubernetes.io/part-of=gangline"
"""The label of everything that an installation brings."""

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
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print JSON or YAML.")
@target_options(namespace=False)
def command(output: str | None, target: ClusterTarget) -> int:
    """Show the cluster's processes with their memory, and its nodes; exit code 3 when it is not up.

    Of a cluster of your kubeconfig: its version, its services of Gangline, and its nodes.
    """
    if not target.is_local:
        report = asyncio.run(_describe_context(target))
        print_value(report, output) if output else _print_context(report)
        return 0
    found = Cluster(usable_paths(target.cluster))
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
            "metrics": facts.metrics_url,
            "isolation": facts.isolation,
            "keep": facts.keep,
            "operator": facts.has_operator,
            "suspension": msgspec.to_builtins(facts.suspension),
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


async def _describe_context(target: ClusterTarget) -> dict[str, Any]:
    """Return what is shown of a cluster of a kubeconfig, as far as the user may see it."""
    report: dict[str, Any] = {"cluster": target.title, "nodes": [], "services": [], "lacking": []}
    async with open_client(target) as client:
        report["server"] = client.connection.server
        report["version"] = str((await client.request("GET", "/version")).get("gitVersion", ""))
        report["namespace"] = client.connection.namespace
        try:
            nodes = (await client.list(NODES)).items
            report["nodes"] = _node_rows(nodes, (await client.list(PODS)).items)
        except Forbidden:
            report["lacking"].append("list nodes, and pods of all namespaces")
        try:
            found = (await client.list(DEPLOYMENTS, None, label_selector=SERVICES_SELECTOR)).items
            report["services"] = [_service_row(one) for one in found]
        except Forbidden:
            report["lacking"].append("list deployments of all namespaces")
    return report


def _service_row(deployment: dict[str, Any]) -> dict[str, Any]:
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    ready, wanted = status.get("readyReplicas") or 0, deployment["spec"].get("replicas", 1)
    return {"name": metadata["name"], "namespace": metadata["namespace"], "ready": ready, "replicas": wanted}


def _print_context(report: dict[str, Any]) -> None:
    print(f"cluster   {report['cluster']}: up, {report['version']}")
    print(f"api       {report['server']}, namespace `{report['namespace']}`")
    for one in report["services"]:
        print(f"service   {one['namespace']}/{one['name']}: {one['ready']} of {one['replicas']} ready")
    for right in report["lacking"]:
        print(f"not seen  whatever needs the right to {right}")
    if report["nodes"]:
        _print_nodes(report["nodes"])


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
    pods = cluster.call(lambda client: client.list(PODS)).items
    return _node_rows(cluster.call(lambda client: client.list(NODES)).items, pods)


def _node_rows(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from gangline.client.jobs.gpu_kind import kind_of_nodes
    from gangline.units import quantity_ceil
    from gangline.workloads.requests import pod_gpus, read_gpu_count

    running: dict[str, int] = {}
    held: dict[str, int] = {}
    for pod in pods:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            node = pod["spec"].get("nodeName", "")
            running[node] = running.get(node, 0) + 1
            held[node] = held.get(node, 0) + pod_gpus(pod["spec"])
    rows = []
    for node in nodes:
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
        print(f"metrics   {report['metrics']} (gangline metrics)")
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
    if report["nodes"]:
        _print_nodes(report["nodes"])


def _print_nodes(nodes: list[dict[str, Any]]) -> None:
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
        for node in nodes
    ]
    print_table(_NODE_COLUMNS, rows)
