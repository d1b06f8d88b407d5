"""How pods ended: a record of each on disk, told to the API until it has acknowledged it.

The record is there before anything of the pod is removed, and stays for as long as its pod is in the API
and a while longer. So whatever is killed in between, this agent or the next one tells the same end; and a pod
that has a record is never started again, also when the API shows it as running because an older state of it
was restored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import Pod
from gangline.api.resources import PODS
from gangline.cluster.node.shim.durable import write_durably
from gangline.kube.errors import Conflict, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

SUFFIX = ".json"


class PodEnd(msgspec.Struct, frozen=True):
    """How one pod ended; ``status`` is what the API is told, ``ended_at`` in seconds since 1970."""

    uid: str
    namespace: str
    name: str
    ended_at: float
    status: dict[str, Any]


class PodEnds:
    """See the module's text.

    Args:
        folder: where the records lie, one file for each pod; made when it is not there.
        client: of the API.
        log: is told when the disk refuses a record.
    """

    def __init__(self, folder: Path, client: ObjectClient, log: Any) -> None:
        self._folder = folder
        self._client = client
        self._log = log
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._uids = {path.stem for path in folder.glob(f"*{SUFFIX}") if self.find(path.stem)}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def keep(self, end: PodEnd) -> bool:
        """Write an end down for good; False when the disk refuses. The first record of a pod stays."""
        if end.uid in self._uids:
            return True
        try:
            write_durably(self._path(end.uid), msgspec.json.encode(end))
        except OSError as error:
            self._log.warning(
                "end of a pod not recorded", pod=f"{end.namespace}/{end.name}", error=str(error)
            )
            return False
        self._uids.add(end.uid)
        return True

    def find(self, uid: str) -> PodEnd | None:
        """Return the record of a pod, None when it has none that can be read."""
        try:
            return msgspec.json.decode(self._path(uid).read_bytes(), type=PodEnd)
        except (OSError, msgspec.MsgspecError):
            return None

    def forget(self, uid: str) -> None:
        """Remove a record."""
        self._path(uid).unlink(missing_ok=True)
        self._uids.discard(uid)

    async def tell(self, pod: Pod) -> None:
        """Tell the API what it does not know of a pod that is over: its end, then that its deletion is done.

        Nothing is left to be told when it returns; a pod that is gone has been told.

        Raises:
            ApiError: the server refuses or cannot be reached; to be tried again.
        """
        meta = pod.metadata
        if not pod.is_finished and (end := self.find(meta.uid)) is not None:
            await write_status(self._client, pod, end.status)
        if meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds != 0:
            await self.confirm_deletion(pod)

    async def confirm_deletion(self, pod: Pod) -> None:
        """Have the API remove the object of a pod of which nothing is left here.

        Raises:
            ApiError: as for ``tell``.
        """
        meta = pod.metadata
        try:
            await self._client.delete(PODS, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid)
        except NotFound:
            return
        except Conflict:
            if await _is_there(self._client, pod):
                raise

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{SUFFIX}"


async def write_status(client: ObjectClient, pod: Pod, status: dict[str, Any]) -> bool:
    """Write a pod's status; False when the pod is gone, or another one has its name.

    Raises:
        ApiError: the server refuses or cannot be reached; whether it wrote is then unknown.
    """
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid}, "status": status}
    try:
        await client.patch(PODS, meta.name, patch, meta.namespace, kind="strategic", subresource="status")
    except NotFound:
        return False
    except Conflict:
        if await _is_there(client, pod):
            raise
        return False
    return True


async def _is_there(client: ObjectClient, pod: Pod) -> bool:
    try:
        live = await client.get(PODS, pod.metadata.name, pod.metadata.namespace)
    except NotFound:
        return False
    return bool(live["metadata"]["uid"] == pod.metadata.uid)
