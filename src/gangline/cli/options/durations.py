"""Durations of the command line. Pure."""

from __future__ import annotations

import re

from gangline.errors import UserError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(flag: str, text: str) -> int:
    """Return seconds of ``30s``, ``5m``, ``1h30m`` or a bare number of seconds.

    Raises:
        UserError: it is no duration; the message names the flag.

    Example:
        >>> seconds_of("--since", "1h30m")
        5400
    """
    parts = re.findall(r"(\d+)([smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UserError(f"{flag} {text}: write a duration such as `30s`, `5m` or `1h30m`")
    return sum(int(number) * _UNITS.get(unit, 1) for number, unit in parts)
