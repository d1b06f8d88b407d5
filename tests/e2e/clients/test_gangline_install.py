"""An installation on Kubernetes' own API server: by command, by kubectl, and away again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline import __version__
from gangline.installation.objects import Installation, definitions, objects

pytestmark = pytest.mark.clients

DEPLOY = Path(__file__).parents[3] / "deploy"
GANGS = DEPLOY / "chart/crds/podgroups.scheduling.x-k8s.io.yaml"
OPERATOR = ("-n", "gangline-system", "deployment/gangline-operator")
MPIJOB = "mpijobs.v2beta1.kubeflow.org"  # kubectl keeps for minutes which versions there were
JOB = ("run", "--name", "pi", "-n", "2", "--", "echo", "said")


class OnKubernetes:
    """Commands against kube-apiserver as against any cluster: by a kubeconfig."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.kubeconfig = cluster.gangline("kubeconfig", "--path").stdout.strip()
        self.kubectl = cluster.kubectl
        self.gangline = cluster.gangline
        self.get = cluster.get

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

    def start_job(self) -> set[str]:
        """Start one that runs long; the identities of its pods."""
        self.kubectl("create", "-f", "-", stdin=RUNNING)
        self.kubectl("wait", f"{MPIJOB}/long", "--for=condition=Running", "--timeout=60s")
        return self.pods()

    def pods(self) -> set[str]:
        mine = ("-l", "training.kubeflow.org/job-name=long")
        found = json.loads(self.kubectl("get", "pods", *mine, "-o", "json"))["items"]
        # Those of the test before may still be ending.
        living = [pod["metadata"] for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {meta["uid"] for meta in living}

    def state(self) -> str:
        """The last condition of the job, with its message."""
        shown: str = self.kubectl("get", MPIJOB, "long", "-o", "jsonpath={.status.conditions[-1:]}")
        return shown

    def may(self, account: str, *words: str) -> bool:
        asked = self._cluster.try_kubectl("auth", "can-i", *words, f"--as=system:serviceaccount:{account}")
        return bool(asked.stdout.strip() == "yes")


RUNNING = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: long}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - {name: main, image: gangline/base, command: [mpirun, sh, -c, 'echo rank; sleep 600']}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: main, image: gangline/base}]}}
"""


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


def test_an_upgrade_keeps_the_registry_and_the_jobs_and_takes_away_what_is_no_longer(
    empty: OnKubernetes,
) -> None:
    """Installed as a version before would have been, with a role that this one does not have."""
    before = Installation(has_scheduler=False, image_prefix="localhost:5000")
    found = [*definitions(before), *objects(before)]
    role = next(obj for obj in found if obj["kind"] == "ClusterRole")
    found.append({**role, "metadata": {**role["metadata"], "name": "gangline-of-before"}})
    applied = ("apply", "--server-side", "--field-manager=gangline-install", "-f", "-")
    text = yaml.safe_dump_all(found).replace(f"gangline:{__version__}", "gangline:0.0.9")
    empty.kubectl(*applied, stdin=text)
    empty.kubectl("rollout", "status", *OPERATOR, "--timeout=60s")
    pods = empty.start_job()

    lines = empty.done("upgrade")

    assert "deployment/gangline-operator configured" in lines
    assert "clusterrole/gangline-of-before deleted" in lines
    assert not [line for line in lines if "scheduler" in line]
    image = empty.kubectl("get", *OPERATOR, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    assert image == f"localhost:5000/gangline:{__version__}"
    assert empty.pods() == pods
    assert '"type":"Running"' in empty.state()
    assert [line for line in empty.done("upgrade") if "configured" in line or "deleted" in line] == []


def test_there_is_nothing_to_upgrade_where_nothing_is(cluster: OnKubernetes) -> None:
    refused = cluster.there("upgrade")

    assert refused.returncode == 2
    assert "there is nothing to upgrade" in refused.stderr


def test_what_it_replaces_is_put_back_and_a_running_job_notices_nothing(
    cluster: OnKubernetes, programs: Path
) -> None:
    """The MPI operator's files; its image is served by our own operator, which makes gangs there."""
    cluster.kubectl("apply", "--server-side", "-f", str(GANGS))
    upstream = str(programs / "mpi-operator-files/deploy/v2beta1/mpi-operator.yaml")
    theirs = ("-n", "mpi-operator", "deployment/mpi-operator")
    versions = ("get", "crd", "mpijobs.kubeflow.org", "-o", "jsonpath={.spec.versions[*].name}")
    cluster.kubectl("apply", "--server-side", "-f", upstream)
    cluster.kubectl("rollout", "status", *theirs, "--timeout=60s")
    definition = cluster.get("crd", "mpijobs.kubeflow.org")["spec"]
    pods = cluster.start_job()

    refused = cluster.there("install")
    assert refused.returncode == 3
    assert "deployment/mpi-operator in mpi-operator (mpioperator/mpi-operator" in refused.stderr
    assert cluster.left() == ""

    lines = cluster.done("install", "--replace")
    assert [line for line in lines if line.startswith("deployment/mpi-operator") and "stopped" in line]
    assert cluster.kubectl("get", *theirs, "-o", "jsonpath={.spec.replicas}") == "0"
    assert "v1alpha1" in cluster.kubectl(*versions)
    cluster.done("install", "--replace")  # again: what was noted stays noted
    run = cluster.gangline(*JOB)
    assert run.returncode == 0, run.stderr
    assert cluster.pods() == pods
    assert '"type":"Running"' in cluster.state()

    cluster.done("uninstall")  # asks nothing: no job goes
    assert cluster.get("crd", "mpijobs.kubeflow.org")["spec"] == definition
    cluster.kubectl("rollout", "status", *theirs, "--timeout=60s")
    assert cluster.kubectl("get", *theirs, "-o", "jsonpath={.spec.replicas}") == "1"
    assert cluster.pods() == pods
    assert '"type":"Running"' in cluster.state()
    cluster.kubectl("delete", MPIJOB, "--all")
    cluster.kubectl("delete", "-f", upstream, "--timeout=90s")


