"""What a rank asks for under a name, and what the ranks agree on. Pure.

A rank's `Request` says all that its peers must know before data moves. The coordinator makes one
`Agreement` of
the requests of all ranks, or an error that every one of them gets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
OP_NAMES: Final = ("Average", "Sum", "Adasum", "Min", "Max", "Product")

ALLREDUCE, ALLGATHER, BROADCAST = "allreduce", "allgather", "broadcast"
ALLTOALL, REDUCESCATTER = "alltoall", "reducescatter"
BARRIER, JOIN, LEAVE = "barrier", "join", "leave"
ADD_SET, REMOVE_SET = "add_process_set", "remove_process_set"

Key = tuple[int, str]
"""A process set's number and a name."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one rank wants done under a name.

    Attributes:
        dtypes: of every tensor, as torch writes them without its prefix (``float32``).
        shapes: of every tensor; more than one in a group.
        device: kinds of device, ``cpu`` or ``cuda``; ``cpu+cuda`` for a group on both.
        root: whose value a broadcast sends: a rank of the whole job, inside a process set too.
        splits: rows for each rank in an alltoall, empty for equal ones; ranks of a process set to add.
        keep: remember the agreement: its name comes again.
    """

    name: str
    kind: str
    process_set: int = 0
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    device: str = "cpu"
    op: int = SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = -1
    splits: tuple[int, ...] = ()
    keep: bool = False

    @property
    def key(self) -> Key:
        """What the name is known by."""
        return self.process_set, self.name


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks of a process set do next under a name.

    Attributes:
        request: of the first rank; what all share is true of all.
        number: of the bit that stands for this name from now on, -1 when it is not remembered.
        error: why nothing is done instead, ``""`` when it is.
        rows: first dimension of every tensor on every rank of the set, in the set's order.
        splits: what every rank of the set said.
        answer: last rank to join; number of a process set that was added.
        invalid: the error is a request that is wrong by itself, whatever the others say.
    """

    request: Request
    number: int = -1
    error: str = ""
    rows: tuple[tuple[int, ...], ...] = ()
    splits: tuple[tuple[int, ...], ...] = ()
    answer: int = -1
    invalid: bool = False


def agree(requests: Mapping[int, Request], members: Sequence[int], joined: Iterable[int] = ()) -> Agreement:
    """Return what the ranks of a process set agree on under one name.

    Args:
        requests: by rank, of all members that have not joined.
        members: ranks of the process set.
        joined: ranks that are through with their data, and send zeros.
    """
    ranks = [rank for rank in members if rank in requests]
    first = requests[ranks[0]]
    error = ""
    for rank in ranks[1:]:
        if error := _difference(first, requests[rank], ranks[0], rank):
            break
    joined = [rank for rank in joined if rank in members]
    if not error and joined:
        error = _with_joined(first, joined)
    own_error = next(filter(None, (_own_error(requests[rank], rank, members) for rank in ranks)), "")
    if error or own_error:
        return Agreement(first, error=f"{first.kind} {first.name}: {error or own_error}", invalid=not error)
    rows: tuple[tuple[int, ...], ...] = ()
    splits: tuple[tuple[int, ...], ...] = ()
    if first.kind in (ALLGATHER, ALLTOALL):
        rows = tuple(tuple(shape[0] for shape in requests[rank].shapes) for rank in ranks)
    if first.kind == ALLTOALL:
        splits = tuple(
            requests[rank].splits or (rows[i][0] // len(ranks),) * len(ranks) for i, rank in enumerate(ranks)
        )
    return Agreement(first, rows=rows, splits=splits)


def _difference(one: Request, other: Request, rank: int, other_rank: int) -> str:
    """Return how two ranks contradict each other, ``""`` when they do not."""

    def differ(what: str, a: object, b: object) -> str:
        return f"{what}: rank {rank} has {a}, rank {other_rank} has {b}" if a != b else ""

    found = (
        differ("mismatched operations", one.kind, other.kind)
        or differ("mismatched numbers of tensors", len(one.shapes), len(other.shapes))
        or differ("mismatched data types", ", ".join(one.dtypes), ", ".join(other.dtypes))
        or differ("mismatched devices", one.device, other.device)
        or differ("mismatched ops", OP_NAMES[one.op], OP_NAMES[other.op])
        or differ("mismatched prescale factors", one.prescale, other.prescale)
        or differ("mismatched postscale factors", one.postscale, other.postscale)
        or differ("mismatched root ranks", one.root, other.root)
    )
    if found:
        return found
    if one.kind in (ADD_SET, REMOVE_SET):
        return differ("mismatched process sets", list(one.splits), list(other.splits))
    if one.kind == ALLTOALL:
        found = differ("splits on some ranks only", bool(one.splits), bool(other.splits))
    for a, b in zip(one.shapes, other.shapes, strict=True):
        if one.kind in (ALLGATHER, ALLTOALL):
            found = found or differ("mismatched dimensions", len(a), len(b))
            found = found or differ("mismatched shapes after the first dimension", a[1:], b[1:])
        else:
            found = found or differ("mismatched shapes", a, b)
    return found


def _with_joined(request: Request, joined: Sequence[int]) -> str:
    if request.kind in (ADD_SET, REMOVE_SET):
        return ""
    if request.kind != ALLREDUCE:
        return f"{request.kind} is not supported while ranks have joined ({list(joined)})"
    if request.op not in (AVERAGE, SUM):
        op = OP_NAMES[request.op]
        return f"{op} is not supported while ranks have joined ({list(joined)}): they send zeros"
    return ""


def _own_error(request: Request, rank: int, members: Sequence[int]) -> str:
    """Return what is wrong with a request by itself."""
    count = len(members)
    if request.device not in ("cpu", "cuda"):
        return f"rank {rank} has tensors on several kinds of device ({request.device})"
    if request.kind in (ALLGATHER, ALLTOALL, REDUCESCATTER) and not all(request.shapes):
        return f"rank {rank} has a tensor without dimensions, which has no rows to share"
    if request.kind == BROADCAST and request.root not in members:
        return f"root rank {request.root} is not among ranks {list(members)}"
    if request.kind != ALLTOALL:
        return ""
    rows = request.shapes[0][0]
    if not request.splits:
        return "" if rows % count == 0 else f"rank {rank} has {rows} rows, which {count} ranks do not divide"
    if len(request.splits) != count:
        return f"rank {rank} has {len(request.splits)} splits for {count} ranks"
    if min(request.splits) < 0:
        return f"rank {rank} has a negative split: {list(request.splits)}"
    if sum(request.splits) > rows:
        return f"the splits of rank {rank} are {sum(request.splits)} rows, its tensor has {rows}"
    return ""


# As JSON, for the wire --------------------------------------------------------------------------------------


def dump(items: Sequence[Request] | Sequence[Agreement]) -> bytes:
    """Return requests or agreements as bytes, nothing for none."""
    return json.dumps([astuple(item) for item in items]).encode() if items else b""


def load_requests(data: bytes) -> list[Request]:
    """Return the requests of `dump`."""
    return [Request(*_tuples(item)) for item in json.loads(data)] if data else []


def load_agreements(data: bytes) -> list[Agreement]:
    """Return the agreements of `dump`."""
    items = json.loads(data) if data else []
    return [Agreement(Request(*_tuples(first)), *_tuples(rest)) for first, *rest in items]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
