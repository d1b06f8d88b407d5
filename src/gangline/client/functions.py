"""A function that ranks call: how it travels to them, and how what it returned or raised comes back. Pure.

It travels as one file, see ``launch.pods.call_function``, and comes back as records of kind ``result`` in the
log of the job: the way is the same on one machine and any cluster, and a later process still finds it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from gangline.errors import JobFailedError, UserError
from gangline.launch.pods.call_function import RAISED, RETURNED

T = TypeVar("T")

RESULT_KIND = "result"
RESULTS_BYTES_MAX = 6 * 1024 * 1024
"""Pickled, by all ranks of a job: 8 MiB in base64, below the 10 MiB at which kubelets rotate logs."""
FUNCTION_BYTES_MAX = 64 * 1024 * 1024
"""Pickled, with closure and arguments; on a cluster it is part of the code, which is bounded."""


class RankError(Exception):
    """What a rank's function raised.

    Attributes:
        rank: which one.
        kind: name of the exception's class.
        message: its words.
        traceback: as Python prints it, of the rank's process; empty where the rank told nothing.
        exception: the exception itself; None where it could not be pickled.
    """

    def __init__(
        self,
        rank: int,
        kind: str,
        message: str,
        traceback: str = "",
        exception: BaseException | None = None,
    ) -> None:
        super().__init__(f"rank {rank}: {kind}: {message}" if message else f"rank {rank}: {kind}")
        self.rank, self.kind, self.message = rank, kind, message
        self.traceback, self.exception = traceback, exception
        if traceback:
            self.add_note(f"in rank {rank}:\n{traceback.rstrip()}")


class RanksFailedError(JobFailedError):
    """A job of a function failed: some rank raised, or was ended.

    Attributes:
        errors: by rank, what those raised that raised.
        results: by rank, what those returned that returned.
    """

    code = "ranks-failed"

    def __init__(
        self,
        message: str,
        *,
        errors: Mapping[int, RankError],
        results: Mapping[int, object],
        exit_code: int = 1,
        hint: str = "",
    ) -> None:
        super().__init__(message, exit_code=exit_code, hint=hint)
        self.errors, self.results = dict(errors), dict(results)


def pack_function(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    ranks: int,
    path: Sequence[str] = (),
) -> bytes:
    """Return a call as the file that ranks read.

    Args:
        function: with its closure, and what it uses of ``__main__``; modules are imported there.
        args: its arguments.
        kwargs: its named arguments.
        ranks: how many call it, and share the bytes that results may have.
        path: folders from which they import what the function imports.

    Raises:
        UserError: something cannot be pickled, or is too large.
    """
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps((function, tuple(args), dict(kwargs)))
    except Exception as error:
        raise UserError(
            f"cannot send function `{name_of(function)}` to ranks: {error}",
            hint="make what cannot be pickled (open files, locks, sessions) inside the function",
        ) from error
    if len(pickled) > FUNCTION_BYTES_MAX:
        raise UserError(
            f"cannot send function `{name_of(function)}` to ranks: with closure and arguments it has "
            f"{len(pickled)} bytes, at most {FUNCTION_BYTES_MAX} are sent",
            hint="write data to a file that the ranks can read, and pass its path",
        )
    header = {
        "python": list(sys.version_info[:2]),
        "path": list(path),
        "ranks": ranks,
        "bytes_max": RESULTS_BYTES_MAX // max(1, ranks),
    }
    return json.dumps(header).encode() + b"\n" + pickled


def name_of(function: Callable[..., object]) -> str:
    """Return what a function is called; a partial or an object with a call has the name of its class."""
    return str(getattr(function, "__name__", type(function).__name__))


class _Parts:
    """What a rank has sent so far of one result."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.outcome = ""
        self.is_damaged = False

    def take(self, record: Mapping[str, object]) -> None:
        if "outcome" not in record:
            part = record.get("part")
            if part == 0:  # of another attempt, after a restart
                self.parts.clear()
                self.outcome = ""
            if isinstance(part, int):
                self.parts[part] = base64.b64decode(str(record.get("data")))
            return
        data = self.data
        count, digest = record.get("parts"), record.get("sha256")
        self.is_damaged = count != len(self.parts) or hashlib.sha256(data).hexdigest() != digest
        self.outcome = str(record["outcome"])

    @property
    def data(self) -> bytes:
        return b"".join(part for _, part in sorted(self.parts.items()))


class Results(Generic[T]):
    """Collects what ranks send, record by record.

    Attributes:
        ranks: how many there are; 0 until one has told.
    """

    def __init__(self) -> None:
        self.ranks = 0
        self._of: dict[int, _Parts] = {}

    def take(self, record: Mapping[str, object]) -> None:
        """Take a record of a log; those of other kinds are passed over."""
        rank = record.get("rank")
        if record.get("kind") == RESULT_KIND and isinstance(rank, int):
            self._of.setdefault(rank, _Parts()).take(record)
            if isinstance(ranks := record.get("ranks"), int):
                self.ranks = ranks

    @property
    def is_complete(self) -> bool:
        """Whether every rank has told how its call ended."""
        return 0 < self.ranks <= sum(bool(parts.outcome) for parts in self._of.values())

    def returned(self) -> dict[int, T]:
        """Return by rank what those returned that returned.

        Raises:
            Exception: of unpickling: a class that is not to be found here, for example.
        """
        return {
            rank: pickle.loads(parts.data)
            for rank, parts in sorted(self._of.items())
            if parts.outcome == RETURNED and not parts.is_damaged
        }

    def raised(self) -> dict[int, RankError]:
        """Return by rank what those raised that raised, or whose result did not arrive whole."""
        return {
            rank: _error_of(rank, parts)
            for rank, parts in sorted(self._of.items())
            if parts.outcome == RAISED or parts.is_damaged
        }


def _error_of(rank: int, parts: _Parts) -> RankError:
    if parts.is_damaged:
        words = "what it sent did not arrive whole: something else wrote into its output, or the log was cut"
        return RankError(rank, "DamagedResult", words)
    kind, message, traceback, itself = pickle.loads(parts.data)
    exception = None
    if itself:
        try:
            exception = pickle.loads(itself)
        except Exception:  # noqa: BLE001 - of a class that is only there
            exception = None
    found = RankError(rank, kind, message, traceback, exception)
    found.__cause__ = exception
    return found
