"""Streams into pods over the API: ``exec``, ``attach`` and ``portforward``."""

from gangline.cluster.server.streams.commands import exec_command

STREAMS = {"exec": exec_command}
"""Handlers by subresource. A WebSocket is a GET; the right to ask for one is that to create."""