def test_a_definition_without_our_version_is_put_back_and_all_jobs_stay(
    cluster: OnKubernetes, programs: Path
) -> None:
    """The training operator's; what is stored in a version that it lacks is stored in its own first."""
    file = programs / "training-operator-files/manifests/base/crds/kubeflow.org_mpijobs.yaml"
    cluster.kubectl("apply", "--server-side", "-f", str(file))
    for is_there in ("jsonpath={.status.acceptedNames.kind}=MPIJob", "condition=Established"):
        cluster.kubectl("wait", "crd/mpijobs.kubeflow.org", f"--for={is_there}", "--timeout=60s")
    definition = cluster.get("crd", "mpijobs.kubeflow.org")["spec"]
    new = yaml.safe_load(RUNNING)
    new["spec"]["runPolicy"] = {"suspend": True}
    old = {**new, "apiVersion": "kubeflow.org/v1", "metadata": {"name": "old"}}
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(old))

    cluster.done("install", "--replace")
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(new))
    cluster.kubectl("wait", f"{MPIJOB}/long", "--for=condition=Suspended", "--timeout=60s")
    lines = cluster.done("uninstall")

    assert "customresourcedefinition/mpijobs.kubeflow.org put back" in lines
    live = cluster.get("crd", "mpijobs.kubeflow.org")
    assert (live["spec"], live["status"]["storedVersions"]) == (definition, ["v1"])
    jobs = cluster.get("mpijobs.v1.kubeflow.org")["items"]
    assert [job["metadata"]["name"] for job in jobs] == ["long", "old"]
    assert [job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] for job in jobs] == [2, 2]
    cluster.kubectl("delete", "-f", str(file))
