"""What a program that names hosts prints, and what is kept of the last time when it fails."""

from __future__ import annotations

import asyncio

import pytest

from gangline.launch.elastic.discovery import discover
from gangline.launch.hosts import Host

BEFORE = [Host("old", 2)]


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("echo a:2; echo b", [Host("a", 2), Host("b", 4)]),
        ("echo a slots=3", [Host("a", 3)]),
        ("true", []),
        ("echo a:2; exit 3", BEFORE),
        ("echo a:many", BEFORE),
    ],
)
def test_hosts_without_a_number_have_the_usual_one_and_failures_change_nothing(
    line: str, hosts: list[Host]
) -> None:
    assert asyncio.run(discover(("/bin/sh", "-c", line), BEFORE, 4)) == hosts
