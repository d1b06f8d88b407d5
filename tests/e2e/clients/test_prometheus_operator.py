"""The Prometheus operator v0.85.0, its install file and its published examples.

Its objects come into being; the pods of Prometheus itself have no image here and wait.
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.clients

IMAGE = "quay.io/prometheus-operator/prometheus-operator"
FOLDERS = ("bin", "dev", "etc", "lib", "proc", "sys", "tmp", "usr/bin")
"""Of a root file system."""

PROGRAM = [
    {"op": "add", "path": "/spec/template/spec/containers/0/command", "value": ["/bin/operator"]},
]
"""A folder that stands for an image has no entry point."""

RBAC = ("prometheus-service-account", "prometheus-cluster-role", "prometheus-cluster-role-binding")
LIMIT_S = 120
LIMIT = f"--timeout={LIMIT_S}s"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    image = tmp_path_factory.mktemp("prometheus-operator") / "root"  # pytest keeps the outer one to its owner
    for folder in FOLDERS:
        (image / folder).mkdir(parents=True)
    shutil.copy(programs / "prometheus-operator", image / "bin" / "operator")
    shutil.copy("/bin/sh", image / "bin" / "sh")
    install = tmp_path_factory.mktemp("install")
    shutil.copytree(programs / "prometheus-operator-files", install / "upstream")
    patch = {"target": {"kind": "Deployment"}, "patch": json.dumps(PROGRAM)}
    layer = {"resources": ["upstream"], "patches": [patch]}
    (install / "kustomization.yaml").write_text(yaml.safe_dump(layer), encoding="utf-8")
    with start_cluster("--image", f"{IMAGE}={image}") as started:
        started.kubectl("apply", "--server-side", "-k", str(install))
        started.kubectl("rollout", "status", "deployment/prometheus-operator", LIMIT)
        yield started


def test_a_prometheus_gets_its_stateful_set_and_the_targets_of_its_monitors(
    cluster: Any, programs: Path
) -> None:
    examples = programs / "prometheus-operator-files/example"
    guide = examples / "user-guides/getting-started"
    files = [examples / "rbac/prometheus" / f"{name}.yaml" for name in RBAC]
    for file in (*files, guide / "prometheus-service-monitor.yaml"):
        cluster.kubectl("apply", "-f", str(file))
    cluster.kubectl("wait", "--for=condition=Reconciled", "prometheus/prometheus", LIMIT)

    owned = cluster.get("statefulset/prometheus-prometheus", "service/prometheus-operated")["items"]
    assert [one["metadata"]["ownerReferences"][0]["kind"] for one in owned] == ["Prometheus", "Prometheus"]
    assert targets(cluster) == []

    cluster.kubectl("apply", "-f", str(guide / "example-app-service-monitor.yaml"))
    deadline = time.monotonic() + LIMIT_S
    while not (found := targets(cluster)) and time.monotonic() < deadline:
        time.sleep(0.2)

    assert found == ["serviceMonitor/default/example-app/0"]
    available = "{.status.conditions[?(@.type=='Available')].reason}"
    cluster.kubectl("wait", f"--for=jsonpath={available}=NoPodReady", "prometheus/prometheus", LIMIT)

    cluster.kubectl("delete", "prometheus", "prometheus", LIMIT)
    cluster.kubectl("wait", "--for=delete", "statefulset/prometheus-prometheus", LIMIT)
    cluster.kubectl("wait", "--for=delete", "pod/prometheus-prometheus-0", LIMIT)


def targets(cluster: Any) -> list[str]:
    """Return what the operator configures Prometheus to scrape."""
    packed = cluster.get("secret/prometheus-prometheus")["data"]["prometheus.yaml.gz"]
    configured = yaml.safe_load(gzip.decompress(base64.b64decode(packed)))
    return [job["job_name"] for job in configured["scrape_configs"]]
