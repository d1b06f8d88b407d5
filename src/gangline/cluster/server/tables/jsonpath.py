r"""The part of JSONPath that printer columns and scale paths use.

Members (``.a.b``, ``['a']``, ``.a\\.b``), indexes (``[0]``, ``[-1]``), slices (``[-1:]``, ``[0:2]``), all
items (``[*]``) and filters that compare one member with a text or number (``[?(@.type=="Ready")]``). Anything
else is an error when the path is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_PART = re.compile(
    r"""\.?(?P<name>(?:[A-Za-z0-9_$/-]|\\.)+)"""
    r"""|\.?\[\s*(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\s*\]"""
    r"""|\.?\[(?P<index>-?\d+)\]"""
    r"""|\.?\[(?P<start>-?\d+)?(?P<colon>:)(?P<end>-?\d+)?\]"""
    r"""|\.?\[(?P<all>\*)\]|\.(?P<star>\*)"""
    r"""|\.?\[\?\(\s*@\.(?P<member>[A-Za-z0-9_./-]+)\s*(?P<op>==|!=)\s*(?P<want>'[^']*'|"[^"]*"|[-\w.]+)\s*\)\]"""
)

CHARACTERS_MAX = 1024
"""Longest path that is read; a long one of a printer column has 100."""

Step = Callable[[list[Any]], list[Any]]


@lru_cache(maxsize=256)
def parse_jsonpath(text: str) -> tuple[Step, ...]:
    """Return the steps of a path such as ``.status.conditions[?(@.type=="Ready")].status``.

    Raises:
        ValueError: the path uses what is not offered.

    Cost: O(text); results are kept for the 256 latest paths.
    """
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"a JSONPath has at most {CHARACTERS_MAX} characters, found {len(text)}")
    rest = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    while rest and rest != ".":
        match = _PART.match(rest)
        if not match:
            raise ValueError(f"unsupported JSONPath `{text}` at `{rest}`")
        steps.append(_step(match))
        rest = rest[match.end() :]
    return tuple(steps)


def find_all(path: str, value: Any) -> list[Any]:
    """Return every value that the path leads to, in order; missing members give none.

    Raises:
        ValueError: the path uses what is not offered.

    Cost: O(values visited).
    """
    values = [value]
    for step in parse_jsonpath(path):
        values = step(values)
    return values


def _step(match: re.Match[str]) -> Step:
    if match["name"] is not None:
        return _member(re.sub(r"\\(.)", r"\1", match["name"]))
    if match["quoted"] is not None:
        return _member(match["quoted"])
    if match["index"] is not None:
        index = int(match["index"])
        return lambda values: [
            item[index] for item in values if isinstance(item, list) and -len(item) <= index < len(item)
        ]
    if match["colon"]:
        part = slice(*(int(match[name]) if match[name] else None for name in ("start", "end")))
        return lambda values: [child for item in values if isinstance(item, list) for child in item[part]]
    if match["all"] or match["star"]:
        return lambda values: [child for item in values for child in _children(item)]
    member, want, equal = match["member"].split("."), match["want"].strip("'\""), match["op"] == "=="
    return lambda values: [
        child
        for item in values
        for child in _children(item)
        if (_text(_follow(child, member)) == want) is equal
    ]


def _member(name: str) -> Step:
    return lambda values: [item[name] for item in values if isinstance(item, dict) and name in item]


def _children(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return list(value.values()) if isinstance(value, dict) else []


def _follow(value: Any, path: list[str]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
