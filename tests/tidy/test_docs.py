"""Documentation says what is true: generated pages are fresh, links lead somewhere, tables match."""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from gangline import errors

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
SOURCES = REPOSITORY / "src" / "gangline"
PACKAGES = sorted(path.name for path in SOURCES.iterdir() if (path / "__init__.py").is_file())
PAGES = [
    *sorted(DOCS.rglob("*.md")),
    *sorted(REPOSITORY.glob("*.md")),
    *sorted(REPOSITORY.glob("examples/**/*.md")),
]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]+)?\)")


def load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_references_of_commands_and_client_are_fresh() -> None:
    """Run `python docs/update_reference.py` when this fails."""
    generator = load(DOCS / "update_reference.py")

    assert generator.TARGET.read_text() == generator.reference()
    assert generator.CLIENT_TARGET.read_text() == generator.client_reference()


def test_the_page_of_pod_fields_is_fresh() -> None:
    """Run `python docs/update_pod_fields.py` when this fails."""
    generator = load(DOCS / "update_pod_fields.py")

    assert generator.TARGET.read_text() == generator.page()


def test_manifests_are_those_of_the_code() -> None:
    """Run `python tools/update_manifests.py` when this fails."""
    generator = load(REPOSITORY / "tools" / "update_manifests.py")
    stale = [
        path
        for path, text in generator.manifests()
        if not (generator.FOLDER / path).is_file() or (generator.FOLDER / path).read_text() != text
    ]

    assert stale == []


def test_drawings_are_those_of_the_code() -> None:
    """Run `python docs/update_diagrams.py` when this fails."""
    generator = load(DOCS / "update_diagrams.py")

    assert [path.name for path in generator.PAGES if generator.page(path) != path.read_text()] == []


def test_a_drawing_tells_when_a_contract_changes() -> None:
    generator = load(DOCS / "update_diagrams.py")
    layers = ["gangline.cli", "(gangline.not_there)", "gangline.api | (gangline.units)"]

    assert generator.floors_of(layers, SOURCES) == [["cli"], ["api", "units"]]


def test_the_map_has_a_paragraph_for_every_package() -> None:
    told = set(re.findall(r"\*\*`([\w/]+)/`\*\*", (DOCS / "architecture.md").read_text()))
    folders = [path for path in SOURCES.iterdir() if (path / "__init__.py").is_file()]
    for name in ("cluster", "cluster/server", "cluster/node", "client", "cli"):
        folders += [path for path in (SOURCES / name).iterdir() if (path / "__init__.py").is_file()]

    assert told == {folder.relative_to(SOURCES).as_posix() for folder in folders}


def test_every_file_and_module_that_a_page_names_exists() -> None:
    """Paths from the root or from src/gangline; dotted names of modules, or of what a module has."""
    roots = "|".join(["src", "tests", "docs", "tools", "benchmarks", "deploy", *PACKAGES])
    # `cluster/server/store/writer.py`, `tests/tidy/test_tree.py`, `src/gangline/api/KIND.py`
    path = re.compile(rf"`((?:{roots})/[\w./-]*[\w/](?=[ `:])|\w+/[\w./-]+\.py(?=`))")
    # `gangline.train.init`, gangline.placement.Policy
    dotted = re.compile(rf"\bgangline((?:\.(?:{'|'.join(PACKAGES)}))(?:\.\w+)*)")
    missing = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # history
            continue
        text = page.read_text()
        for name in path.findall(text):
            is_there = any((root / name).exists() for root in (REPOSITORY, SOURCES))
            if not is_there and "KIND" not in name:
                missing.append(f"{page.name}: {name}")
        missing += [
            f"{page.name}: gangline{name}" for name in dotted.findall(text) if not is_known(f"gangline{name}")
        ]

    assert missing == []


def test_every_word_of_the_glossary_has_its_place_in_the_code() -> None:
    """The last cell of each row: a class, or a file below src/gangline."""
    places = re.findall(r"^\| .* \| `([^`]+)` \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    classes = {
        name
        for file in SOURCES.rglob("*.py")
        for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE)
    }

    assert len(places) > 60
    assert [place for place in places if place not in classes and not (SOURCES / place).is_file()] == []


def is_known(dotted: str) -> bool:
    """Whether a dotted name is a package, a module, or a name that a module's text has."""
    parent, _, last = dotted.rpartition(".")
    for name in (dotted, parent):
        path = REPOSITORY / "src" / name.replace(".", "/")
        files = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
        if files and (name == dotted or re.search(rf"\b{last}\b", files[0].read_text())):
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve()
        headings = (
            re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            if path.suffix == ".md" and path.exists()
            else []
        )
        anchors = {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        if not path.exists() or (anchor and anchor not in anchors):
            broken.append(target + anchor)

    assert broken == []


def test_every_page_is_reachable_from_the_index() -> None:
    listed = (DOCS / "README.md").read_text()
    folders_with_an_index_entry = {"decisions"}

    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        if name != "README.md" and name.split("/")[0] not in folders_with_an_index_entry:
            assert f"({name})" in listed, name


def test_exit_codes_are_those_of_the_errors() -> None:
    page = (DOCS / "reference" / "exit-codes.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.GanglineError)
    ]

    assert {found.exit_code for found in classes} | {
        0,
        errors.EXIT_BUG,
        errors.EXIT_RESUME,
        130,
    } == documented


def test_table_of_targets_names_every_target_of_continuous_integration() -> None:
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()

    for target in re.findall(r"^make ([a-z-]+)", (REPOSITORY / ".ci" / "run").read_text(), re.MULTILINE):
        assert f"| `{target}` |" in page


def test_sizes_named_for_contributors_are_those_that_are_tested() -> None:
    tree = load(Path(__file__).with_name("test_tree.py"))
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()

    assert f"{tree.FILE_LINES_MAX} lines" in page
    assert f"{tree.FUNCTION_LINES_MAX} lines" in page


def test_every_test_that_a_page_names_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    tests = {
        name
        for file in (REPOSITORY / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }

    assert named, "the compatibility page names them"
    assert named - tests == set()


def test_published_lines_are_counted_rightly_and_each_that_works_names_its_test() -> None:
    text = (DOCS / "published-lines.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    working = [row for row in rows if row[1] == "as printed"]

    assert f"**{len(working)} of {len(rows)} rows work as printed.**" in text
    assert {row[1] for row in rows} == {"as printed", "differs"}
    assert [row[0] for row in working if "`test_" not in row[2] and not row[2].startswith("the same")] == []


def test_conformance_is_told_as_it_is_expected() -> None:
    """The tables of docs/compatibility.md count the cases of tests/conformance/expected.txt."""
    told = (DOCS / "compatibility.md").read_text().partition("<!-- conformance -->")[2]
    told = told.partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()]
    failing = {row[0]: int(row[1]) - int(row[2]) for row in rows if len(row) == 3 and row[1].isdigit()}
    because = {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}

    areas: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    reason = ""
    for line in (REPOSITORY / "tests/conformance/expected.txt").read_text().splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line:
            reasons[reason] += 1
            areas[line.partition("]")[0].removeprefix("[sig-")] += 1
    assert reasons == because
    assert areas.total() == failing.pop("all")
    assert areas == Counter(failing)
