"""State that outlives a lost rank: committed in memory, restored, and given to ranks that are new."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, InvalidRequestError
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager

notification_manager = WorkerNotificationManager()


class State:
    """What is saved and restored; `ObjectState` and `TorchState` say how.

    Args:
        bcast_object: returns rank 0's object on all ranks.
        get_rank: returns this rank.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], Any]]) -> None:
        """Call these when the ranks have changed, to scale the learning rate for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Note that the ranks have changed."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that hosts can be added or are gone; any thread may call it."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save, then see whether the hosts have changed.

        Raises:
            HostsUpdatedInterrupt: they have; on all ranks at once.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """See whether the hosts have changed.

        Raises:
            HostsUpdatedInterrupt: they have; on all ranks at once, as rank 0 saw it.
        """
        notification_manager.look()
        before = latest = self._last_updated_timestamp
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                update |= result
        before, self._last_updated_timestamp, update = self._bcast_object((before, latest, update))
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def save(self) -> None:
        """Keep the state as it is, in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was kept last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take rank 0's state."""
        raise NotImplementedError

    def reset(self) -> None:
        """Do what a change of the ranks needs, before states are taken over."""


class ObjectState(State):
    """State of plain Python objects, each an attribute."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        self._bcast_object = bcast_object
        self._saved_state = kwargs
        self._set_attrs()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)

    def save(self) -> None:
        """Keep the attributes as they are."""
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Go back to what was kept last."""
        self._set_attrs()

    def sync(self) -> None:
        """Take rank 0's attributes."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function that begins anew, with a state that goes on, when the ranks change.

    Args:
        func: takes the state first.
        reset: leaves the job and begins it with the ranks that are there.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = has_begun = False
        try:
            while True:
                try:
                    if has_begun:
                        reset()
                        state.on_reset()
                    has_begun = True
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except InvalidRequestError:
                    raise
                except HorovodInternalError:
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
        finally:
            notification_manager.remove_listener(state)

    return wrapper
