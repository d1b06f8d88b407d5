"""JobSet's own controller, unmodified, against a control plane of ours.

Its webhooks are not called: an API server without nodes reaches no Service. What they fill in, a test writes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error

import yaml
from control_plane import WITH_GANGS, ControlPlane, NotBuilt, die_with_parent, free_ports, programs

SERVED_LIMIT_S = 30.0
_POLL_S = 0.05


class JobSetController:
    """The controller as a process; a context manager that ends it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._folder = plane.folder / "jobset"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JobSetController:
        program = programs(WITH_GANGS) / "jobset"
        if not program.exists():
            raise NotBuilt(f"{program} is not there: run `tests/kubernetes/build.sh {WITH_GANGS} jobset`")
        for path in sorted((programs(WITH_GANGS) / "jobset-definitions").glob("*.yaml")):
            definition = yaml.safe_load(path.read_text())
            self._plane.request("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self._wait_served()
        self._folder.mkdir()
        own = self._plane.folder / "certificates"
        for ending in ("crt", "key"):
            shutil.copy(own / f"apiserver.{ending}", self._folder / f"tls.{ending}")
        health, metrics, webhook = free_ports(3)
        certificates = {"certDir": str(self._folder)}
        configuration = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": webhook, **certificates},
            "metrics": {"bindAddress": f"127.0.0.1:{metrics}", **certificates},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        }
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(configuration))
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, f"--config={config}"],
                env=os.environ | {"KUBECONFIG": str(self._plane.kubeconfig)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        return self

    def _wait_served(self) -> None:
        """Wait until the kind is served, which it is a moment after its definition is there."""
        deadline_s = time.monotonic() + SERVED_LIMIT_S
        while True:
            try:
                self._plane.request("/apis/jobset.x-k8s.io/v1alpha2/jobsets")
            except urllib.error.HTTPError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
