"""The records of a cluster's runs on disk, one file each, and the logs that belong to them.

``runs/TIME_NAMESPACE_NAME_UID.json``; a file is written beside its place and moved there, so that it is whole
or absent whoever is killed. The logs stay where the pods wrote them and go with their run.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from gangline import clock
from gangline.cluster.paths import CUT, DEFAULT_CLUSTER, ClusterPaths, name_in_file
from gangline.cluster.runs.bounds import Bounds, RunSize, choose_expired
from gangline.cluster.runs.record import RunRecord, summary_of
from gangline.errors import GanglineError

_SUFFIX = ".json"
_DRAFT = ".new"
DRAFT_AGE_MAX_S = 60.0
"""A draft that is older belongs to a process that was killed."""


class DamagedRunError(GanglineError):
    """A file of the history cannot be read as a run."""

    code = "damaged-run"


class RunFile(msgspec.Struct, frozen=True):
    """A run as the name of its file tells it; ``written_at`` is in seconds since 1970."""

    path: Path
    began: str
    namespace: str
    name: str
    uid: str
    written_at: float


class _PodName(msgspec.Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""


class _PodMeta(msgspec.Struct):
    metadata: _PodName = msgspec.field(default_factory=_PodName)


class _PodsOnly(msgspec.Struct):
    pods: list[_PodMeta] = []


class _JobOnly(msgspec.Struct):
    job: _PodMeta


class History:
    """The runs of one cluster. Every call reads the disk; any number of processes may use it at once."""

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths
        self._cluster = "" if paths.name == DEFAULT_CLUSTER else f" --cluster {paths.name}"
        self.folder = paths.runs

    def files(self) -> list[RunFile]:
        """Return every run, the newest first; only files whose names hold a part of the run's are opened."""
        found = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    words = entry.name.removesuffix(_SUFFIX).split("_")
                    if not entry.name.endswith(_SUFFIX) or len(words) != 4:
                        continue
                    began, namespace, name, uid = words
                    try:
                        there = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # another command removed it
                        continue
                    if stat.S_ISREG(there.st_mode):
                        name = _whole_name(entry.path) or name if name.endswith(CUT) else name
                        found.append(RunFile(Path(entry.path), began, namespace, name, uid, there.st_mtime))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found, key=lambda file: (file.began, file.written_at), reverse=True)

    def read(self, file: RunFile) -> RunRecord:
        """Return the record of a run.

        Raises:
            DamagedRunError: it cannot be read as one.
            FileNotFoundError: another command removed it.
        """
        try:
            record = msgspec.json.decode(file.path.read_bytes(), type=RunRecord)
            for obj in (record.job, *record.pods):
                msgspec.convert(obj, _PodMeta)
            if record.uid != file.uid or record.job["metadata"]["name"] != file.name:
                raise ValueError("another run's name or uid")
            summary_of(record, clock.now())  # what every reader goes by
        except (
            msgspec.MsgspecError,
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            RecursionError,
        ) as error:
            raise DamagedRunError(
                f"cannot read run `{file.name}`: `{file.path}` is damaged ({error})",
                hint=f"`gangline runs{self._cluster} delete {file.uid}` removes it",
            ) from error
        return record

    def write(self, record: RunRecord) -> None:
        """Write a record, over an older one of the same run.

        Raises:
            OSError: the disk refuses.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / file_name(record.job)
        draft = self.folder / f".{record.uid}.{os.getpid()}{_DRAFT}"
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(record))
                if record.is_over:  # one that goes on is written again
                    file.flush()
                    os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def is_there(self, record: RunRecord) -> bool:
        """Return whether the run has a file."""
        return (self.folder / file_name(record.job)).exists()

    def delete(self, file: RunFile, *, with_logs: bool = True) -> None:
        """Remove a run and its logs; one that is gone already is no error."""
        logs = [] if not with_logs else self._logs_of(file)
        file.path.unlink(missing_ok=True)
        for folder in logs:  # what a kill leaves here the node agent removes, as logs of no run
            shutil.rmtree(folder, ignore_errors=True)

    def held_pods(self) -> set[str]:
        """Return the uids of all pods whose logs belong to a run."""
        return {pod.uid for file in self.files() for pod in self._pods_of(file)}

    def sweep(self, bounds: Bounds, *, living: Collection[str], now_s: float) -> int:
        """Remove the runs that exceed the bounds, the oldest first; return how many.

        Args:
            bounds: what is kept.
            living: uids of jobs that are still there; their runs stay.
            now_s: seconds since 1970.
        """
        by_uid = {file.uid: file for file in self.files()}
        over = [file for file in by_uid.values() if file.uid not in living]
        expired = choose_expired(map(self._size_of, over), bounds, living=living, now_s=now_s)
        for uid in expired:
            self.delete(by_uid[uid])
        if self.folder.is_dir():
            for draft in self.folder.glob(f".*{_DRAFT}"):
                if now_s - _mtime(draft) > DRAFT_AGE_MAX_S:
                    draft.unlink(missing_ok=True)
        return len(expired)

    def _size_of(self, file: RunFile) -> RunSize:
        sizes = [_size(path) for folder in self._logs_of(file) for path in folder.rglob("*")]
        return RunSize(file.uid, file.written_at, _size(file.path) + sum(sizes))

    def _logs_of(self, file: RunFile) -> list[Path]:
        return [self._paths.pod_logs(pod.namespace, pod.name, pod.uid) for pod in self._pods_of(file)]

    def _pods_of(self, file: RunFile) -> Iterable[_PodName]:
        try:
            found = msgspec.json.decode(file.path.read_bytes(), type=_PodsOnly).pods
        except (OSError, msgspec.MsgspecError, RecursionError):
            return []
        return [pod.metadata for pod in found if _is_plain(pod.metadata)]


def file_name(job: dict[str, Any]) -> str:
    """Return the name of a run's file: it sorts by the time of the job's creation."""
    metadata = job["metadata"]
    began = str(metadata.get("creationTimestamp") or "").replace("-", "").replace(":", "")
    name = name_in_file(metadata["name"])
    return "_".join([began, metadata.get("namespace", ""), name, metadata["uid"]]) + _SUFFIX


def _whole_name(path: str) -> str:
    """Return a run's name as its record tells it; empty for a damaged one, or one that is gone."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_JobOnly).job.metadata.name
    except (OSError, msgspec.MsgspecError, RecursionError):
        return ""


def _is_plain(pod: _PodName) -> bool:
    """Return whether the words of a record lead to no folder but that of a pod's logs."""
    return bool(pod.uid) and "/" not in pod.uid + pod.name + pod.namespace


def _size(path: Path) -> int:
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
