"""Kubeflow's guide to MPIJobs: what stands in it beside the runs, which are in other files here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

IMAGE = "mpioperator/tensorflow-benchmarks"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, saying_python: Path) -> Iterator[Any]:
    with start_cluster(
        "--nodes", "2", "--simulate-gpus", "8", "--image", f"{IMAGE}={saying_python}"
    ) as started:
        yield started


def test_the_definition_is_there(cluster: Any) -> None:
    names = [line.split()[0] for line in cluster.kubectl("get", "crd").splitlines()]

    assert "mpijobs.kubeflow.org" in names


def test_a_job_is_shown_as_v2beta1_and_its_copy_runs_the_same(cluster: Any) -> None:
    name = cluster.job("v2beta1-benchmarks.yaml")
    shown = cluster.kubectl("get", "mpijob", name, "-o", "yaml")
    assert yaml.safe_load(shown)["apiVersion"] == "kubeflow.org/v2beta1"
    cluster.kubectl("delete", "mpijob", name)

    cluster.kubectl("create", "-f", "-", stdin=shown)

    cluster.kubectl("wait", "--for=condition=Succeeded", f"mpijob/{name}", "--timeout=60s")
    assert f"on {name}-launcher" not in cluster.launcher_log(name)
    cluster.kubectl("delete", "mpijob", name)


def test_the_switch_of_sidecars_reaches_the_pods(cluster: Any, published: Path) -> None:
    job = yaml.safe_load((published / "v2beta1-benchmarks.yaml").read_text())
    for replica in job["spec"]["mpiReplicaSpecs"].values():
        replica["template"]["metadata"] = {"annotations": {"sidecar.istio.io/inject": "false"}}
    name = job["metadata"]["name"]

    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))

    cluster.kubectl("wait", "--for=condition=Succeeded", f"mpijob/{name}", "--timeout=60s")
    pods = cluster.get("pods", "-l", f"training.kubeflow.org/job-name={name}")["items"]
    assert {pod["metadata"]["annotations"]["sidecar.istio.io/inject"] for pod in pods} == {"false"}
    cluster.kubectl("delete", "mpijob", name)


def test_the_operators_metrics_are_served_under_their_names(cluster: Any) -> None:
    before = metrics(cluster)
    name = cluster.job("v2beta1-benchmarks.yaml")

    after = metrics(cluster)

    for counted in ("created", "successful"):
        metric = (f"mpi_operator_jobs_{counted}_total", "")
        assert after[metric] == before[metric] + 1
    assert after["mpi_operator_jobs_failed_total", ""] == 0
    assert after["mpi_operator_job_info", f"{name}-launcher"] == 1


def metrics(cluster: Any) -> dict[tuple[str, str], float]:
    """Return the figures of the operator by name and launcher."""
    lines = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    own = [line for line in lines if line.startswith("mpi_operator_")]
    found = [sample for family in text_string_to_metric_families("\n".join(own)) for sample in family.samples]
    return {(one.name, one.labels.get("launcher", "")): one.value for one in found}


def test_the_log_of_an_old_job_is_found_by_the_labels_of_its_guide(cluster: Any) -> None:
    name = cluster.job("v1alpha2-spare-gpus.yaml")

    selector = f"group_name=kubeflow.org,mpi_job_name={name},mpi_role_type=launcher"
    log = cluster.kubectl("logs", "-l", selector, "--tail=-1")

    assert log.count("rank ") == 2
