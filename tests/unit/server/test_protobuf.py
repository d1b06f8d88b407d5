"""Protobuf bodies; the fixtures were encoded by Go's own serializer, with the JSON that Go gives for the same
object.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gangline.cluster.server.wire.protobuf import MAGIC, decode

BODIES = json.loads((Path(__file__).parent / "protobuf_bodies.json").read_text())


def without_empty(value: Any) -> Any:
    """Drop nulls and what is empty, which Go writes for structs and lists without content; keep emptyDir."""
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned = {key: without_empty(item) for key, item in value.items() if item is not None}
    return {key: item for key, item in cleaned.items() if item not in ({}, []) or key == "emptyDir"}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body["name"])
def test_body_says_the_same_as_json(body):
    assert without_empty(body["want"]) == without_empty(decode(bytes.fromhex(body["body"])))


@pytest.mark.parametrize("body", BODIES[:8], ids=lambda body: body["name"])
def test_body_cut_short_is_a_value_error_or_a_smaller_object(body):
    raw = bytes.fromhex(body["body"])
    for end in range(0, len(raw) - 1, 7):
        try:
            decode(raw[:end])
        except ValueError:
            continue


def test_other_magic_is_refused():
    with pytest.raises(ValueError, match="magic"):
        decode(b"{}")


def test_unknown_kind_is_named():
    type_meta = b"\n\x02v1\x12\x04Frob"
    with pytest.raises(ValueError, match="`Frob` in `v1`"):
        decode(MAGIC + b"\n" + bytes([len(type_meta)]) + type_meta)
