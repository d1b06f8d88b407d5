"""An installation on Kubernetes' own API server: by command, by kubectl, and away again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.clients

DEPLOY = Path(__file__).parents[3] / "deploy"
OPERATOR = ("-n", "gangline-system", "deployment/gangline-operator")
JOB = ("run", "--name", "pi", "-n", "2", "--", "echo", "said")


class OnKubernetes:
    """Commands against kube-apiserver as against any cluster: by a kubeconfig."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.kubeconfig = cluster.gangline("kubeconfig", "--path").stdout.strip()
        self.kubectl = cluster.kubectl
        self.gangline = cluster.gangline

    def there(self, command: str, *words: str, kubeconfig: str = "") -> Any:
        return self._cluster.gangline(command, "--kubeconfig", kubeconfig or self.kubeconfig, *words)

    def done(self, command: str, *words: str) -> list[str]:
        """Run it, which must not fail; the lines that it prints."""
        done = self.there(command, *words)
        assert done.returncode == 0, done.stderr
        lines: list[str] = done.stdout.splitlines()
        return lines

    def left(self) -> str:
        """What of an installation is there, as names."""
        kinds = "ns,clusterrole,clusterrolebinding,crd"
        mine = ("-l", "app.kubernetes.io/part-of=gangline")
        named: str = self.kubectl("get", kinds, *mine, "-o", "name")
        return named

    def may(self, account: str, *words: str) -> bool:
        asked = self._cluster.try_kubectl("auth", "can-i", *words, f"--as=system:serviceaccount:{account}")
        return bool(asked.stdout.strip() == "yes")


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[OnKubernetes]:
    with start_cluster("--control-plane", "kubernetes", "--no-operator") as started:
        yield OnKubernetes(started)


@pytest.fixture
def empty(cluster: OnKubernetes) -> Iterator[OnKubernetes]:
    yield cluster
    cluster.done("uninstall", "--yes")


def test_an_installation_runs_jobs_changes_nothing_again_and_goes_without_a_trace(
    cluster: OnKubernetes,
) -> None:
    first = cluster.done("install")
    assert "deployment/gangline-operator created" in first
    assert first[-1] == "deployment/gangline-scheduler ready"
    run = cluster.gangline(*JOB)
    assert run.returncode == 0, run.stderr
    assert "forbidden" not in cluster.kubectl("logs", *OPERATOR)

    again = cluster.done("install")
    assert [line for line in again if "created" in line or "configured" in line] == []

    refused = cluster.there("uninstall")
    assert refused.returncode == 2
    assert "1 MPIJobs are deleted, running ones too (1 in default)" in refused.stderr
    cluster.done("uninstall", "--keep-jobs")
    assert cluster.left() == ""
    assert "mpijob.kubeflow.org/pi" in cluster.kubectl("get", "mpijobs", "-o", "name")

    cluster.done("uninstall", "--yes")
    assert "mpijobs.kubeflow.org" not in cluster.kubectl("get", "crd", "-o", "name")
    assert cluster.done("uninstall") == ["nothing of Gangline is installed"]


def test_a_dry_run_has_everything_checked_and_changes_nothing(cluster: OnKubernetes) -> None:
    lines = cluster.done("install", "--dry-run")

    assert "deployment/gangline-operator created (dry run)" in lines
    assert cluster.left() == ""


def test_the_operator_of_one_namespace_sees_no_other(empty: OnKubernetes) -> None:
    empty.done("install", "--operator-only")  # brings the definition, as an administrator has
    empty.done("uninstall", "--keep-jobs")
    empty.kubectl("create", "namespace", "team-a")

    assert empty.done("install", "--namespace", "team-a")[-1] == "deployment/gangline-operator ready"

    account = "team-a:gangline-operator"
    assert empty.may(account, "list", "secrets", "-n", "team-a")
    assert not empty.may(account, "list", "secrets", "-n", "default")
    assert not empty.may(account, "list", "pods", "--all-namespaces")
    run = empty.gangline("run", "--namespace", "team-a", *JOB[1:])
    assert run.returncode == 0, run.stderr
    log = empty.kubectl("logs", "-n", "team-a", "deployment/gangline-operator")
    assert "forbidden" not in log.lower()
    empty.done("uninstall", "--namespace", "team-a")
    assert empty.kubectl("get", "mpijobs", "-n", "team-a", "-o", "name") == "mpijob.kubeflow.org/pi\n"


def test_a_namespace_that_is_not_there_is_not_made(cluster: OnKubernetes) -> None:
    refused = cluster.there("install", "--namespace", "nobodys")

    assert refused.returncode == 2
    assert "the cluster has no namespace `nobodys`" in refused.stderr


def test_missing_rights_are_named_before_anything_is_made(cluster: OnKubernetes, tmp_path: Path) -> None:
    cluster.kubectl("create", "serviceaccount", "somebody")
    token = cluster.kubectl("create", "token", "somebody").strip()
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))

    refused = cluster.there("install", kubeconfig=str(file))

    assert refused.returncode == 3
    assert "create clusterroles.rbac.authorization.k8s.io" in refused.stderr
    assert "create deployments.apps in namespace gangline-system" in refused.stderr
    assert cluster.left() == ""


def test_an_image_that_is_nowhere_ends_the_wait_with_what_to_do(empty: OnKubernetes) -> None:
    failed = empty.there("install", "--operator-only", "--image-prefix", "registry.invalid/ml")

    assert failed.returncode == 3
    assert "deployment/gangline-operator cannot start" in failed.stderr
    assert "gangline image push" in failed.stderr


def test_the_files_make_what_the_command_makes(empty: OnKubernetes) -> None:
    empty.kubectl("create", "namespace", "mpi-operator")  # where upstream's operator is
    empty.kubectl("apply", "--server-side", "-k", str(DEPLOY))
    empty.kubectl("rollout", "status", *OPERATOR, "--timeout=60s")

    again = empty.done("install")
    assert [line for line in again if "created" in line or "configured" in line] == []

    empty.kubectl("delete", "-f", str(DEPLOY / "install.yaml"), "--timeout=90s")
    names = [one["metadata"]["name"] for one in json.loads(empty.kubectl("get", "ns", "-o", "json"))["items"]]
    assert "mpi-operator" in names
    assert "gangline-system" not in names
