"""What commands print on standard output: tables that fit the terminal, JSON, YAML, names."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])
GAP = "   "
ARENAS_GAP = "  "
FIELD_INDENT = 16
"""Column at which the text of a field begins."""
LOWER_INDENT = 4


def program_name() -> str:
    """Return the name that the command line was run by: ``gangline``, or ``arena``."""
    context = click.get_current_context(silent=True)
    return (context.find_root().info_name if context else None) or "gangline"


def is_arena() -> bool:
    """Return whether the program is called `arena`: its users' scripts read its layout."""
    return program_name() == "arena"


def output_option(function: F) -> F:
    """Add ``-o wide|json|yaml|name``, passed on as ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["wide", "json", "yaml", "name"]),
        default=None,
        help="Show more columns, or print JSON, YAML or names only.",
    )(function)


class Column(msgspec.Struct, frozen=True):
    """One column of a table.

    Attributes:
        title: its heading.
        least: width to which it may be cut on a narrow terminal; 0 means never cut.
        rank: on a narrow terminal the column with the highest rank goes first; 0 never goes.
        wide: shown with ``-o wide`` only.
    """

    title: str
    least: int = 0
    rank: int = 0
    wide: bool = False


def render_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None, wide: bool = False
) -> list[str]:
    """Return the lines of a table. Rows never wrap: cells are cut with ``…``, then columns are left out.

    Args:
        columns: headings and how they give way.
        rows: cells in the order of the columns.
        width: characters of the terminal; ``None`` for no bound.
        wide: include the columns that only ``-o wide`` shows.
    """
    shown = [index for index, column in enumerate(columns) if wide or not column.wide]
    widths = {
        index: max(len(columns[index].title), *(len(row[index]) for row in rows), 0)
        if rows
        else len(columns[index].title)
        for index in shown
    }
    if width is not None:
        _fit(columns, shown, widths, width)
    lines = [_line([columns[index].title for index in shown], [widths[index] for index in shown])]
    lines += [_line([row[index] for index in shown], [widths[index] for index in shown]) for row in rows]
    return lines


def _fit(columns: Sequence[Column], shown: list[int], widths: dict[int, int], width: int) -> None:
    """Cut the widest cells first, then leave columns out, until the table fits or nothing more can go.

    What a column that is left out frees beyond need goes to those that were cut, the last ones first.
    """
    wanted = dict(widths)

    def excess() -> int:
        return sum(widths[index] for index in shown) + len(GAP) * (len(shown) - 1) - width

    while excess() > 0:
        cuttable = [index for index in shown if 0 < columns[index].least < widths[index]]
        if cuttable:
            widest = max(cuttable, key=lambda index: widths[index])
            widths[widest] = max(columns[widest].least, widths[widest] - excess())
            continue
        droppable = [index for index in shown if columns[index].rank > 0]
        if not droppable:
            return
        shown.remove(max(droppable, key=lambda index: columns[index].rank))
    for index in reversed(shown):
        widths[index] = min(wanted[index], widths[index] - excess())


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    cut = [
        cell if len(cell) <= width else cell[: width - 1] + "…"
        for cell, width in zip(cells, widths, strict=True)
    ]
    gap = ARENAS_GAP if is_arena() else GAP
    return gap.join(cell.ljust(width) for cell, width in zip(cut, widths, strict=True)).rstrip()


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, wide: bool = False) -> None:
    """Print a table, fitted to the terminal when standard output is one."""
    print("\n".join(render_table(columns, rows, width=terminal_width(), wide=wide)))


def print_ruled_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, wide: bool) -> None:
    """Print a table below a heading; in arena's layout indented, with a row of dashes under the titles."""
    if not is_arena():
        print_table(columns, rows, wide=wide)
        return
    dashes = ["-" * len(column.title) for column in columns]
    lines = render_table(columns, [dashes, *rows], width=None, wide=wide)
    print("\n".join(f"{ARENAS_GAP}{line}" for line in lines))


def _columns() -> int:
    return terminal_width() or shutil.get_terminal_size().columns


def _wrapped(text: str, indent: int = 0) -> list[str]:
    width = max(_columns() - indent, 20)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def print_field(title: str, text: str) -> None:
    """Print a text beside its title, on as many lines as it needs; words are not cut.

    A line has the columns of the terminal; where there is none those that COLUMNS says, else 80. A text with
    a word that is too long beside the title begins below it.
    """
    lines = _wrapped(text, FIELD_INDENT) or [""]
    if max(map(len, lines)) + FIELD_INDENT > _columns():
        print(f"  {title}")
        print("\n".join(f"{'':{LOWER_INDENT}}{line}" for line in _wrapped(text, LOWER_INDENT)))
        return
    for index, line in enumerate(lines):
        print(f"  {title if index == 0 else '':{FIELD_INDENT - 2}}{line}".rstrip())


def print_command(title: str, command: str) -> None:
    """Print a command, of words without spaces, beside its title; in several lines where it is too long.

    It works as it is pasted: a line that goes on ends with a backslash.
    """
    *first, last = _wrapped(command, FIELD_INDENT + len(" \\"))
    for index, line in enumerate([*(f"{line} \\" for line in first), last]):
        print(f"  {title if index == 0 else '':{FIELD_INDENT - 2}}{line}")


def print_text(text: str) -> None:
    """Print a sentence, on as many lines as it needs, as :func:`print_field` does."""
    print("\n".join(_wrapped(text)))


def terminal_width() -> int | None:
    """Return the characters in a line of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_value(value: Any, output: str) -> None:
    """Print a value as JSON or YAML."""
    if output == "yaml":
        from gangline.api.codec import dump_yaml

        print(dump_yaml(value), end="")
        return
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def say(line: str) -> None:
    """Print a line for people, on standard error."""
    print(line, file=sys.stderr, flush=True)
