"""Time as an argument: shells read the clock here, pure packages are given its value."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time in UTC, with microseconds."""
    return datetime.now(UTC)


def format_time(moment: datetime) -> str:
    """Return RFC 3339 in whole seconds with ``Z``, the ``metav1.Time`` of the Kubernetes API."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def format_micro_time(moment: datetime) -> str:
    """Return RFC 3339 with six decimals and ``Z``, the ``metav1.MicroTime`` of leases and events."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """Return the time written as RFC 3339, with or without a fraction of up to nine digits.

    Raises:
        ValueError: the text is no RFC 3339 time.
    """
    head, dot, tail = text.partition(".")
    if dot:
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = f"{head}.{tail[:digits][:6]}{tail[digits:]}"
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
