"""Somebody who does what a page says: files are made, lines are run, outputs compared.

A block of YAML or Python whose first line is ``# NAME`` is a file; ``sh`` is run; ``output`` is what the
blocks of ``sh`` before it print, ``...`` standing for anything. The one-machine cluster plays the cluster,
its own image `my-image`. After ``<!-- not run: REASON -->`` a block is not run; files are still checked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

# <!-- not run: reason --> and a fence with its language, text and end
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w.-]+)\n")
FOREIGN = ("kueue.x-k8s.io", "monitoring.coreos.com")
"""Groups whose definitions the cluster does not have: their objects are read, and not sent."""


class Reader:
    """Somebody who does what a guide says."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.printed = ""

    def follow(self, page: Path) -> None:
        """Do all that a page says."""
        blocks = BLOCK.findall(page.read_text())
        assert blocks
        # files first: readers see them below the line that uses them
        for _, language, text in blocks:
            if language in ("yaml", "python"):
                self.write(text)
        for unrun, language, text in blocks:
            if language == "sh" and not unrun:
                self.run(text)
            elif language == "output":
                self.expect(text)

    def run(self, text: str) -> None:
        line = text.replace("my-image", "gangline/base").replace("my-cluster", "gangline")
        own = f"cd {self.folder}; export COLUMNS=200 PATH={Path(sys.executable).parent}:$PATH; exec 2>&1"
        done = self.cluster.run("bash", "-euo", "pipefail", "-c", f"{own}\n{line}")
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        self.printed += done.stdout

    def write(self, text: str) -> None:
        named = FILE.match(text)
        assert named, f"no name in the first line:\n{text}"
        here = text.replace("my-image", "gangline/base").replace("my-cluster", "gangline")
        (self.folder / named.group(1)).write_text(here)
        if not named.group(1).endswith(".yaml"):
            return
        for obj in yaml.safe_load_all(text):
            if "kind" in obj and obj["apiVersion"].partition("/")[0] not in FOREIGN:
                obj["metadata"].pop("namespace", None)  # it comes with the lines
                words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
                self.cluster.kubectl(*words, stdin=yaml.safe_dump(obj))

    def expect(self, text: str) -> None:
        pattern = "".join(
            r"(?:.*\n)*" if line == "..." else "[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"
            for line in text.splitlines()
        )
        assert re.fullmatch(pattern, self.printed), f"expected\n{text}\nprinted\n{self.printed}"
        self.printed = ""
