"""What the parts of a cluster may do under Kubernetes' control plane: the rules that deploy/ publishes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.cluster import control_plane
from gangline.cluster.control_plane.identities import CLIENTS, CONTROLLER_MANAGER

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
ROLES = list(yaml.safe_load_all((resources.files(control_plane) / "roles.yaml").read_text()))


def cluster_role(objects: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    (found,) = [one for one in objects if one["kind"] == "ClusterRole" and one["metadata"]["name"] == name]
    rules: list[dict[str, Any]] = found["rules"]
    return rules


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_operator_and_scheduler_may_what_they_may_on_any_cluster(part: str) -> None:
    published = list(yaml.safe_load_all((DEPLOY / f"{part}.yaml").read_text()))

    assert cluster_role(ROLES, f"gangline-{part}") == cluster_role(published, f"gangline-{part}")


def test_each_part_has_rights_of_its_own() -> None:
    bound = {one["subjects"][0]["name"] for one in ROLES if one["kind"] == "ClusterRoleBinding"}

    assert bound | {CONTROLLER_MANAGER} == set(CLIENTS)  # whose rights every cluster has
