"""Curves of runs in the forms that others read: CSV, JSON, and TensorBoard's event files. Pure.

Sources: TensorFlow's ``event.proto`` and ``summary.proto`` (Event: wall_time 1, step 2, file_version 3,
summary 5; Summary: value 1; Value: tag 1, simple_value 2), and the framing of its record files.
"""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from collections.abc import Iterator, Mapping

from gangline.bench.records import frame
from gangline.cluster.runs.curves import Curves

FILE_VERSION = b"brain.Event:2"
_DOUBLE, _BYTES, _FLOAT = 1, 2, 5


def as_csv(runs: Mapping[str, Curves]) -> str:
    """Return rows of run, name, step, time (seconds since 1970) and value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "name", "step", "time", "value"])
    for run, curves in runs.items():
        for name, curve in sorted(curves.items()):
            writer.writerows([run, name, point.step, f"{point.at_s:.3f}", point.value] for point in curve)
    return text.getvalue()


def as_json(runs: Mapping[str, Curves]) -> str:
    """Return columns: run -> name -> ``steps``, ``times``, ``values``; what is no number is null."""
    found = {
        run: {
            name: {
                "steps": [point.step for point in curve],
                "times": [round(point.at_s, 3) for point in curve],
                "values": [point.value if math.isfinite(point.value) else None for point in curve],
            }
            for name, curve in sorted(curves.items())
        }
        for run, curves in runs.items()
    }
    return json.dumps(found, indent=2) + "\n"


def event_file(curves: Curves) -> bytes:
    """Return a file as TensorBoard's writers make them, its events in the order of time."""
    points = [(point, name) for name, curve in curves.items() for point in curve]
    points.sort(key=lambda entry: (entry[0].at_s, entry[0].step))
    begun = points[0][0].at_s if points else 0.0
    return frame(_event(begun, b"".join(_bytes(3, FILE_VERSION)))) + b"".join(
        frame(_event(point.at_s, _scalar(point.step, name, point.value))) for point, name in points
    )


def _event(at_s: float, rest: bytes) -> bytes:
    return bytes([1 << 3 | _DOUBLE]) + struct.pack("<d", at_s) + rest


def _scalar(step: int, name: str, value: float) -> bytes:
    inner = (
        b"".join(_bytes(1, name.encode())) + bytes([2 << 3 | _FLOAT]) + struct.pack("<f", _as_float(value))
    )
    return bytes([2 << 3]) + _varint(step) + b"".join(_bytes(5, b"".join(_bytes(1, inner))))


def _as_float(value: float) -> float:
    """Return a value that single precision holds; what is too large becomes infinite, as there."""
    largest = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
    return math.copysign(math.inf, value) if abs(value) > largest else value


def _bytes(field: int, content: bytes) -> Iterator[bytes]:
    yield bytes([field << 3 | _BYTES])
    yield _varint(len(content))
    yield content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # a negative step as protobuf writes it
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*text, number])
