"""Quantities and ages; expected values from the Kubernetes API conventions."""

from decimal import Decimal

import pytest

from gangline.units import format_age, format_bytes, parse_quantity, quantity_ceil


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2", 2),
        (3, 3),
        ("500m", Decimal("0.5")),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("1k", 1000),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        ("1Ei", 1 << 60),
    ],
)
def test_quantity_has_its_exact_value(text: str | int, want: int | Decimal) -> None:
    assert want == parse_quantity(text)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Zi", "--1", "1..2"])
def test_quantity_refuses_nonsense(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


def test_millicores_are_rounded_up() -> None:
    assert quantity_ceil("1500u", scale=1000) == 2


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(45, "45s"), (200, "3m20s"), (1500, "25m"), (25920, "7h12m"), (172800, "2d")],
)
def test_age_reads_as_kubectl_prints_it(seconds: int, want: str) -> None:
    assert want == format_age(seconds)


def test_bytes_carry_a_binary_suffix() -> None:
    assert [format_bytes(512), format_bytes(1536), format_bytes(1 << 30)] == [
        "512 B",
        "1.5 KiB",
        "1 GiB",
    ]
