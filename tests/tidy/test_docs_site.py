"""The documentation as a site: what its build takes, and that its menu is whole."""

from __future__ import annotations

import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build_site() -> ModuleType:
    return load("build_site")


def test_the_menu_names_every_page_but_the_later_decisions() -> None:
    sections = tomllib.loads((DOCS / "zensical.toml").read_text())["project"]["nav"]
    named = [name for section in sections for names in section.values() for name in names]
    pages = {path.relative_to(REPOSITORY).as_posix() for path in DOCS.rglob("*.md")}

    assert {name for name in named if not (REPOSITORY / name).is_file()} == set()
    assert {name for name in pages - set(named) if "/decisions/" not in name} == set()
    assert len(named) == len(set(named))


def test_pages_bring_what_they_lead_to(build_site: ModuleType, tmp_path: Path) -> None:
    for name, text in {
        "a.md": "[b](more/b.md#part) ![c](c.svg) [folder](folder) [out](https://example.org/x) [here](#d)",
        "more/b.md": "[back](../a.md)",
        "c.svg": "[not a page](missing.md)",
        "folder/README.md": "",
        "alone.md": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    found = build_site.reached([tmp_path / "a.md"])

    names = {path.relative_to(tmp_path).as_posix() for path in found}
    assert names == {"a.md", "more/b.md", "c.svg", "folder/README.md"}


def test_a_link_to_no_file_ends_the_build(build_site: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("[gone](gone.svg)")

    with pytest.raises(SystemExit, match=r"a\.md: links to .*gone\.svg"):
        build_site.reached([page])


def test_versions_are_those_whose_folders_are_there_newest_first(
    build_site: ModuleType, tmp_path: Path
) -> None:
    for name in ("0.9", "0.10", "assets"):
        (tmp_path / name).mkdir()

    listed = [(one["version"], one["aliases"]) for one in build_site.versions(tmp_path)]

    assert listed == [("0.10", ["latest"]), ("0.9", [])]


def test_pictures_are_small_and_ask_nobody() -> None:
    pictures = list((DOCS / "images").iterdir())

    assert sum(path.stat().st_size for path in pictures) <= 300_000
    drawn = [path.read_text() for path in pictures if path.suffix == ".svg"]
    assert drawn
    assert [text for text in drawn if "url(http" in text or "href=" in text or "@import" in text] == []


def test_the_gallery_shows_every_example_by_the_lines_of_its_readme() -> None:
    """Run `python docs/update_gallery.py EXAMPLE` when this fails."""
    gallery = load("update_gallery")
    shown = gallery.sections()
    examples = {path.parent.name for path in (REPOSITORY / "examples").glob("*/README.md")}

    assert set(shown) == set(gallery.LINES) == examples
    for folder, lines in gallery.LINES.items():
        readme = (REPOSITORY / "examples" / folder / "README.md").read_text()
        typed = [line for line in lines if not line.startswith("cd examples/published")]
        assert [line for line in typed if line not in readme] == [], folder
        assert [line for line in lines if f"$ {line}\n" not in shown[folder]] == [], folder


def test_what_a_terminal_shows_is_the_end_of_a_line_and_no_middle_of_many() -> None:
    shown = load("update_gallery").shown

    assert shown("10 %\r100 %\n\x1b[31mred\x1b[0m \n\n") == "100 %\nred"
    assert shown("\n".join(str(line) for line in range(30))).splitlines()[10:13] == ["10", "...", "19"]
