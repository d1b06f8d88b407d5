"""Streams into pods over the API: ``exec``, ``attach`` and ``portforward``."""

from gangline.cluster.server.streams.commands import attach, exec_command
from gangline.cluster.server.streams.port_forward import forward_ports

STREAMS = {"attach": attach, "exec": exec_command, "portforward": forward_ports}
"""Handlers by subresource. A WebSocket is a GET; the right to ask for one is that to create."""
