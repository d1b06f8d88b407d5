"""What a rank tells the others of itself so that they can watch it."""

from __future__ import annotations

import os
import socket
from typing import Any

from gangline.train.heartbeat import HeartbeatSocket
from gangline.train.rendezvous import own_addresses, process_name
from gangline.train.stacks import StackFile


def own_place(stack_file: StackFile, beats: HeartbeatSocket) -> dict[str, Any]:
    """Return node, process, and where heartbeats and questions for the stack reach it."""
    return {
        "node": socket.gethostname(),
        "addresses": own_addresses(),
        "pid": os.getpid(),
        "process": process_name(os.getpid()),
        "stack_file": stack_file.path,
        "beat_port": beats.port,
        "beat_key": beats.key,
    }
