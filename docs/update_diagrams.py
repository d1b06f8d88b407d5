"""Write the drawings of `docs/architecture.md` and `docs/concepts/job-lifecycle.md` again from the code.

`python docs/update_diagrams.py`. The text of the pages is edited there; what stands between the marks
`<!-- NAME -->` and `<!-- end -->` is made here: the floors from the import contracts of `pyproject.toml`, the
phases of an MPIJob from the table that decides them. A test says when a drawing is out of date.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from gangline.jobs.phases import FINAL, TRANSITIONS

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = {
    REPOSITORY / "docs" / "architecture.md": ("floors", "cluster-floors", "forbidden"),
    REPOSITORY / "docs" / "concepts" / "job-lifecycle.md": ("phases", "transitions"),
}
BLOCK = re.compile(r"(<!-- (\w[\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def contracts() -> list[dict[str, Any]]:
    """Return the import contracts of the project."""
    found = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return list(found)


def floors_of(layers: list[str], folder: Path) -> list[list[str]]:
    """Return the modules of each layer that exist, the highest first.

    Args:
        layers: as a contract has them, ``gangline.kube | (gangline.devices)``; the latter may be missing.
        folder: where the modules lie.
    """
    floors = [[name.strip(" ()").removeprefix("gangline.") for name in layer.split("|")] for layer in layers]
    there = [
        [name for name in floor if (folder / name).is_dir() or (folder / f"{name}.py").is_file()]
        for floor in floors
    ]
    return [floor for floor in there if floor]


def draw_floors(floors: list[list[str]]) -> str:
    """Return floors as a text drawing: what stands side by side is divided by walls."""
    rows = ["  │  ".join(floor) for floor in floors]
    width = max(map(len, rows)) + 2
    lines = [f"│ {row.center(width - 2)} │" for row in rows]
    drawn = f"\n├{'─' * width}┤\n".join(lines)
    return f"```\n┌{'─' * width}┐\n{drawn}\n└{'─' * width}┘\n```\n"


def floors() -> str:
    """Return the floors of the whole house."""
    layers = next(contract["layers"] for contract in contracts() if "containers" not in contract)
    return draw_floors(floors_of(layers, REPOSITORY / "src" / "gangline"))


def cluster_floors() -> str:
    """Return the floors of the one-machine cluster."""
    layers = next(contract["layers"] for contract in contracts() if "containers" in contract)
    return draw_floors(floors_of(layers, REPOSITORY / "src" / "gangline" / "cluster"))


def forbidden() -> str:
    """Return what the other contracts say, as a table."""
    lines = ["| rule | these | import none of |", "|---|---|---|"]
    for contract in contracts():
        if contract["type"] == "forbidden":
            sources, targets = (
                ", ".join(f"`{name.removeprefix('gangline.')}`" for name in contract[key])
                for key in ("source_modules", "forbidden_modules")
            )
            lines.append(f"| {contract['name']} | {sources} | {targets} |")
    return "\n".join(lines) + "\n"


def phases() -> str:
    """Return the phases of an MPIJob as a text drawing; numbers are those of the rules that lead there."""
    rules: dict[str, list[int]] = {}
    for number, row in enumerate(TRANSITIONS, 1):
        rules.setdefault(row.phase, []).append(number)
    told = {phase: f"{phase} ({', '.join(map(str, numbers))})" for phase, numbers in rules.items()}
    going = [text for phase, text in told.items() if phase not in FINAL]
    ends = [text for phase, text in told.items() if phase in FINAL]
    width = max(map(len, going)) + 2
    arrows = [""] * (len(going) - len(ends)) + [f" ──► {text}" for text in ends]
    lines = [f"│ {text:{width - 2}} │{arrow}" for text, arrow in zip(going, arrows, strict=True)]
    return "\n".join(["```", f"┌{'─' * width}┐", *lines, f"└{'─' * width}┘", "```"]) + "\n"


def transitions() -> str:
    """Return the table of transitions with what follows."""
    lines = ["| | when | phase | what follows |", "|---|---|---|---|"]
    lines += [
        f"| {number} | {row.when} | {row.phase} | {row.follows} |"
        for number, row in enumerate(TRANSITIONS, 1)
    ]
    return "\n".join(lines) + "\n"


def page(path: Path) -> str:
    """Return a page with its drawings made anew."""
    made = {
        "floors": floors,
        "cluster-floors": cluster_floors,
        "forbidden": forbidden,
        "phases": phases,
        "transitions": transitions,
    }
    text = path.read_text()
    missing = set(PAGES[path]) - {name for _, name, _ in BLOCK.findall(text)}
    if missing:
        raise SystemExit(f"{path}: lacks the marks of {', '.join(sorted(missing))}")
    return BLOCK.sub(lambda match: f"{match[1]}\n{made[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path))
