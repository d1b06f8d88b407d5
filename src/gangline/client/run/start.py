"""Start the one-machine cluster for a run."""

from __future__ import annotations

import time

from gangline.client.notices import Say, silent
from gangline.client.run.gpus import GpuOptions, simulated
from gangline.client.target import ClusterTarget
from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.process_lock import read_lock


def start_cluster(cluster: Cluster, nodes: int, gpus: GpuOptions, say: Say = silent) -> None:
    """Start the cluster if it is not up, and say that it was, how long it took and how to end it."""
    was_up = read_lock(cluster.paths.lock("server")).state == "held"
    started_s = time.monotonic()
    facts = cluster.ensure_up(nodes=nodes, simulation=gpus.simulation, say=say)
    if not was_up:
        mode = cluster.isolation_in_use() or facts.isolation
        took_s = time.monotonic() - started_s
        named = ClusterTarget(cluster=facts.name).options
        say(
            f"started cluster `{facts.name}` in {took_s:.1f} s, isolation `{mode}`{simulated(facts)}; "
            f"`gangline status{named}` shows it, `gangline down{named}` ends it"
        )
        if outside := cluster.outside():
            say(f"outside of this machine: {outside}")
