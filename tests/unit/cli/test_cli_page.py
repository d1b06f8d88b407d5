"""`gangline page` prints its link, and opens it where a browser has a window."""

from __future__ import annotations

import webbrowser
from typing import Any

import pytest
from click.testing import CliRunner

from gangline.cli import page

LINK = "http://127.0.0.1:4000/enter?token=x"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The links that were opened."""
    found: list[str] = []

    def note(link: str) -> bool:
        found.append(link)
        return True

    monkeypatch.setattr("gangline.client.target.ClusterTarget.check_up", lambda *_: None)
    monkeypatch.setattr("gangline.cli.serve.page.page_link", lambda *_: LINK)
    monkeypatch.setattr(webbrowser, "open", note)
    return found


@pytest.mark.parametrize(
    ("browser", "display", "words", "is_opened"),
    [
        (webbrowser.Mozilla(), ":0", [], True),
        (webbrowser.Mozilla(), ":0", ["--no-browser"], False),
        (webbrowser.GenericBrowser("w3m"), "", [], False),  # it would take the terminal over
        (webbrowser.Error("none"), "", [], False),
    ],
)
def test_the_link_is_printed_and_opened_where_there_is_a_window(
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    browser: Any,
    display: str,
    words: list[str],
    is_opened: bool,
) -> None:
    def get() -> Any:
        if isinstance(browser, Exception):
            raise browser
        return browser

    monkeypatch.setattr(webbrowser, "get", get)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)

    done = CliRunner().invoke(page.command, words)

    assert done.stdout == f"{LINK}\n"
    assert opened == ([LINK] if is_opened else [])
