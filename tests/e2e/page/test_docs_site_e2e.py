"""The documentation in a browser: search, dark mode, versions, and nothing from elsewhere."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import LIMIT_MS

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[3]
BUILD_LIMIT_S = 120


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files, and no line for each."""

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site's address, built with an older version beside it."""
    pytest.importorskip("zensical", reason="zensical is not installed; `make docs` does it")
    folder = tmp_path_factory.mktemp("docs")
    (folder / "0.0").mkdir()
    (folder / "0.0" / "index.html").write_text("as it was")
    command = [sys.executable, ROOT / "docs" / "build_site.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S)
    assert done.returncode == 0, done.stderr
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def reader(chromium: Any, site: str) -> Iterator[Any]:
    """The site's first page, open; anything asked of another address, or not found, fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, color_scheme="dark")
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    asked, missing = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("response", lambda told: missing.append(told.url) if told.status >= 400 else None)
    page.goto(site)
    page.wait_for_url(re.compile(r"/\d+\.\d+/$"))  # the newest
    yield page
    context.close()
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []
    assert [url for url in missing if not url.endswith("/favicon.ico")] == []


def test_a_reader_searches_and_finds_a_page(reader: Any) -> None:
    reader.get_by_role("heading", name="Gangline").wait_for()
    reader.get_by_role("button", name="Search").first.click()
    reader.keyboard.type("scarcest link")
    reader.locator("a[href*='?h=scarcest']", has_text="What is a placement worth?").click()

    reader.get_by_role("heading", name="What is a placement worth?").wait_for()


def test_dark_is_as_the_system_has_it_and_can_be_chosen(reader: Any) -> None:
    body = reader.locator("body")

    assert body.get_attribute("data-md-color-scheme") == "slate"
    reader.locator("label[title^='Colours as your system']").click()
    reader.locator("body[data-md-color-scheme=default]").wait_for()


def test_versions_that_are_kept_are_offered(reader: Any) -> None:
    reader.locator(".md-version").get_by_role("link", name="0.0").wait_for(state="attached")

    assert "/0.0/" in reader.locator(".md-version a", has_text="0.0").get_attribute("href")


def test_pages_with_pictures_and_drawings_ask_nobody_else(reader: Any) -> None:
    newest = reader.url
    for page in (
        "docs/concepts/topology-model",
        "docs/concepts/job-lifecycle",
        "docs/reference/cli",
        "examples",
    ):
        reader.goto(f"{newest}{page}/", wait_until="networkidle")
