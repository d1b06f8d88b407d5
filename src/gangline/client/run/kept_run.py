"""What a run on a cluster of a kubeconfig leaves on the user's machine: its record and its log as followed.

On the one-machine cluster the server keeps both, see ``gangline.cluster.controllers.run_recorder``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from gangline import clock
from gangline.cluster.node.shim.logfile import LogFile
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.bounds import Bounds
from gangline.cluster.runs.history import History
from gangline.cluster.runs.record import RunRecord, without_environment

Obj = dict[str, Any]

PODS_MAX = 512


class KeptRun:
    """One run while it is followed. A disk that refuses loses the record, never the run.

    Args:
        paths: of what is kept of the cluster.
    """

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths
        self._history = History(paths)
        self._logs: dict[str, LogFile | None] = {}
        self._written = ""

    def saw(self, job: Obj, pods: Iterable[Obj], *, is_gone: bool = False) -> None:
        """Write the record where job or pods came to another state."""
        pods = list(pods)[-PODS_MAX:]
        state = repr(
            (job.get("status"), [(pod["metadata"]["name"], pod.get("status")) for pod in pods], is_gone)
        )
        if state == self._written:
            return
        record = RunRecord(
            job=without_environment(job),
            pods=[without_environment(pod) for pod in pods],
            gone_at=clock.format_time(clock.now()) if is_gone else "",
        )
        try:
            if not self._written:
                bounds = Bounds.of(os.environ)
                self._history.sweep(bounds, living=(record.uid,), now_s=time.time())
            self._history.write(record)
        except OSError:
            return
        self._written = state

    def log(self, pod: Obj, data: bytes) -> None:
        """Append to the log of a pod's first container."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if uid not in self._logs:
            folder = self._paths.pod_logs(metadata["namespace"], metadata["name"], uid)
            try:
                (folder / pod["spec"]["containers"][0]["name"]).mkdir(mode=0o700, parents=True, exist_ok=True)
                self._logs[uid] = LogFile(str(folder / pod["spec"]["containers"][0]["name"] / "0.log"))
            except OSError:
                self._logs[uid] = None
        if file := self._logs[uid]:
            file.write(b"stdout", data)

    def close(self) -> None:
        """End the logs."""
        for file in self._logs.values():
            if file:
                file.close()
