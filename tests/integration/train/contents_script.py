"""What users put into checkpoints beside tensors: each comes back equal and of its own type."""

import argparse
import collections
import dataclasses
import datetime
import enum
import pathlib
import sys
import types

import numpy as np
import torch

import gangline.train


@dataclasses.dataclass
class Config:
    lr: float
    layers: list


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    lr: float


class Stage(enum.Enum):
    WARM = "warm"


class Level(enum.IntEnum):
    HIGH = 2


np.random.seed(1)
counts = collections.defaultdict(int, {"seen": 3})
USUAL = {
    "args": argparse.Namespace(lr=0.1, data=pathlib.Path("/data")),
    "path": pathlib.Path("out/best.pt"),
    "loss": np.float64(0.25),
    "epoch": np.int64(3),
    "is_best": np.bool_(True),
    "history": np.arange(6.0).reshape(2, 3),
    "labels": np.array([1, 2], dtype=np.int16),
    "counts": counts,
    "ordered": collections.OrderedDict(a=1),
    "recent": collections.deque([1, 2], maxlen=4),
    "config": Config(0.1, [1, 2]),
    "frozen": Frozen(0.1),
    "stage": Stage.WARM,
    "level": Level.HIGH,
    "seen": {1, 2},
    "fixed": frozenset([1]),
    "started": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),  # noqa: UP017
    "took": datetime.timedelta(seconds=3),
    "simple": types.SimpleNamespace(a=1),
    "bytes": b"\x00\xff",
    "complex": 1j,
    "big": 10**40,
    "generator": np.random.default_rng(1).bit_generator.state,
    "numpy_random": np.random.get_state(),
    "dtype": torch.bfloat16,
    "device": torch.device("cpu"),
}

with gangline.train.init() as session:
    checkpoints = session.checkpoints(sys.argv[1])
    if sys.argv[2] == "save":
        checkpoints.save(1, USUAL, own=USUAL)
    else:
        found = checkpoints.resume()
        for name, value in USUAL.items():
            for back in (found.state[name], found.own[name]):
                assert type(back) is type(value), (name, back)
                assert repr(back) == repr(value), (name, back)
        print("all came back", flush=True)
