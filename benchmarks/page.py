"""The web page in a real Chromium over made-up jobs: first paint, updates, memory, frames, processor time.

Needs Debian's `chromium` and playwright (`pip install -r tests/requirements-page.txt`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import Laboratory

MANY = 100_000
PAGES = 10
FRAMES_S = 5
CPU_S = 10
ROWS = "tbody tr:not(.filler)"


class Server:
    """The page server of made-up jobs, in a process of its own."""

    def __init__(self, jobs: int) -> None:
        program = Path(__file__).with_name("page_server.py")
        self._process = subprocess.Popen(
            [sys.executable, program, str(jobs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())

    def say(self, words: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()

    def cpu_s(self) -> float:
        self.say("cpu")
        assert self._process.stdout
        return float(self._process.stdout.readline())

    def link(self) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/link", method="POST", headers={"Authorization": "Bearer benchmark"}
        )
        with urllib.request.urlopen(request) as answer:
            return f"http://127.0.0.1:{self.port}/enter?token={json.load(answer)['token']}"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def served(jobs: int) -> Iterator[Server]:
    server = Server(jobs)
    try:
        yield server
    finally:
        server.stop()


NOTE_FIRST_ROW = f"""new MutationObserver((_, seen) => {{
  if (!document.querySelector("{ROWS}")) return;
  seen.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => {{ window.painted = Date.now() / 1000; }}));
}}).observe(document, {{ subtree: true, childList: true }})"""
"""The page notes itself when its first row was painted: whoever asks from outside looks every half second."""

WAIT_PAINTED = """() => new Promise(done => {
  const look = () => window.painted ? done(window.painted) : requestAnimationFrame(look);
  look();
})"""


def open_page(browser: Any, server: Server) -> tuple[Any, float]:
    """Return an open page, and the seconds from asking for it until its first row is painted."""
    page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
    page.add_init_script(NOTE_FIRST_ROW)
    link = server.link()
    began = time.time()
    page.goto(link)
    return page, page.evaluate(WAIT_PAINTED) - began


WAIT_CHANGE = """() => new Promise(done => {
  const seen = new MutationObserver(() => {
    const found = document.body.innerText.match(/changed at ([0-9.]+)/);
    if (found) { seen.disconnect(); done(Date.now() / 1000 - Number(found[1])); }
  });
  seen.observe(document.body, { subtree: true, childList: true, characterData: true });
})"""
COUNT_FRAMES = """(seconds) => new Promise(done => {
  let frames = 0; const began = performance.now();
  const next = () => { frames++; const past = (performance.now() - began) / 1000;
    past < seconds ? requestAnimationFrame(next) : done(frames / past); };
  requestAnimationFrame(next);
})"""


def update_s(page: Any, server: Server) -> float:
    """Return the seconds from a change in the server to its being in the page."""
    handle = page.evaluate_handle(f"() => ({{ found: ({WAIT_CHANGE})() }})")
    server.say("once")
    return float(page.evaluate("(handle) => handle.found", handle))


def run(laboratory: Laboratory) -> list[Figure]:
    """Return the figures; none without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("left out: playwright is not installed")
        return []
    program = shutil.which("chromium")
    if program is None:
        print("left out: no chromium on the PATH")
        return []
    few, many, updates, memory, frames, cpu = (list[float]() for _ in range(6))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        for _ in range(laboratory.rounds):
            with served(100) as server:
                page, seconds = open_page(browser, server)
                few.append(seconds * 1000)
                page.goto(f"{page.url}#/job/mpijob/default/job-0")
                page.get_by_role("tab", name="Log").click()
                server.say("log 1000")
                page.wait_for_selector(".line")
                frames.append(page.evaluate(COUNT_FRAMES, FRAMES_S))
                page.context.close()
            with served(MANY) as server:
                page, seconds = open_page(browser, server)
                many.append(seconds * 1000)
                updates.append(update_s(page, server) * 1000)
                memory.append(page.evaluate("performance.memory.usedJSHeapSize") / 1e6)
                page.context.close()
            with served(100) as server:
                pages = [open_page(browser, server)[0] for _ in range(PAGES)]
                server.say("change 10")
                before, began = server.cpu_s(), time.perf_counter()
                time.sleep(CPU_S)
                cpu.append(100 * (server.cpu_s() - before) / (time.perf_counter() - began))
                for page in pages:
                    page.context.close()
        browser.close()
    return [
        Figure("link to live list, 100 jobs", "ms", few, goal="<= 500"),
        Figure(f"link to live list, {MANY:,} jobs", "ms", many, goal="<= 1000"),
        Figure(f"change to page, {MANY:,} jobs", "ms", updates, goal="<= 100"),
        Figure("script memory of the page", "MB", memory, goal="<= 60"),
        Figure("frames a second, 1,000 log lines a second", "1/s", frames, goal=">= 30"),
        Figure(f"server's processor time, {PAGES} pages, 10 changes a second", "%", cpu, goal="<= 3"),
    ]
