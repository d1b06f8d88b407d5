"""What holds for all tests of faults."""

from __future__ import annotations

import pytest

from gangline.jobs import launcher_replacement


@pytest.fixture(autouse=True)
def launchers_are_placed_anew_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the pause away where the operator is in this process."""
    monkeypatch.setattr(launcher_replacement, "first_wait_s", 0.0)
