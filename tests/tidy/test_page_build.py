"""The page that is in the wheel is the one that web/ makes."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WEB = REPOSITORY / "web"
BUILT = REPOSITORY / "src" / "gangline" / "page" / "static"
COMPRESSED_MAX = 400_000


def test_the_built_page_is_that_of_its_sources() -> None:
    """Run `make page` when this fails, which needs Node.js."""
    files = sorted([f"src/{file.name}" for file in (WEB / "src").iterdir()] + ["build.mjs", "package.json"])
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file}\0".encode() + (WEB / file).read_bytes())

    assert (BUILT / "sources.sha256").read_text().strip() == total.hexdigest()


def test_the_page_is_small_and_asks_nobody_else() -> None:
    texts = [file.read_text() for file in BUILT.iterdir()]

    assert sum(len(gzip.compress(text.encode())) for text in texts) < COMPRESSED_MAX
    for text in texts:
        # /* xterm.js, see https://example.org */: licences stay with the code, and nobody follows them
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        addresses = code.replace("http://www.w3.org", "")  # names of XML vocabularies
        assert "https://" not in addresses and "http://" not in addresses
