"""The fields of the built-in kinds, read from compact tables on first use.

One table serves four readers: protobuf bodies, unknown-field checks, strategic merge and the OpenAPI
documents. A line is ``Message: FIELD ...``; a continuation line is indented; a field is
``NAME=NUMBER[SHAPE]TYPE[FLAG][MERGE]``:

* ``NAME``: the name in JSON; ``~`` stands for a message whose fields appear inline in JSON.
* ``NUMBER``: the protobuf field number.
* ``SHAPE``: ``*`` list, ``%`` map from strings, none: one value.
* ``TYPE``: ``s`` text, ``i`` integer, ``b`` boolean, ``y`` bytes, ``T`` time, ``M`` time with microseconds,
  ``Q`` quantity, ``I`` integer or string, ``L`` list of texts, ``F`` a field set, ``R`` any JSON, or a
  message.
* ``FLAG``: ``?`` zero is a value (protobuf has the field only when it is set), ``!`` JSON has the field even
  when it is zero; without a flag a zero is left out of JSON.
* ``MERGE``: ``@KEY`` strategic merge joins the list by that key, ``@`` joins a list of plain values; ``^``
  honours ``$retainKeys``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from gangline.local.apiserver.wire_core import CORE
from gangline.local.apiserver.wire_groups import GROUPS, META

_FIELD = re.compile(r"([A-Za-z0-9~]+)=(\d+)([*%]?)([A-Za-z0-9]+)([?!]?)(?:@([A-Za-z]*))?(\^?)")


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a message; the notation is explained at the top of the module.

    Attributes:
        name: name in JSON.
        number: protobuf field number.
        shape: ``*``, ``%`` or empty.
        type: type letter or the name of a message.
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


@dataclass(frozen=True, slots=True)
class Message:
    """A message: ``by_name`` has the fields that JSON shows (inline ones resolved), ``by_number`` those of
    protobuf.
    """

    name: str
    by_name: dict[str, WireField]
    by_number: dict[int, WireField]


@cache
def _lines() -> dict[str, str]:
    """Return the field text of every message. Cost: 0.2 ms, once."""
    lines: dict[str, str] = {}
    name = ""
    for line in f"{META}{CORE}{GROUPS}".splitlines():
        if line.startswith("  "):
            lines[name] += line
        elif line:
            name, _, lines[name] = line.partition(":")
    return lines


@cache
def message(name: str) -> Message:
    """Return one message, parsed on first use.

    Raises:
        KeyError: there is no such message.
    """
    fields = [_field(text) for text in _lines()[name].split()]
    return Message(
        name,
        {field.name: field for field in _json_fields(fields)},
        {field.number: field for field in fields},
    )


def _field(text: str) -> WireField:
    match = _FIELD.fullmatch(text)
    assert match, f"malformed field `{text}` in a table"
    name, number, shape, type_, flag, merge_key, retain = match.groups()
    return WireField(
        name=name,
        number=int(number),
        shape=shape,
        type=type_,
        zero_is_value=flag == "?",
        always=flag == "!",
        merge_key=merge_key,
        retain_keys=retain == "^",
        is_message=len(type_) > 1,
        is_inline=name == "~",
    )


def _json_fields(fields: list[WireField]) -> Iterator[WireField]:
    for field in fields:
        if field.is_inline:
            yield from message(field.type).by_name.values()
        else:
            yield field


def message_of_kind(group: str, version: str, kind: str) -> Message | None:
    """Return the message of a built-in kind, or None where the tables do not have it."""
    if (group, kind) not in _KINDS or version != "v1":
        return None
    return message(kind)


_KINDS = {
    *(
        ("", kind)
        for kind in (
            "Pod",
            "Namespace",
            "Node",
            "Service",
            "Endpoints",
            "ConfigMap",
            "Secret",
            "ServiceAccount",
            "Event",
            "Binding",
        )
    ),
    *(("authorization.k8s.io", f"{scope}SubjectAccessReview") for scope in ("", "Self", "Local")),
    ("authorization.k8s.io", "SelfSubjectRulesReview"),
    ("authentication.k8s.io", "SelfSubjectReview"),
    ("authentication.k8s.io", "TokenReview"),
    ("authentication.k8s.io", "TokenRequest"),
    ("autoscaling", "Scale"),
    ("batch", "Job"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("policy", "Eviction"),
    ("scheduling.k8s.io", "PriorityClass"),
}
"""Kinds whose version v1 is in the tables."""
