"""What only Kubernetes' own control plane acts on, under our nodes."""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kubernetes

KUBECTL_TIMEOUT_S = 150
Until = Callable[[Callable[[], object], str], None]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded}
spec:
  replicas: 1
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec: {containers: [{name: main, image: gangline/base, command: [sleep, "600"]}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
"""

SERVE_REFUSALS = """
import http.server, json, ssl

class Refuse(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"uid": asked["request"]["uid"], "allowed": False, "status": {"message": "not here"}}
        body = json.dumps({**asked, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("", 8443), Refuse)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("/hook/tls.crt", "/hook/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def kubectl(commands_of: Callable[[Path], Any]) -> Iterator[Kubectl]:
    """Run kubectl on a cluster with Kubernetes' control plane; it must succeed, fail, or (None) either."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    home = Path(tempfile.mkdtemp(prefix="gangline-plane-"))
    commands = commands_of(home)
    environment = os.environ | {"KUBECONFIG": str(home / "default" / "kubeconfig")}

    def run(*words: str, stdin: str = "", fails: bool | None = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["kubectl", f"--cache-dir={home}/cache", *words],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_S,
            check=False,
        )
        assert fails in (None, bool(done.returncode)), done.stdout + done.stderr
        return done

    try:
        up = commands("up", "--control-plane", "kubernetes")
        assert up.returncode == 0, up.stderr
        yield run
    finally:
        commands("down", "--purge")
        shutil.rmtree(home, ignore_errors=True)


def test_a_disruption_budget_holds_an_eviction_up(kubectl: Kubectl, until: Until) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/guarded", "--timeout=120s")
    healthy = ("get", "pdb", "guarded", "-o", "jsonpath={.status.currentHealthy}")
    until(lambda: kubectl(*healthy).stdout == "1", "the budget to count")
    (pod,) = kubectl("get", "pods", "-l", "app=guarded", "-o", "name").stdout.split()
    name = pod.partition("/")[2]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}

    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    refused = kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), fails=True)

    assert "violate the pod's disruption budget" in refused.stderr
    kubectl("delete", "pdb", "guarded")
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    kubectl("wait", "--for=delete", pod, "--timeout=120s")
    kubectl("rollout", "status", "deployment/guarded", "--timeout=120s")


def test_a_cron_job_starts_jobs(kubectl: Kubectl) -> None:
    kubectl(
        "create", "cronjob", "often", "--image=gangline/base", "--schedule=* * * * *", "--", "echo", "now"
    )

    kubectl("wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cronjob/often", "--timeout=140s")

    (job,) = kubectl("get", "jobs", "-o", "name").stdout.split()
    assert kubectl("logs", job).stdout == "now\n"


def certificate_for(name: str) -> tuple[str, str]:
    """Return a certificate that vouches for itself, and its key, both in base64 of PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    parts = certificate.public_bytes(pem), key.private_bytes(pem, *plain)
    return base64.b64encode(parts[0]).decode(), base64.b64encode(parts[1]).decode()


def test_a_webhook_in_a_pod_is_asked(kubectl: Kubectl, until: Until) -> None:
    if os.getuid() != 0:
        pytest.skip("pods have addresses of their own in `network` isolation, which needs root")
    certificate, key = certificate_for("hook.default.svc")
    secret = {"metadata": {"name": "hook"}, "data": {"tls.crt": certificate, "tls.key": key}}
    mount = {"name": "tls", "mountPath": "/hook"}
    command = ["python3", "-c", SERVE_REFUSALS]
    probe = {"tcpSocket": {"port": 8443}, "periodSeconds": 1}
    main = {"name": "main", "image": "gangline/base", "command": command, "readinessProbe": probe}
    volumes = [{"name": "tls", "secret": {"secretName": "hook"}}]
    pod = {
        "metadata": {"name": "hook", "labels": {"app": "hook"}},
        "spec": {"containers": [main | {"volumeMounts": [mount]}], "volumes": volumes},
    }
    service = {"metadata": {"name": "hook"}, "spec": {"selector": {"app": "hook"}, "ports": [{"port": 8443}]}}
    for kind, obj in (("Secret", secret), ("Pod", pod), ("Service", service)):
        kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": kind, **obj}))
    kubectl("wait", "--for=condition=Ready", "pod/hook", "--timeout=120s")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    called = {"namespace": "default", "name": "hook", "port": 8443}
    hook = {
        "name": "refuse.hook.test",
        "rules": [rule],
        "clientConfig": {"service": called, "caBundle": certificate},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "objectSelector": {"matchLabels": {"refuse": "me"}},
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refuse"},
        "webhooks": [hook],
    }
    kubectl("create", "-f", "-", stdin=json.dumps(configuration))
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w", "labels": {"refuse": "me"}}}

    def refusal() -> str:  # a webhook is asked a moment after it was configured
        return kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(wanted), fails=None).stderr

    until(lambda: "not here" in refusal(), "the webhook's words")
