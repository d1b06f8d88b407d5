"""Take the pictures of README and docs again: `python tools/pictures.py`, into docs/images.

A one-machine cluster of its own with two simulated DGX-1 trains three networks and lets a fourth wait.
Debian's chromium looks at the page, by playwright (tests/requirements-page.txt); what commands print is drawn
as SVG.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = REPOSITORY / "docs" / "images"
EXAMPLE = REPOSITORY / "examples" / "01-digits"
LIMIT_S = 300
COLUMNS = 116
WIDTH, HEIGHT, HIGHER = 1100, 690, 1000
COLOURS = 96

JOBS = {
    "digits-lr-02": ("-n", "4", "--nproc-per-node", "4", "--gpus", "4", "0.02", "600"),
    "digits-lr-01": ("-n", "2", "--nproc-per-node", "2", "--gpus", "2", "0.01", "100000"),
    "digits-lr-05": ("-n", "2", "--nproc-per-node", "2", "--gpus", "4", "0.05", "100000"),
    "digits-8": ("-n", "8", "--nproc-per-node", "8", "--gpus", "8", "0.05", "100000"),
}
"""Name, options, learning rate and steps: three that run, and one that finds no node with eight free GPUs."""

FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""As rich draws terminals, without fonts from elsewhere."""


class Cluster:
    """A cluster of the pictures' own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "GANGLINE_HOME": str(folder / "home"), "COLUMNS": str(COLUMNS)}
        self._followed: list[subprocess.Popen[bytes]] = []

    def gangline(self, *words: str) -> str:
        """Return what a command prints."""
        command = [sys.executable, "-m", "gangline", *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"gangline {' '.join(words)}: {done.stderr}")
        return done.stdout

    def train(self, name: str) -> None:
        """Start one of the jobs, and wait until it is listed."""
        *options, learning_rate, steps = JOBS[name]
        program = [sys.executable, str(Path(__file__).with_name("pictured_training.py"))]
        command = [sys.executable, "-m", "gangline", "run", "--name", name, *options, "--"]
        command += [*program, str(EXAMPLE), learning_rate, steps]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._followed.append(
                subprocess.Popen(command, env=self._environment, cwd=self._folder, stdout=log, stderr=log)
            )
        wait_until(lambda: any(job["name"] == name for job in self.jobs()), f"job {name}")

    def jobs(self) -> list[dict[str, object]]:
        """Return the jobs as `gangline list` has them."""
        return list(json.loads(self.gangline("list", "-o", "json")))

    def step(self, name: str) -> int:
        """Return the last step that a job has told."""
        lines = (self._folder / f"{name}.log").read_text()
        return int(([0, *re.findall(r"^step (\d+)", lines, re.MULTILINE)])[-1])  # step 12  loss 0.1

    def end(self) -> None:
        """Leave nothing behind."""
        self.gangline("down", "--purge")
        for process in self._followed:
            process.wait()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for something of the cluster."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"waited {LIMIT_S} s for {what}")
        time.sleep(0.5)


@contextmanager
def at_work() -> Iterator[Cluster]:
    """A cluster on which the jobs run and wait."""
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(Path(name))
        cluster.gangline("up", "--nodes", "2", "--simulate-gpus", "8", "--gpu-model", "v100-dgx1")
        try:
            for job in JOBS:
                cluster.train(job)
            wait_until(lambda: cluster.step("digits-lr-02") > 250, "the training")
            yield cluster
        finally:
            cluster.end()


def draw(name: str, cluster: Cluster, *commands: str) -> None:
    """Draw what commands print, as a terminal shows it."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, highlight=False)
        for number, command in enumerate(commands):
            console.print(("\n" if number else "") + f"[bold]$ {command}[/bold]")
            console.print(cluster.gangline(*command.split()[1:]).rstrip(), markup=False)
    svg = console.export_svg(
        title="two simulated DGX-1", code_format=FRAME, theme=DEFAULT_TERMINAL_THEME, unique_id=name
    )
    (TARGET / f"{name}.svg").write_text(svg)


def photograph(page: Page, name: str, *, rows: tuple[float, float] | None = None) -> None:
    """Keep what the page shows, or what of it is between two heights in pixels, as a PNG of few colours."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "all.png"
        page.screenshot(path=file)
        with Image.open(file) as image:
            above, below = rows or (0, image.height)
            seen = image.convert("RGB").crop((0, int(above), image.width, int(below)))
            seen.quantize(COLOURS, dither=Image.Dither.NONE).save(TARGET / f"{name}.png", optimize=True)


def main() -> None:
    """Take all pictures."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("no chromium on the PATH; Debian's package is called so")
    TARGET.mkdir(exist_ok=True)
    with at_work() as cluster, sync_playwright() as playwright:
        draw("explain", cluster, "gangline explain digits-8", "gangline explain digits-lr-01 --placement")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(cluster.gangline("page", "--no-browser").strip())
        page.get_by_role("link", name="digits-lr-02").click()
        page.get_by_role("img", name=re.compile("^loss over steps, last")).wait_for()
        photograph(page, "page-job")
        page.get_by_role("link", name="Nodes").click()
        page.set_viewport_size({"width": WIDTH, "height": HIGHER})
        page.locator("tr", has_text="digits-8").locator(
            "td:first-child", has_text="1"
        ).wait_for()  # its place
        queue = page.get_by_role("heading", name="Queue").bounding_box()
        cards = page.locator(".cards").bounding_box()
        assert queue and cards
        photograph(page, "page-nodes", rows=(queue["y"] - 12, cards["y"] + cards["height"] + 12))
        browser.close()


if __name__ == "__main__":
    main()
