"""Helm with the chart that it makes by default: installed, upgraded, rolled back and taken away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.clients

IMAGE = ("--set", "image.repository=gangline/base", "--set", "image.tag=1")


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster() as started:
        yield started


def test_a_release_lives_through_its_revisions(cluster: Any, programs: Path, tmp_path: Path) -> None:
    def helm(*words: str) -> str:
        done = cluster.run(str(programs / "helm"), *words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    chart = str(tmp_path / "web")
    helm("create", chart)

    helm("install", "web", chart, *IMAGE)
    assert replicas(cluster) == 1
    helm("upgrade", "web", chart, *IMAGE, "--set", "replicaCount=2")
    assert replicas(cluster) == 2
    helm("rollback", "web", "1")
    assert replicas(cluster) == 1
    assert [one["status"] for one in json.loads(helm("history", "web", "-o", "json"))] == [
        "superseded",
        "superseded",
        "deployed",
    ]
    assert "kind: Deployment" in helm("get", "manifest", "web")
    helm("uninstall", "web", "--wait", "--timeout", "60s")

    assert json.loads(helm("list", "-o", "json")) == []
    assert cluster.get("deployments,services", "-l", "app.kubernetes.io/instance=web")["items"] == []


def replicas(cluster: Any) -> int:
    count: int = cluster.get("deployment", "web")["spec"]["replicas"]
    return count
