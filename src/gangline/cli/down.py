"""``gangline down``: end what runs, then the cluster's processes."""

from __future__ import annotations

import time
from typing import Any

import click

from gangline.api.resources import JOBS, MPIJOBS, PODS, TRAINING_JOBS
from gangline.cli.options.target import cluster_option
from gangline.cli.output import say
from gangline.client.home import usable_paths
from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.images.runtime.containerd import end_containerd
from gangline.cluster.node.left_pods import end_left_pods, remove_left_bridge, remove_left_gate
from gangline.cluster.node.pods.control_groups import remove_cgroups
from gangline.errors import ClusterError
from gangline.kube.errors import ApiError, NotFound
from gangline.units import plural

PODS_TIMEOUT_S = 15.0
BACK_TIMEOUT_S = 10.0
"""How long a server that was killed, and is started again, is waited for: it knows what is unfinished."""
POLL_S = 0.05
_WORKLOADS = tuple((resource.root, resource.plural) for resource in (MPIJOBS, *TRAINING_JOBS, JOBS, PODS))


@click.command("down")
@click.option("--purge", is_flag=True, help="Also remove every object, run, log and file of the cluster.")
@cluster_option
def command(purge: bool, cluster: str) -> None:
    """Stop the one-machine cluster: its unfinished jobs are deleted, then its processes end."""
    paths = usable_paths(cluster)
    found = Cluster(paths)
    if found.wait_back(BACK_TIMEOUT_S):
        stop_workloads(found)
    was_up = found.down(say=say)
    if left := end_left_pods(paths):
        say(f"ended {plural(left, 'pod')} that still ran")
    end_containerd(paths.state / "containerd")
    remove_cgroups(paths.cluster_id)
    if facts := found.status().facts:
        remove_left_bridge(facts.bridge)
    remove_left_gate(paths.cluster_id)
    if purge:
        found.purge()
    state = "stopped" if was_up else "was not up"
    say(f"cluster `{cluster}` {state}{'; its files are removed' if purge else ''}")


def stop_workloads(cluster: Cluster) -> None:
    """Delete every unfinished job and pod, and wait at most 15 s for the pods' end.

    Unfinished jobs do not stay: at the next start they would begin again unasked.
    """
    deleted: list[str] = []
    for root, plural_name in _WORKLOADS:
        items = _items(cluster, f"{root}/{plural_name}")
        for item in items:
            metadata = item["metadata"]
            owned = any(owner.get("controller") for owner in metadata.get("ownerReferences") or [])
            # Workers that a finished job keeps go too; owners come first, so that nothing is made again.
            is_kept = owned and plural_name != "pods"
            if is_kept or _is_over(item) or metadata.get("deletionTimestamp"):
                continue
            target = f"{root}/namespaces/{metadata['namespace']}/{plural_name}/{metadata['name']}"
            try:
                cluster.request("DELETE", target, {"propagationPolicy": "Background"})
            except NotFound:
                pass
            except ApiError as error:
                say(f"cannot delete {metadata['name']}: {error}")
                continue
            if not owned:
                deleted.append(f"{metadata['namespace']}/{metadata['name']}")
    if deleted:
        say(f"deleted {plural(len(deleted), 'unfinished job')}: {', '.join(deleted[:10])}")
    # The last items are pods. Those that a Deployment makes in their place begin again at the next start.
    ending = {pod["metadata"]["uid"] for pod in items}
    deadline = time.monotonic() + PODS_TIMEOUT_S
    while time.monotonic() < deadline:
        pods = [pod for pod in _items(cluster, "/api/v1/pods") if pod["metadata"]["uid"] in ending]
        left = [pod for pod in pods if not _is_over(pod) or pod["metadata"].get("deletionTimestamp")]
        if not left:
            return
        time.sleep(POLL_S)
    say(f"{plural(len(left), 'pod')} did not end within {PODS_TIMEOUT_S:.0f} s")


def _items(cluster: Cluster, target: str) -> list[dict[str, Any]]:
    try:
        return cluster.request("GET", target).get("items") or []
    except ClusterError:
        return []


def _is_over(item: dict[str, Any]) -> bool:
    status = item.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    return any(
        found.get("type") in ("Succeeded", "Failed", "Complete") and found.get("status") == "True"
        for found in status.get("conditions") or []
    )
