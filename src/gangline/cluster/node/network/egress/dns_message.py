"""As much of DNS as a forwarder reads and writes itself: a question, answers of addresses and names. Pure.

What is passed on is passed on as it came. Source: RFC 1035, sections 4.1 and 4.2.2.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass

A, CNAME, PTR, SRV, ANY = 1, 5, 12, 33, 255
OK, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
HEADER_BYTES = 12
TTL_S = 5
"""Pods come and go."""

_IN = 1
_IS_ANSWER, _OPCODE, _AUTHORITATIVE = 0x8000, 0x7800, 0x0400
_RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x0100, 0x0080
_NAME_OF_QUESTION = b"\xc0\x0c"  # a pointer to byte 12
_LABEL_BYTES_MAX = 63
_NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class Question:
    """What a message asks.

    Attributes:
        id: of the message.
        name: in small letters, without the last dot.
        type: of the records asked for.
        flags: of the message.
        raw: the question as it is in the message.
    """

    id: int
    name: str
    type: int
    flags: int
    raw: bytes


def read_question(message: bytes) -> Question | None:
    """Return the one question of a query; None for anything else, so that nothing else is passed on."""
    if len(message) < HEADER_BYTES:
        return None
    number, flags, questions = struct.unpack_from("!HHH", message)
    if flags & (_IS_ANSWER | _OPCODE) or questions != 1:
        return None
    labels = []
    place = HEADER_BYTES
    while True:
        if place >= len(message):
            return None
        length = message[place]
        place += 1
        if length == 0:
            break
        if length > _LABEL_BYTES_MAX or place + length > len(message):
            return None
        labels.append(message[place : place + length].decode("ascii", "replace").lower())
        place += length
        if place - HEADER_BYTES > _NAME_BYTES_MAX:
            return None
    end = place + 4
    if end > len(message):
        return None
    type_, class_ = struct.unpack_from("!HH", message, place)
    if class_ != _IN:
        type_ = 0
    return Question(number, ".".join(labels), type_, flags, message[HEADER_BYTES:end])


def write_answer(
    question: Question,
    *,
    addresses: Sequence[str] = (),
    name: str = "",
    alias: str = "",
    places: Sequence[tuple[int, str]] = (),
    code: int = OK,
    authoritative: bool = True,
) -> bytes:
    """Return the answer to a question, or a code without any.

    Args:
        question: that is answered.
        addresses: of IPv4.
        name: that an address has.
        alias: what the name that is asked for is another name of.
        places: port and host of each instance of a service (RFC 2782).
        code: of the answer.
        authoritative: whether it is ours to give.
    """
    records = [(CNAME, _encode(alias))] if alias else []
    records += [(A, ipaddress.IPv4Address(address).packed) for address in addresses]
    if name:
        records.append((PTR, _encode(name)))
    records += [(SRV, struct.pack("!HHH", 0, 100, port) + _encode(host)) for port, host in places]
    flags = _IS_ANSWER | _RECURSION_AVAILABLE | question.flags & _RECURSION_DESIRED | code
    flags |= _AUTHORITATIVE if authoritative else 0
    head = struct.pack("!HHHHHH", question.id, flags, 1, len(records), 0, 0)
    body = b"".join(
        _NAME_OF_QUESTION + struct.pack("!HHIH", type_, _IN, TTL_S, len(data)) + data
        for type_, data in records
    )
    return head + question.raw + body


def _encode(name: str) -> bytes:
    labels = [label.encode("ascii", "replace")[:_LABEL_BYTES_MAX] for label in name.split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
