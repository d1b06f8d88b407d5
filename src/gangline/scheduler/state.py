"""What the scheduler knows: nodes, pods that hold room, pods that wait. No input or output.

Bindings that are decided and not yet seen in the cache are *assumed*: they hold their room from the
decision on, so that nothing is promised twice.
"""

from __future__ import annotations

import msgspec

from gangline.api.core import Node, Pod, find_condition
from gangline.placement.decisions import Binding
from gangline.placement.snapshot import NodeView, PodView, Snapshot


class SchedulerState:
    """Views of the cluster, changed one object at a time.

    Every ``take`` returns whether the change may let a waiting pod in, so that a pass is due.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._nodes: dict[str, NodeView] = {}
        self._holders: dict[str, PodView] = {}
        self._assumed: dict[str, PodView] = {}
        self._pending: dict[str, PodView] = {}
        self._paused: set[str] = set()
        self._said: dict[str, str] = {}

    def take_node(self, old: Node | None, new: Node | None) -> bool:
        """Take a node as it is now; heartbeats change nothing."""
        if new is None:
            if old is not None:
                self._nodes.pop(old.metadata.name, None)
            return old is not None and bool(self._pending)
        view = NodeView.from_node(new)
        is_news = self._nodes.get(view.name) != view
        self._nodes[view.name] = view
        return is_news and bool(self._pending)

    def take_pod(self, old: Pod | None, new: Pod | None) -> bool:
        """Take a pod as it is now."""
        pod = new or old
        if pod is None:
            return False
        uid = pod.metadata.uid
        if new is None or new.is_finished:
            held = self._holders.pop(uid, None) or self._assumed.pop(uid, None)
            self._assumed.pop(uid, None)
            self._drop_pending(uid)
            return held is not None and bool(self._pending)
        if new.spec.node_name:
            known = self._holders.get(uid)
            if known is None or known.node_name != new.spec.node_name:
                self._holders[uid] = PodView.from_pod(new)
            self._assumed.pop(uid, None)
            self._drop_pending(uid)
            return False
        if new.spec.scheduler_name not in self._names or new.metadata.deletion_timestamp:
            self._drop_pending(uid)
            return False
        if uid in self._assumed:
            return False
        return self._take_waiting(old, new)

    def _take_waiting(self, old: Pod | None, new: Pod) -> bool:
        uid = new.metadata.uid
        condition = find_condition(new.status.conditions, "PodScheduled")
        if condition is not None and uid not in self._said:
            self._said[uid] = condition.message
        if (
            uid in self._pending
            and old is not None
            and (old.spec, old.metadata.labels)
            == (
                new.spec,
                new.metadata.labels,
            )
        ):
            return False
        self._pending[uid] = PodView.from_pod(new)
        return not self._pending[uid].gated

    def _drop_pending(self, uid: str) -> None:
        self._pending.pop(uid, None)
        self._said.pop(uid, None)
        self._paused.discard(uid)

    def snapshot(self) -> Snapshot:
        """Return the nodes, and the pods that hold room on them."""
        return Snapshot(
            nodes=tuple(self._nodes.values()), pods=(*self._holders.values(), *self._assumed.values())
        )

    def waiting(self) -> list[PodView]:
        """Return the pods to place."""
        if not self._paused:
            return list(self._pending.values())
        return [pod for uid, pod in self._pending.items() if uid not in self._paused]

    def assume(self, binding: Binding) -> None:
        """Hold room for a decision that is being carried out."""
        view = self._pending.pop(binding.uid)
        self._assumed[binding.uid] = msgspec.structs.replace(view, node_name=binding.node)

    def revoke(self, binding: Binding) -> None:
        """Give the room of a failed binding back; the pod waits until :meth:`resume`."""
        view = self._assumed.pop(binding.uid, None)
        if view is not None:
            self._pending[binding.uid] = msgspec.structs.replace(view, node_name="")
            self._paused.add(binding.uid)

    def resume(self, uid: str) -> bool:
        """Let a pod whose binding failed be placed again."""
        self._paused.discard(uid)
        return uid in self._pending

    def is_said(self, uid: str, message: str) -> bool:
        """Return whether the pod carries this message already, and note it otherwise."""
        if self._said.get(uid) == message:
            return True
        self._said[uid] = message
        return False

    def unsay(self, uid: str) -> None:
        """Forget the message, because it could not be written."""
        self._said.pop(uid, None)
