"""deploy/operator.yaml fits the command that it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gangline.cli.serve.operator import command
from gangline.operator.service import LEASE_NAME

MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "operator.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text()))


def one(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in OBJECTS if item["kind"] == kind)
    return found


def test_the_command_takes_its_arguments_and_serves_what_is_probed() -> None:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    options = command.make_context("operator", list(container["args"])).params
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert container["command"] == ["gangline", "operator"]
    assert ports == {name: options[f"{name}_port"] for name in ("health", "metrics", "status")}
    assert options["listen"] == "0.0.0.0"
    assert container["startupProbe"]["httpGet"] == container["livenessProbe"]["httpGet"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_pods_reach_the_operators_by_the_name_of_their_certificate() -> None:
    service = one("Service")
    meta, (port,) = service["metadata"], service["spec"]["ports"]
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    options = command.make_context("operator", list(container["args"])).params

    assert options["status_host"] == f"{meta['name']}.$(POD_NAMESPACE).svc"
    assert (port["port"], port["targetPort"]) == (options["status_port"], "status")
    assert service["spec"]["selector"] == one("Deployment")["spec"]["selector"]["matchLabels"]
    assert container["volumeMounts"] == [{"name": "files", "mountPath": "/tmp"}]


def test_two_pods_share_one_lease_that_they_may_write() -> None:
    deployment, role = one("Deployment"), one("Role")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = command.make_context("operator", list(container["args"])).params
    own = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"]}

    assert deployment["spec"]["replicas"] == 2
    assert options["leader_elect"]
    assert (options["lock_namespace"], own) == ("$(POD_NAMESPACE)", {"POD_NAMESPACE": "metadata.namespace"})
    assert {obj["metadata"]["namespace"] for obj in (deployment, role)} == {
        one("Namespace")["metadata"]["name"]
    }
    assert LEASE_NAME  # the role names no Lease: creating one cannot be limited to a name
    assert role["rules"][0]["resources"] == ["leases"]


def test_everything_belongs_to_the_account_of_the_pods() -> None:
    account = one("ServiceAccount")["metadata"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}

    assert one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
    assert one("RoleBinding")["subjects"] == one("ClusterRoleBinding")["subjects"] == [subject]
