"""Patterns that users write, matched in time linear in the text: RE2, in which Kubernetes writes them.

Python's own expressions backtrack: ``^(a+)+$`` takes years for some forty letters. RE2 is imported when the
first pattern is read, which takes 7 ms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MEMORY_BYTES_MAX = 1 << 20
"""Of one pattern's program; RE2 refuses longer ones."""


class PatternError(ValueError):
    """A text is no pattern, or one that takes too much memory."""


def is_found(pattern: str, text: str) -> bool:
    """Whether the pattern matches somewhere in the text.

    One that cannot be read matches everything: it was refused with its definition, or stored before it was.
    """
    try:
        return compiled(pattern).search(text) is not None
    except PatternError:
        return True
    except UnicodeEncodeError:  # half a character, which no JSON text has
        return False


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """Return a pattern of RE2.

    Raises:
        PatternError: it is none, with RE2's words.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        said = error.args[0] if error.args else "cannot be read"
        raise PatternError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from None
    except UnicodeEncodeError:
        raise PatternError("is no text") from None
