"""Builders of MPIJob documents."""

from collections.abc import Callable
from typing import Any

import pytest

Document = dict[str, Any]


@pytest.fixture
def document() -> Callable[..., Document]:
    """Return a good job; ``spec`` is laid over its own."""

    def build(name: str = "pi", workers: int | None = 2, **spec: Any) -> Document:
        template = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
        roles: Document = {"Launcher": {"template": template}}
        if workers is not None:
            roles["Worker"] = {"replicas": workers, "template": template}
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"mpiReplicaSpecs": roles, **spec},
        }

    return build
