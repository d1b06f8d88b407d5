"""Streams into pods over the API: ``exec``, ``attach``, ``portforward``; HTTP to their ports is ``proxy``."""

from gangline.cluster.server.streams.commands import attach, exec_command
from gangline.cluster.server.streams.port_forward import forward_ports
from gangline.cluster.server.streams.proxy import proxy

__all__ = ["STREAMS", "proxy"]

STREAMS = {"attach": attach, "exec": exec_command, "portforward": forward_ports}
"""Handlers by subresource. A WebSocket is a GET; the right to ask for one is that to create."""
