"""Kueue's own controller, unmodified, against a control plane of ours.

Its webhooks are not called: an API server without nodes reaches no Service. So jobs are made suspended, as
they would make them, and its objects are written in the version that it stores. The rest is its own.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from typing import Any

import yaml
from control_plane import WITH_GANGS, ControlPlane, NotBuilt, die_with_parent, free_ports, programs

NAMESPACE = "kueue-system"
SECRET = "kueue-webhook-server-cert"
SERVICE = "kueue-webhook-service"
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Kinds whose definitions have a conversion webhook, into which it writes its certificate."""

READY_LIMIT_S = 60.0
_POLL_S = 0.1


class KueueController:
    """The controller as a process; a context manager that ends it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._folder = plane.folder / "kueue"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KueueController:
        program = programs(WITH_GANGS) / "kueue"
        if not program.exists():
            raise NotBuilt(f"{program} is not there: run `tests/kubernetes/build.sh {WITH_GANGS} kueue`")
        self._folder.mkdir()
        for definition in _definitions():
            self._plane.request("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self._add_objects()
        health, metrics, webhook = free_ports(3)
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(self._configuration(health, metrics, webhook)))
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, f"--config={config}"],
                env=os.environ | {"KUBECONFIG": str(self._plane.kubeconfig)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        self._mount_certificate()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """Return the end of what it printed."""
        return (self._folder / "log").read_text()[-3000:]

    def _configuration(self, health: int, metrics: int, webhook: int) -> dict[str, Any]:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(self._folder / "certificates")},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": SERVICE,
                "webhookSecretName": SECRET,
            },
            "featureGates": {"VisibilityOnDemand": False},
            "integrations": {"frameworks": ["batch/job", "kubeflow.org/mpijob", "kubeflow.org/pytorchjob"]},
        }

    def _add_objects(self) -> None:
        request = self._plane.request
        meta = {"metadata": {"name": NAMESPACE}}
        request("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", **meta})
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
        request(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        group = "admissionregistration.k8s.io/v1"
        for kind in ("Validating", "Mutating"):
            name = f"kueue-{kind.lower()}-webhook-configuration"
            body = {"apiVersion": group, "kind": f"{kind}WebhookConfiguration", "metadata": {"name": name}}
            request(f"/apis/{group}/{kind.lower()}webhookconfigurations", body)

    def _mount_certificate(self) -> None:
        """Write the certificate that it makes to where it expects it: the kubelet's part."""
        folder = self._folder / "certificates"
        folder.mkdir()
        deadline_s = time.monotonic() + READY_LIMIT_S
        while True:
            found = self._plane.request(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}").get("data") or {}
            if "tls.crt" in found:
                for name, text in found.items():
                    (folder / name).write_bytes(base64.b64decode(text))
                return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"Kueue makes no certificate:\n{self.log()}")
            time.sleep(_POLL_S)


def _definitions() -> list[dict[str, Any]]:
    """Return its definitions as its manifests have them, with the conversion that it wants to find there."""
    service = {"namespace": NAMESPACE, "name": SERVICE, "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    found = []
    for path in sorted((programs(WITH_GANGS) / "kueue-definitions").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        if definition["spec"]["names"]["plural"] in CONVERTED:
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        found.append(definition)
    return found
