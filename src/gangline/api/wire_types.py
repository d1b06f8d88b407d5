"""The fields of Kubernetes' own kinds, read on first use from the table ``kubernetes_types.txt``.

One table serves five readers: protobuf bodies, unknown fields, types of values, strategic merge and the
OpenAPI documents. It is written by ``tools/kubernetes_types.py`` from a release of Kubernetes. A part begins
with ``[FOLDER/VERSION GROUP]``; a line in it is ``Message: FIELD ...``; a continuation line is indented; a
field is ``NAME=NUMBER[SHAPE]TYPE[FLAG][MERGE]``:

* ``NAME``: the name in JSON; ``~`` stands for a message whose fields appear inline in JSON.
* ``NUMBER``: the protobuf field number.
* ``SHAPE``: ``*`` list, ``%`` map from strings, none: one value.
* ``TYPE``: ``s`` text, ``i`` integer, ``b`` boolean, ``y`` bytes, ``T`` time, ``M`` time with microseconds,
  ``Q`` quantity, ``I`` integer or string, ``L`` list of texts, ``F`` a field set, ``R`` any JSON, ``f`` a
  number, ``O`` a JSON schema or a list of them, ``B`` one or a boolean, ``N`` one or a list of texts, or a
  message: ``PodSpec`` of the same part, ``core/v1.PodSpec`` of another one.
* ``FLAG``: ``?`` zero is a value (protobuf has the field only when it is set), ``!`` JSON has the field even
  when it is zero; without a flag a zero is left out of JSON.
* ``MERGE``: ``@KEY`` strategic merge joins the list by that key, ``@`` joins a list of plain values; ``^``
  honours ``$retainKeys``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

_TABLE = Path(__file__).with_name("kubernetes_types.txt")
# containers=2*Container@name, $ref=3s?, x-kubernetes-validations=44*ValidationRule@rule
_FIELD = re.compile(r"([A-Za-z0-9~$-]+)=(\d+)([*%]?)([A-Za-z0-9./]+)([?!]?)(?:@([A-Za-z]*))?(\^?)")
# v1, v1beta1, not v1alpha1
_SERVED = re.compile(r"v\d+(beta\d+)?")
OBJECT_META = "meta/v1.ObjectMeta"


class WireField(msgspec.Struct, frozen=True):
    """One field of a message; the notation is explained at the top of the module.

    Attributes:
        name: name in JSON.
        number: protobuf field number.
        shape: ``*``, ``%`` or empty.
        type: type letter or the name of a message, ``core/v1.PodSpec``.
        zero_is_value: whether a zero found in protobuf was set by the user.
        always: whether JSON has the field even when it is zero.
        merge_key: key by which strategic merge joins the list; empty joins plain values; None replaces.
        retain_keys: whether ``$retainKeys`` is honoured.
        is_message: whether the values are objects with a table of their own.
        is_inline: whether the message's fields appear in its parent in JSON.
    """

    name: str
    number: int
    shape: str
    type: str
    zero_is_value: bool
    always: bool
    merge_key: str | None
    retain_keys: bool
    is_message: bool
    is_inline: bool


class Message(msgspec.Struct, frozen=True):
    """A message: ``by_name`` has the fields that JSON shows (inline ones resolved), ``by_number`` those of
    protobuf.
    """

    name: str
    by_name: dict[str, WireField]
    by_number: dict[int, WireField]


@cache
def _parts() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return the text of every part by its name, and its name by group and version. Cost: 0.3 ms, once."""
    texts: dict[str, str] = {}
    names: dict[tuple[str, str], str] = {}
    for part in _TABLE.read_text(encoding="utf-8").split("\n[")[1:]:
        head, _, texts_of_part = part.partition("]\n")
        name, _, group = head.partition(" ")
        texts[name] = texts_of_part
        names[group, name.rpartition("/")[2]] = name
    return texts, names


@cache
def _lines(part: str) -> dict[str, str]:
    """Return the field text of every message of a part. Cost: 0.2 ms for core/v1, once."""
    lines: dict[str, str] = {}
    message_name = ""
    for line in _parts()[0][part].splitlines():
        if line.startswith("  "):
            lines[message_name] += line
        else:
            message_name, _, lines[message_name] = line.partition(":")
    return lines


@cache
def message(name: str) -> Message:
    """Return one message, ``core/v1.Pod``, parsed on first use.

    Raises:
        KeyError: there is no such message.
    """
    part, _, short_name = name.partition(".")
    fields = [_field(text, part) for text in _lines(part)[short_name].split()]
    return Message(
        name,
        {field.name: field for field in _json_fields(fields)},
        {field.number: field for field in fields},
    )


def _field(text: str, part: str) -> WireField:
    match = _FIELD.fullmatch(text)
    assert match, f"malformed field `{text}` in the table"
    name, number, shape, type_, flag, merge_key, retain = match.groups()
    is_message = len(type_) > 1
    return WireField(
        name=name,
        number=int(number),
        shape=shape,
        type=f"{part}.{type_}" if is_message and "." not in type_ else type_,
        zero_is_value=flag == "?",
        always=flag == "!",
        merge_key=merge_key,
        retain_keys=retain == "^",
        is_message=is_message,
        is_inline=name == "~",
    )


def _json_fields(fields: list[WireField]) -> Iterator[WireField]:
    for field in fields:
        if field.is_inline:
            yield from message(field.type).by_name.values()
        else:
            yield field


def message_of_kind(group: str, version: str, kind: str) -> Message | None:
    """Return the message of a kind of Kubernetes' own in a version that may be served, or None."""
    part = _parts()[1].get((group, version))
    if part is None or not _SERVED.fullmatch(version) or kind not in _lines(part):
        return None
    return message(f"{part}.{kind}")
