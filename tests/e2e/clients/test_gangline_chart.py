"""Gangline's chart under Helm: the same objects as by command, and a release that comes and goes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import chart
from release import packed_chart

from gangline import __version__
from gangline.installation.objects import Installation, objects

pytestmark = pytest.mark.clients

DIGEST = "sha256:" + "1" * 64
CHART = str(Path(__file__).parents[3] / "deploy" / "chart")
KUBERNETES = "--kube-version=1.35.4"
Helm = Callable[..., str]


@pytest.fixture
def rendered(programs: Path) -> Callable[..., Any]:
    """Return the objects that the chart makes of some values, by kind and name."""

    def render(namespace: str, *words: str) -> Any:
        command = [str(programs / "helm"), "template", "gangline", CHART, "-n", namespace, KUBERNETES, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return by_name(one for one in yaml.safe_load_all(done.stdout) if one)

    return render


def by_name(found: Any) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): without_nothing(one) for one in found}


def without_nothing(value: Any) -> Any:
    """Leave out what is empty, which is the same to a server as what is not there."""
    if isinstance(value, dict):
        return {key: without_nothing(one) for key, one in value.items() if one not in ({}, [], None, "")}
    return [without_nothing(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("installation", "values"),
    [
        (Installation(), []),
        (Installation(has_scheduler=False), ["--set", "scheduler.enabled=false"]),
        (Installation(namespace="team-a", is_namespaced=True), ["--set", "namespaced=true"]),
        (
            Installation(image_prefix="r.example.com/ml", digests={"gangline-scheduler": DIGEST}),
            ["--set", f"image.prefix=r.example.com/ml,scheduler.digest={DIGEST}"],
        ),
    ],
)
def test_the_chart_makes_what_the_command_makes(
    rendered: Callable[..., Any], installation: Installation, values: list[str]
) -> None:
    wanted = by_name(obj for obj in objects(installation) if obj["kind"] != "Namespace")
    found = rendered(installation.namespace, *values)

    assert set(found) == set(wanted)
    for name, obj in wanted.items():
        assert sorted_arguments(found[name]) == sorted_arguments(obj), name


def sorted_arguments(obj: Any) -> Any:
    if obj["kind"] == "Deployment":
        (container,) = obj["spec"]["template"]["spec"]["containers"]
        container["args"].sort()
    return obj


def test_values_reach_the_pods(rendered: Callable[..., Any]) -> None:
    chosen = (
        "--set",
        "operator.replicas=1,operator.nodeSelector.pool=system",
        "--set",
        "operator.args={--workers=4}",
    )
    deployment = rendered("here", *chosen)["Deployment", "gangline-operator"]
    pod = deployment["spec"]["template"]["spec"]

    assert deployment["spec"]["replicas"] == 1
    assert pod["nodeSelector"] == {"pool": "system"}
    assert "--workers=4" in pod["containers"][0]["args"]


def test_the_device_plugin_comes_where_it_is_wanted(rendered: Callable[..., Any]) -> None:
    name = ("DaemonSet", "gangline-device-plugin")

    assert name not in rendered("here")
    found = rendered("here", "--set", "devicePlugin.enabled=true,devicePlugin.runtimeClassName=nvidia")[name]
    assert found["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("operator.replica=3", "replica"),
        ("operator.replicas=0", "operator.replicas"),
        ("scheduler.digest=latest", "scheduler.digest"),
        ("image.pullPolicy=always", "image.pullPolicy"),
    ],
)
def test_a_value_that_is_none_is_refused_by_name(programs: Path, value: str, told: str) -> None:
    command = [str(programs / "helm"), "lint", CHART, "--set", value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert told.replace(".", "/") in done.stdout or told in done.stdout


def test_it_passes_helms_own_check(programs: Path) -> None:
    command = [str(programs / "helm"), "lint", "--strict", CHART]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_helm_reads_the_chart_as_a_release_packs_it(programs: Path, tmp_path: Path) -> None:
    packed = tmp_path / "gangline.tgz"
    packed.write_bytes(packed_chart(chart("registry.example.com/ml", {"gangline": DIGEST})))
    command = [str(programs / "helm"), "template", "gangline", str(packed), KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f'image: "registry.example.com/ml/gangline:{__version__}@{DIGEST}"' in done.stdout


def test_the_namespaced_kustomization_takes_another_namespace(programs: Path, tmp_path: Path) -> None:
    shutil.copytree(Path(CHART).parent / "namespaced", tmp_path / "one")
    file = tmp_path / "one/kustomization.yaml"
    file.write_text(file.read_text().replace("namespace: jobs", "namespace: team-a"))
    built = subprocess.run([programs / "kustomize", "build", file.parent], capture_output=True, check=True)
    found = by_name(yaml.safe_load_all(built.stdout))

    assert found == by_name(objects(Installation(namespace="team-a", is_namespaced=True)))


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster("--control-plane", "kubernetes", "--no-operator") as started:
        yield started


def test_a_release_runs_jobs_and_is_left_to_helm(cluster: Any, programs: Path) -> None:
    def helm(*words: str) -> str:
        done = cluster.run(str(programs / "helm"), "-n", "gangline-system", *words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    helm("install", "gangline", CHART, "--create-namespace", "--wait", "--timeout", "90s")
    run = cluster.gangline("run", "-n", "2", "--", "echo", "said")
    assert run.returncode == 0, run.stderr
    kubeconfig = ("--kubeconfig", cluster.gangline("kubeconfig", "--path").stdout.strip())
    for command in ("install", "uninstall"):
        refused = cluster.gangline(command, *kubeconfig)
        assert refused.returncode == 2
        assert "belongs to the Helm release `gangline`" in refused.stderr

    helm("upgrade", "gangline", CHART, "--set", "operator.replicas=1", "--wait", "--timeout", "90s")
    there = json.loads(cluster.kubectl("get", "deployment", "-n", "gangline-system", "-o", "json"))["items"]
    replicas = {one["metadata"]["name"]: one["status"]["readyReplicas"] for one in there}
    assert replicas == {"gangline-operator": 1, "gangline-scheduler": 2}

    helm("uninstall", "gangline", "--wait", "--timeout", "90s")
    left = cluster.kubectl(
        "get", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/part-of=gangline"
    )
    assert left == ""
    assert "mpijobs.kubeflow.org" in cluster.kubectl("get", "crd", "-o", "name")
