"""A user with the role `edit` in one namespace: why a job waits is told with these rights alone."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

GANG = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: big}
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: l, image: gangline/base, command: [mpirun, 'true']}]}}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: w, image: gangline/base, resources: {requests: {cpu: "900"}}}]}}
"""


@pytest.fixture
def tenant(gangline, tmp_path):
    """Run a command as a user who may edit the namespace `team`, and see nothing else."""
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")
    gangline("up")
    admin = gangline("kubeconfig", "--path").stdout.strip()

    def kubectl(*words: str, text: str = "") -> str:
        line = ["kubectl", "--kubeconfig", admin, *words]
        return subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout

    if "namespace/team\n" not in kubectl("get", "namespaces", "-o", "name"):
        kubectl("create", "namespace", "team")
        kubectl("-n", "team", "create", "serviceaccount", "dev")
        kubectl(
            "-n", "team", "create", "rolebinding", "dev", "--clusterrole=edit", "--serviceaccount=team:dev"
        )
    config = yaml.safe_load(Path(admin).read_text())
    config["users"][0]["user"] = {"token": kubectl("-n", "team", "create", "token", "dev").strip()}
    config["contexts"][0]["context"]["namespace"] = "team"
    own = tmp_path / "kubeconfig"
    own.write_text(yaml.safe_dump(config))

    def command(*words: str):
        return gangline(*words, "--kubeconfig", str(own))

    def apply(text: str) -> None:
        line = ["kubectl", "--kubeconfig", str(own), "apply", "-f", "-"]
        subprocess.run(line, input=text, text=True, check=True, capture_output=True)

    command.apply = apply
    return command


def test_why_a_gang_waits_is_told_with_the_rights_of_a_namespace(tenant, until):
    tenant.apply(GANG)
    until(
        lambda: "needs 900 cpu" in " ".join(tenant("explain", "big").stdout.split()), "words of the scheduler"
    )

    told = tenant("explain", "big")
    assert told.stdout.startswith("mpijob team/big waits: NeverFits\n")
    words = " ".join(told.stdout.split())
    assert "why gang team/big waits: needs 900 cpu on one node; best node node-0" in words
    assert "not seen whatever needs the right to list nodes, or to list pods of all namespaces" in words
    value = json.loads(tenant("explain", "big", "-o", "json").stdout)
    assert (value["reason"], value["lacking"]) == ("NeverFits", ["list nodes", "list pods of all namespaces"])
    for words in (("list",), ("top", "job"), ("get", "big")):
        shown = tenant(*words)
        assert shown.returncode == 0, shown.stderr
        assert "big" in shown.stdout and "PENDING" in shown.stdout


def test_what_needs_more_says_which_right_it_lacks(tenant):
    nodes = tenant("top", "node")
    status = tenant("status")

    assert nodes.returncode != 0
    assert "you have no right to list nodes, or to list pods of all namespaces" in nodes.stderr
    assert status.returncode == 0, status.stderr
    assert "not seen  whatever needs the right to list nodes" in status.stdout
    assert "namespace `team`" in status.stdout
