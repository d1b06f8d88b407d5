"""A connection to a shim, and what runs on it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

from gangline.cluster.node.shim.attached import Attached
from gangline.cluster.node.shim.containers import Running


@dataclass
class ControlChannel:
    """One connection; ``control`` tells the agent's from a remote shell's.

    ``is_agents`` says whether it is told of changes: not one that something was run on.
    """

    socket: socket.socket
    control: bool
    is_agents: bool
    buffer: bytes = b""
    descriptors: list[int] = field(default_factory=list)
    runs: set[int] = field(default_factory=set)
    attached: tuple[Running, Attached] | None = None
    has_input: bool = False


@dataclass
class ExecProcess:
    """A further process inside a container."""

    channel: ControlChannel
    request_id: Any
    container: str
