"""Quantities and durations: parse, compare and print the notations of the Kubernetes API.

Source: k8s.io/apimachinery resource.Quantity (decimal and binary suffixes) and the ages that kubectl prints.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
}
_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eE][+-]?[0-9]+|[A-Za-z]{0,2})$")


def parse_quantity(text: str | int | float) -> Decimal:
    """Return the exact value of a quantity such as ``2``, ``500m``, ``1.5Gi`` or ``1e3``.

    Raises:
        ValueError: the text is no quantity.
    """
    match = _QUANTITY.match(str(text).strip())
    if not match:
        raise ValueError(f"`{text}` is no quantity; write for example `2`, `500m` or `4Gi`")
    number, suffix = match.groups()
    try:
        value = Decimal(number)
        if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix not in _BINARY:
            return value.scaleb(int(suffix[1:]))
    except (InvalidOperation, ValueError):
        raise ValueError(f"`{text}` is no quantity") from None
    if suffix in _BINARY:
        return value * _BINARY[suffix]
    if suffix in _DECIMAL:
        return value * _DECIMAL[suffix]
    raise ValueError(f"`{text}` is no quantity: unknown suffix `{suffix}`")


def quantity_ceil(text: str | int | float, *, scale: int = 1) -> int:
    """Return ``quantity * scale`` rounded up, for example millicores with ``scale=1000``."""
    return int((parse_quantity(text) * scale).to_integral_value(rounding=ROUND_CEILING))


def format_quantity(value: Decimal, *, binary: bool = False) -> str:
    """Return a quantity with the largest suffix that loses nothing: ``21``, ``500m``, ``1k``, ``42Gi``.

    Args:
        value: the exact value; finer than a billionth is rounded up.
        binary: prefer ``Ki``, ``Mi``, ... for whole numbers.
    """
    if value == value.to_integral_value():
        whole = int(value)
        sizes = _BINARY if binary else {name: int(size) for name, size in _DECIMAL.items() if size > 1}
        for suffix, size in reversed(sizes.items()):
            if whole and whole % size == 0:
                return f"{whole // size}{suffix}"
        return str(whole)
    for suffix in ("m", "u"):
        scaled = value / _DECIMAL[suffix]
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return f"{int((value / _DECIMAL['n']).to_integral_value(rounding=ROUND_CEILING))}n"


def format_bytes(count: int) -> str:
    """Return a size with a binary suffix and at most one decimal: ``512 B``, ``1.5 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_age(seconds: float) -> str:
    """Return an age as kubectl prints it: ``45s``, ``3m20s``, ``25m``, ``7h12m``, ``2d``.

    Source: k8s.io/apimachinery duration.HumanDuration.
    """
    total_s = max(0, int(seconds))
    if total_s < 120:
        return f"{total_s}s"
    minutes = total_s // 60
    if minutes < 10:
        rest_s = total_s % 60
        return f"{minutes}m{rest_s}s" if rest_s else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        rest_m = minutes % 60
        return f"{hours}h{rest_m}m" if rest_m else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        rest_h = hours % 24
        return f"{days}d{rest_h}h" if rest_h else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    rest_d = days % 365
    return f"{years}y{rest_d}d" if years < 8 and rest_d else f"{years}y"


def plural(count: int, noun: str) -> str:
    """Return ``1 pod``, ``2 pods``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
