"""The tutorial, typed as it is written, on a machine that has nothing but Gangline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .reader import Reader

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial" / "ten-minutes.md"


def test_ten_minutes_do_what_they_say(start_cluster: Callable[..., Any], tmp_path: Path) -> None:
    with start_cluster() as cluster:
        Reader(cluster, tmp_path).follow(TUTORIAL)
