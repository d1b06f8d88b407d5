"""The one message of a run that this machine lacks something for."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from gangline.cluster.trials.missing import Missing
from gangline.errors import UserError

WIDTH_MAX = 100
"""Columns of a message on a wide terminal."""


class MissingError(UserError):
    """This machine lacks what the files ask for."""

    code = "missing"


def refuse(missing: Sequence[Missing], command: str, *, is_tried: bool) -> None:
    """Refuse to run what lacks something, in one message with the command that runs it anyway.

    Args:
        missing: of ``find_missing``.
        command: that the user typed, with ``--try``.
        is_tried: whether he typed it with ``--try``, so that only what has no remedy is in the way.

    Raises:
        MissingError: with everything that is missing.
    """
    hopeless = [one for one in missing if not one.remedy]
    listed = hopeless if is_tried else missing
    if not listed:
        return
    count = "1 thing" if len(listed) == 1 else f"{len(listed)} things"
    lines = [f"cannot run this here: {count} missing", *(_bullet(one.what) for one in listed)]
    remedies = list(dict.fromkeys(one.remedy for one in missing if one.remedy))
    ways = list(dict.fromkeys(one.way for one in hopeless if one.way))
    if not hopeless:
        hint = f"{command}\n      runs it here, small: {_filled(', '.join(remedies), 28)}"
        others = list(dict.fromkeys(one.way for one in missing if one.way))
        hint += "".join(f"\n      {_filled(way)}" for way in others)
        hint += "\n      --context CONTEXT runs it on a cluster that has them"
    else:
        hint = "\n      ".join(_filled(way) for way in ways) or "--context CONTEXT runs it on another cluster"
    raise MissingError("\n".join(lines), hint=hint)


def _bullet(text: str) -> str:
    return textwrap.fill(
        text,
        min(shutil.get_terminal_size().columns, WIDTH_MAX),
        initial_indent="  - ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _filled(text: str, used: int = 6) -> str:
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=" " * used,
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).strip()
