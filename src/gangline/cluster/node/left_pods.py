"""What killed daemons leave behind, for the end of a cluster: running pods, their bridge and its rules.

A shim outlives a killed agent so that the next one can adopt its pod. When the cluster is stopped there is no
next one, and what is left is told to end over the same socket that the agent would have used.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

from gangline.cluster.node.shim import processes
from gangline.cluster.paths import ClusterPaths
from gangline.errors import ClusterError

END_TIMEOUT_S = 8.0
_UID_CHARS = 36


def end_left_pods(paths: ClusterPaths) -> int:
    """End every process of the cluster's pods; return how many pods had some. Call with no agent running.

    Their sockets go, by which the processes are found, and the sessions of users: no pod can want one now.
    """
    ended = set()
    for path in paths.run.glob("*.sock"):
        if len(path.stem) == _UID_CHARS and _end(str(path)):
            ended.add(path.stem)
    for pid in processes.marked(processes.CLUSTER_MARKER, paths.cluster_id):
        uid = processes.environment_of(pid).get(processes.POD_MARKER, "")
        if uid and uid not in ended and not processes.is_zombie(pid):  # its shim was killed as well
            ended.add(uid)
            processes.sweep(uid)
    for folder in (paths.run, paths.sessions):
        shutil.rmtree(folder, ignore_errors=True)
    return len(ended)


def remove_left_bridge(name: str) -> bool:
    """Remove the bridge that a killed agent could not; ``False`` when there is none, or no right to it."""
    if not name or os.getuid() != 0 or not Path("/sys/class/net", name).exists():
        return False
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    with IPRoute() as netlink:
        try:
            for index in netlink.link_lookup(ifname=name):
                netlink.link("del", index=index)
        except NetlinkError:
            return False
    return True


def remove_left_gate(cluster_id: str) -> bool:
    """Remove the packet rules that a killed agent could not; ``False`` when there are none."""
    if os.getuid() != 0 or sys.platform != "linux":
        return False
    from gangline.cluster.node.network.egress.gate import remove_gate

    try:
        return remove_gate(cluster_id)
    except ClusterError:
        return False  # the kernel has no packet rules, so none were left


def _end(path: str) -> bool:
    """Tell one shim to end its pod and wait for it; ``False`` when no shim listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(END_TIMEOUT_S)
        try:
            connection.connect(path)
        except OSError:
            return False
        try:
            connection.sendall(json.dumps({"id": 1, "op": "end"}).encode() + b"\n")
            while connection.recv(65536):
                pass  # it closes the connection with its last breath
        except OSError:
            pass
    return True
