"""JSON of any depth is read, and Python's own limit is as it was afterwards."""

from __future__ import annotations

import sys

import msgspec
import pytest

from gangline.api.mpijob import AnyJob
from gangline.kube.deep_json import decode_json


def nested(depth: int) -> bytes:
    spec = b'{"a":' * depth + b"1" + b"}" * depth
    return b'{"metadata":{"name":"deep"},"spec":' + spec + b"}"


@pytest.mark.parametrize("depth", [10, 900, 1100, 9990])
def test_what_a_server_takes_is_read(depth: int) -> None:
    limit = sys.getrecursionlimit()

    job = decode_json(msgspec.json.Decoder(AnyJob).decode, nested(depth))

    assert job.metadata.name == "deep"
    levels, value = 0, job.spec
    while isinstance(value, dict):
        levels, value = levels + 1, value["a"]
    assert levels == depth
    assert sys.getrecursionlimit() == limit


def test_what_is_no_json_is_said_at_any_depth() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(msgspec.json.decode, nested(5000)[:-1])
