"""What torch's flight recorder knows of this rank's collectives: which are under way, and since when.

The recorder is torch's own and always on: it keeps the last 2,000 collectives of gloo (torch 2.9 and newer)
and nccl. So a rank is seen to wait also where it waits in C++, as under ``backward()`` of a
DistributedDataParallel that nobody has put a hook into. Its dump is read, pure; what is under way between two
ranks alone (send, receive) counts for nothing, for receives are often posted long before.

Source: torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Flight:
    """Where this rank is in the sequence of its collectives.

    Attributes:
        completed: collectives of all groups that are done.
        begun_ns: when the first of those under way was begun, nanoseconds since 1970; None where none is.
        name: of that one, as ``gloo:all_reduce``; ``""`` where none is.
    """

    completed: int = 0
    begun_ns: int | None = None
    name: str = ""


def flight_of(dump: Mapping[str, Any]) -> Flight:
    """Return what a dump of active collectives says."""
    status = dump.get("pg_status") or {}
    completed = sum(max(0, int(group["last_completed_collective"])) for group in status.values())
    active = [
        entry
        for entry in dump.get("entries") or ()
        if not entry["is_p2p"] and entry["state"] != "completed" and not entry["retired"]
    ]
    if not active:
        return Flight(completed)
    first = min(active, key=lambda entry: int(entry["time_created_ns"]))
    return Flight(completed, int(first["time_created_ns"]), str(first["profiling_name"]))


def open_recorders() -> list[Callable[[], Flight]]:
    """Return a reader for each recorder of this torch, none where it has none. Cost of a look: 50 µs."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError:  # ranks of MPI need no torch
        return []
    if not dist.is_available():
        return []
    import torch._C._distributed_c10d as c10d

    # nccl has kept a record of its own since before there was one for all.
    names = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
    return [_reader(dump) for name in names if (dump := getattr(c10d, name, None)) is not None]


def _reader(dump: Callable[..., Any]) -> Callable[[], Flight]:
    return lambda: flight_of(json.loads(dump(includeCollectives=True, onlyActive=True)))
