"""What the parts of a one-machine cluster may do under Kubernetes' control plane, beside an installation."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
import yaml

from gangline.cluster import control_plane
from gangline.cluster.control_plane.identities import CLIENTS, CONTROLLER_MANAGER
from gangline.installation.objects import Installation, objects

ROLES = list(yaml.safe_load_all((resources.files(control_plane) / "roles.yaml").read_text()))


def test_no_role_or_binding_has_the_name_of_an_installations() -> None:
    """An installation beside them comes and goes without taking their rights."""
    installed = {(obj["kind"], obj["metadata"]["name"]) for obj in objects(Installation())}

    assert installed.isdisjoint((one["kind"], one["metadata"]["name"]) for one in ROLES)


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_operator_and_scheduler_are_bound_to_roles_of_their_own(part: str) -> None:
    (bound,) = [one["roleRef"]["name"] for one in ROLES if _is_of(one, f"gangline-{part}")]

    assert bound == f"gangline:{part}"


def _is_of(obj: dict[str, Any], account: str) -> bool:
    return account in [subject["name"] for subject in obj.get("subjects") or []]


def test_each_part_has_rights_of_its_own() -> None:
    bound = {one["subjects"][0]["name"] for one in ROLES if one["kind"] == "ClusterRoleBinding"}

    assert bound | {CONTROLLER_MANAGER} == set(CLIENTS)  # whose rights every cluster has
