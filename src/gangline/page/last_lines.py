"""What the pods of a job wrote last, and its ranks where a launcher tags their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.errors import GanglineError
from gangline.page.log_lines import RANKS_MAX
from gangline.page.log_reading import last_lines, read_together

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient
    from gangline.page.feeds import Feeds

Obj = dict[str, Any]

PODS_MAX: Final = 32
"""Pods of a job whose logs are asked for their ends, each by a request."""
KEPT_MAX: Final = 1_024
"""Pods that have ended whose last lines are remembered."""
CHARS_MAX: Final = 300
read_timeout_s: Final = 1.0
_BEGUN: Final = ("Running", "Succeeded", "Failed")
_OVER: Final = ("Succeeded", "Failed")


class LastLine(msgspec.Struct, frozen=True):
    """What a rank wrote last, or a pod of which nobody knows the rank."""

    pod: str
    rank: int | None
    text: str


class LastLines:
    """Reads the ends of logs; of one that is followed already they are known.

    Args:
        client: asks with the user's own rights.
        feeds: the logs that are followed.
    """

    def __init__(self, client: ObjectClient, feeds: Feeds) -> None:
        self._client, self._feeds = client, feeds
        self._over: dict[str, dict[int | None, str]] = {}
        """Of pods that have ended, by uid."""

    async def read(self, pods: Sequence[Obj]) -> list[LastLine]:
        """Return the last lines of a job's pods, in their order, without those that are not read in time."""
        begun = [pod for pod in pods if (pod.get("status") or {}).get("phase") in _BEGUN]
        reading = await read_together(map(self._of, begun[:PODS_MAX]), read_timeout_s)
        found: list[LastLine] = []
        for pod, task in zip(begun, reading, strict=False):
            if not task.cancelled() and task.exception() is None:
                lines = sorted(task.result().items(), key=lambda one: -1 if one[0] is None else one[0])
                name = pod["metadata"]["name"]
                found += [LastLine(name, rank, text[:CHARS_MAX]) for rank, text in lines]
        return found[:RANKS_MAX]

    async def _of(self, pod: Obj) -> dict[int | None, str]:
        uid = pod["metadata"]["uid"]
        if feed := self._feeds.find(uid):
            return dict(feed.lines.last)
        if uid in self._over:
            return self._over[uid]
        try:
            found = await last_lines(self._client, pod)
        except GanglineError:  # not everybody may read logs
            return {}
        if pod["status"]["phase"] in _OVER:
            if len(self._over) >= KEPT_MAX:
                self._over.clear()
            self._over[uid] = found
        return found
