"""Every command that `kubectl --help` lists, typed once: it works."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

pytestmark = pytest.mark.clients

WORKS = {
    "create": "create configmap made --from-literal=a=b",
    "expose": "expose deployment web --name=shown --port=80",
    "run": "run made --image=gangline/base --restart=Never -- true",
    "set": "set env deployment/web A=b",
    "explain": "explain pod.spec.containers",
    "get": "get deployments,pods -o wide",
    "edit": "edit configmap kept",
    "delete": "delete configmap deleted",
    "rollout": "rollout status deployment/web --timeout=60s",
    "scale": "scale deployment web --replicas=1",
    "autoscale": "autoscale deployment web --max=3",
    "certificate": "certificate approve asked",
    "cluster-info": "cluster-info",
    "top": "top nodes",
    "cordon": "cordon node-1",
    "uncordon": "uncordon node-1",
    "drain": "drain node-1 --ignore-daemonsets --force",
    "taint": "taint nodes node-1 seen=yes:PreferNoSchedule",
    "describe": "describe deployment web",
    "logs": "logs deployment/web",
    "exec": "exec deployment/web -- true",
    "cp": "cp {file} {pod}:/tmp/copied",
    "auth": "auth can-i create pods",
    "events": "events",
    "debug": "debug {pod} --image=gangline/base -- true",
    "diff": "diff -f {file}",
    "apply": "apply -f {file}",
    "patch": 'patch configmap kept -p {{"data":{{"c":"d"}}}}',
    "replace": "replace -f {file}",
    "wait": "wait --for=condition=Available deployment/web --timeout=60s",
    "kustomize": "kustomize {folder}",
    "label": "label configmap kept seen=yes",
    "annotate": "annotate configmap kept seen=yes",
    "completion": "completion bash",
    "api-resources": "api-resources",
    "api-versions": "api-versions",
    "config": "config view",
    "plugin": "plugin --help",
    "version": "version",
}
"""Command -> its line."""

STAYS = {
    "attach": ("attach deployment/web", "said"),
    "port-forward": ("port-forward deployment/web :80", "Forwarding from 127.0.0.1:"),
    "proxy": ("proxy --port=0", "Starting to serve on 127.0.0.1:"),
}
"""Command that goes on until it is ended -> its line, and what it prints."""

KEPT = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: default}
data: {a: b}
"""
# "  create          Create a resource from a file or from stdin"
LISTED = re.compile(r"^  ([a-z-]+) {2,}\S", re.MULTILINE)


class Typed(NamedTuple):
    """A cluster with what the lines name.

    Attributes:
        words: what stands in braces in a line -> what it is here.
    """

    cluster: Any
    words: dict[str, str]

    def line(self, text: str) -> list[str]:
        return text.format(**self.words).split(" ")


@pytest.fixture(scope="module")
def typed(start_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    folder = tmp_path_factory.mktemp("typed")
    (folder / "kept.yaml").write_text(KEPT)
    (folder / "kustomization.yaml").write_text("resources: [kept.yaml]\n")
    with start_cluster("--nodes", "2") as cluster:
        cluster.kubectl("apply", "-f", str(folder / "kept.yaml"))
        cluster.kubectl("create", "configmap", "deleted")
        cluster.kubectl("create", "-f", "-", stdin=signing_request())
        say = "while echo said; do sleep 0.2; done"
        cluster.kubectl("create", "deployment", "web", "--image=gangline/base", "--", "sh", "-c", say)
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        on_the_first = '--overrides={"spec": {"nodeName": "node-0"}}'  # the second one is drained
        cluster.kubectl("run", "stays", "--image=gangline/base", on_the_first, "--", "sleep", "600")
        cluster.kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
        yield Typed(cluster, {"folder": str(folder), "file": str(folder / "kept.yaml"), "pod": "stays"})


def signing_request() -> str:
    """Return a request for a client's certificate, as kubectl creates it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "asked")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    return json.dumps(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": "asked"},
            "spec": {
                "request": request,
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
            },
        }
    )


def test_each_command_that_kubectl_lists_is_here(typed: Typed) -> None:
    listed = set(LISTED.findall(typed.cluster.kubectl("--help")))

    assert listed - {"alpha"} == {*WORKS, *STAYS}


@pytest.mark.parametrize("command", WORKS)
def test_it_works(typed: Typed, command: str) -> None:
    done = typed.cluster.run("env", "EDITOR=true", "kubectl", *typed.line(WORKS[command]))

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", STAYS)
def test_it_works_until_it_is_ended(typed: Typed, command: str) -> None:
    line, said = STAYS[command]

    done = typed.cluster.run("timeout", "5", "kubectl", *typed.line(line))

    assert done.returncode == 124, done.stderr
    assert said in done.stdout
