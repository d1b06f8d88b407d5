"""How many GPUs were held over the last hours: a ring of samples in one file, which the server writes.

A sample is 16 bytes at the place that its time has in the ring, so that nothing is moved, an old file goes on
after a restart, and a kill tears at most the newest one.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

SAMPLE_S: Final = 10
SAMPLES_MAX: Final = 2_160
"""Six hours; 34 kB."""
_SLOT: Final = struct.Struct("<qii")


class Sample(NamedTuple):
    """How many GPUs pods held at a Unix time, and how many there were."""

    at_s: int
    held: int
    total: int


def write_sample(path: Path, sample: Sample) -> None:
    """Put a sample into a ring, in place of the one of six hours before.

    Raises:
        OSError: the disk does not take it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, _SLOT.pack(*sample), sample.at_s // SAMPLE_S % SAMPLES_MAX * _SLOT.size)
    finally:
        os.close(descriptor)


def read_samples(path: Path, now_s: float) -> list[Sample]:
    """Return the samples of the last six hours, the oldest first; none where there is no file. 1 ms."""
    try:
        content = path.read_bytes()
    except OSError:
        return []
    whole = content[: len(content) // _SLOT.size * _SLOT.size]
    found = (Sample(*slot) for slot in _SLOT.iter_unpack(whole))
    return sorted(one for one in found if now_s - SAMPLES_MAX * SAMPLE_S < one.at_s <= now_s)
