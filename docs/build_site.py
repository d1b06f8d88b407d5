"""Build the documentation as a site: `python docs/build_site.py [FOLDER]`, dist/docs where none is named.

The pages are Markdown files as they lie in the repository: the README, all of docs/, and what these lead to.
FOLDER gets a folder for this version, `versions.json` (as mike writes it: the pages list versions from it)
and an index that leads to the newest. Folders of other versions stay: build into where the site is
kept. The build ends with an error where a link, an anchor or a file that is linked is missing.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import gangline

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIGURATION = Path(__file__).with_name("zensical.toml")
VERSION = ".".join(gangline.__version__.split(".")[:2])
# [the guide](guides/page.md#bounds), ![a picture](images/one.svg)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
COLOURS = re.compile(r"\x1b\[[\d;]*m")  # ESC[33m
INDEX = '<!doctype html><meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">Gangline {0}</a>\n'


def linked(page: Path) -> Iterable[Path]:
    """Yield the files that a page links to; of a folder its README."""
    for target in LINK.findall(page.read_text()):
        if not re.match(r"\w+:", target):  # https:, mailto:
            path = (page.parent / target).resolve()
            yield path / "README.md" if path.is_dir() else path


def reached(starts: Iterable[Path]) -> set[Path]:
    """Return the pages, and every file that they lead to."""
    found: set[Path] = set()
    waiting = list(starts)
    while waiting:
        page = waiting.pop()
        if page in found:
            continue
        found.add(page)
        for target in linked(page) if page.suffix == ".md" else ():
            if not target.is_file():
                raise SystemExit(f"{page}: links to {target}, which is no file; a folder needs a README.md")
            waiting.append(target)
    return found


def versions(folder: Path) -> list[dict[str, object]]:
    """Return the versions whose folders are there, the newest first."""
    names = [path.name for path in folder.iterdir() if re.fullmatch(r"\d+(\.\d+)*", path.name)]
    names.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    return [
        {"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []} for name in names
    ]


def build(folder: Path) -> None:
    """Build this version into a folder of sites."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        shutil.copy(CONFIGURATION, work)
        for path in reached([REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]):
            copy = work / "pages" / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        command = [
            sys.executable,
            "-m",
            "zensical",
            "build",
            "--strict",
            "-f",
            str(work / CONFIGURATION.name),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(COLOURS.sub("", done.stdout + done.stderr))
        target = folder / VERSION
        shutil.rmtree(target, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(work / "site", target, ignore=shutil.ignore_patterns("404.html", "sitemap.xml"))
    there = versions(folder)
    (folder / "versions.json").write_text(json.dumps(there, indent=2) + "\n")
    (folder / "index.html").write_text(INDEX.format(there[0]["version"]))
    print(target / "index.html")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist/docs"))
