"""Read what ``nvidia-smi topo -m`` prints.

The header names the columns: GPUs, network cards, then CPU affinity, NUMA affinity and GPU NUMA ID, of which
old drivers print fewer. Rows follow for GPUs and network cards, then a legend. Network cards say which GPUs
share a PCIe switch even where an NVLink hides it: GPUs that are ``PIX`` or ``PXB`` from one card do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gangline.errors import UserError
from gangline.topology.links import OLD_NAMES, SAME_SWITCH, SELF, is_link
from gangline.topology.machine import Machine, grouped, machine_from_matrix

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU\d+\Z")
_HINT = "give it the output of `nvidia-smi topo -m`, whole"


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    links: tuple[str, ...]
    rest: tuple[str, ...]


def read_smi(text: str, *, model: str, source: str = "nvidia-smi topo -m") -> Machine:
    """Return the machine that a print of ``nvidia-smi topo -m`` shows.

    Args:
        text: the print.
        model: product name of the GPUs, or the machine's name; the print has neither.
        source: where the text comes from, for messages.

    Raises:
        UserError: it is no such print; ``where`` has the line.
    """
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if _is_header(line.split())), None)
    if start is None:
        raise UserError(f"{source} has no header that begins with the column `GPU0`", hint=_HINT)
    columns = _columns(lines[start])
    rows = [_row(line, number, columns, source) for number, line in _body(lines, start)]
    gpus = [name for name in columns if _GPU.match(name)]
    by_name = {row.name: row for row in rows}
    if missing := [name for name in gpus if name not in by_name]:
        raise UserError(f"{source} has a column but no row for {', '.join(missing)}", hint=_HINT)
    picked = [columns.index(name) for name in gpus]
    links = tuple(tuple(by_name[name].links[column] for column in picked) for name in gpus)
    cards = [column for column, name in enumerate(columns) if name not in gpus]
    return machine_from_matrix(
        model,
        links,
        numa=_numa([by_name[name] for name in gpus]),
        switches=_switches([by_name[name].links for name in gpus], picked, cards),
        what=source,
    )


def _is_header(words: list[str]) -> bool:
    return words[:1] == ["GPU0"] and SELF not in words


def _columns(header: str) -> list[str]:
    """Return the names of the columns that hold links: everything before the affinities."""
    words = header.split()
    ends = [words.index(word) for word in ("CPU", "NUMA") if word in words]
    return words[: min(ends, default=len(words))]


def _body(lines: list[str], start: int) -> list[tuple[int, str]]:
    """Return the rows under the header with their line numbers, up to the legend."""
    body: list[tuple[int, str]] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if line.strip().lower().startswith(("legend", "nic legend")):
            break
        if line.strip():
            body.append((number, line))
    return body


def _row(line: str, number: int, columns: list[str], source: str) -> _Row:
    name, *cells = line.split()
    links = tuple(OLD_NAMES.get(cell, cell) for cell in cells[: len(columns)])
    where = f"{source}:{number}"
    if name not in columns:
        raise UserError(f"row `{name}` has no column", where=where, hint=_HINT)
    if len(links) < len(columns):
        raise UserError(
            f"row `{name}` has {len(links)} links, the header has {len(columns)} columns",
            where=where,
            hint=_HINT,
        )
    for column, link in zip(columns, links, strict=True):
        if (link != SELF) if column == name else not is_link(link):
            legend = "X" if column == name else "NV1 ... NV99, PIX, PXB, PHB, NODE or SYS"
            raise UserError(f"link from {name} to {column} is `{link}`, must be {legend}", where=where)
    return _Row(name, links, tuple(cells[len(columns) :]))


def _numa(rows: list[_Row]) -> tuple[int, ...] | None:
    """Return the NUMA nodes, or ``None`` unless every GPU tells one (``N/A`` tells none)."""
    cells = [row.rest[1] if len(row.rest) > 1 else "" for row in rows]
    return tuple(int(cell) for cell in cells) if all(cell.isdigit() for cell in cells) else None


def _switches(links: list[tuple[str, ...]], gpus: list[int], cards: list[int]) -> tuple[int, ...]:
    """Return a switch number for each GPU: shared with a GPU at most PXB away, directly or over a card."""

    def together(first: int, second: int) -> bool:
        ways = [(links[first][card], links[second][card]) for card in cards]
        return links[first][gpus[second]] in SAME_SWITCH or any(
            one in SAME_SWITCH and other in SAME_SWITCH for one, other in ways
        )

    return grouped(len(links), together)
