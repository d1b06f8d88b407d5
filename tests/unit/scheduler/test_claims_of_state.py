"""The scheduler's state with nodes that it knew before their slices."""

from __future__ import annotations

import msgspec
import pytest

from gangline.api.core import Node
from gangline.devices.simulated import simulate
from gangline.scheduler.state import SchedulerState

pytest.importorskip("grpc", reason="needs grpcio")
from gangline.deviceplugin.dra_objects import resource_slice


def test_slices_that_come_after_their_nodes_count() -> None:
    state = SchedulerState(("gangline-scheduler",))
    node = msgspec.convert({"metadata": {"name": "n0", "uid": "u"}}, Node, strict=False)
    state.take_node(None, node)
    state.devices.take([resource_slice(simulate("n0", 4), "n0", "u")], [], [])
    state.take_nodes_devices(None)
    assert [view.by_claim for view in state.table().views] == [True]
