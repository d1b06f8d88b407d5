"""What tests of several folders share: a real Kubernetes control plane, for those that ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane import ControlPlane, NotBuilt


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave real clusters alone unless they are asked for: ``KUBECONFIG`` may name anybody's."""
    if "kubernetes" in config.option.markexpr:
        return
    skip = pytest.mark.skip(reason="uses a real Kubernetes; `make test-kubernetes` runs it")
    for item in items:
        if item.get_closest_marker("kubernetes"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Path]:
    """Return the kubeconfig of a real cluster: the one of ``KUBECONFIG``, else one started for this session."""
    if given := os.environ.get("KUBECONFIG"):
        yield Path(given.split(os.pathsep)[0])
        return
    try:
        plane = ControlPlane()
        plane.start()
    except NotBuilt as error:
        pytest.fail(str(error))
    try:
        yield plane.kubeconfig
    finally:
        plane.stop()
