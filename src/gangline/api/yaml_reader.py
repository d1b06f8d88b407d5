"""YAML of others as plain values, within a budget, with the place of every field.

Values are built from the parser's events, one loop and no recursion: libyaml's own composer recurses in C and
falls over at some ten thousand levels. Every alias is a copy, counted as such before it is made; so neither
aliases of aliases nor merge keys make more than the budget has. Scalars mean what they mean to ``kubectl``
(go-yaml): a date is text, ``22:22`` is text, ``1e3`` is a number. Duplicate keys and tags of other languages
are refused. ``yaml`` is imported on first use, so that commands that read no file stay fast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from gangline.api.budgets import Budget, BudgetError, check_size
from gangline.errors import DuplicateKeyError, ManifestError

_TAG: Final = "tag:yaml.org,2002:"
# 12, .5, 1e3, -7.25E-2
_GO_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MERGE: Any = object()
_NO_KEY: Any = object()


class Position:
    """Where a value was written: line and column from 0, and those of what it holds.

    ``children`` is a list of places, or a dict of key -> (place of the key, place of the value).
    """

    __slots__ = ("children", "column", "is_text", "line")

    def __init__(self, line: int, column: int, is_text: bool = False) -> None:
        self.line = line
        self.column = column
        self.is_text = is_text
        """A plain value that is not empty: its own place says more than that of its key."""
        self.children: list[Position] | dict[str, tuple[Position, Position]] | None = None


class _Part:
    """A finished value with what it costs: for anchors, and on its way into its parent."""

    __slots__ = ("bytes", "levels", "place", "text", "value", "values")

    def __init__(self, value: Any, place: Position, text: str = "") -> None:
        self.value = value
        self.place = place
        self.text = text
        """A scalar as it was written."""
        self.values = 1
        self.bytes = len(text)
        self.levels = 0


class _Open:
    """An object or list that is being read."""

    __slots__ = ("anchor", "key", "key_place", "merged", "part")

    def __init__(self, part: _Part, anchor: str | None) -> None:
        self.part = part
        self.anchor = anchor
        self.key: Any = _NO_KEY
        self.key_place = part.place
        self.merged: dict[str, Any] = {}


def read_yaml(text: str | bytes, budget: Budget, *, file: str) -> Iterator[tuple[Any, Position]]:
    """Yield each document's value and place; nothing for empty documents.

    Raises:
        BudgetError: it is over a budget; with ``file:line:column``.
        ManifestError: it is no YAML that Kubernetes takes; with ``file:line:column`` and, for usual mistakes,
            a hint.

    Cost: 5 microseconds a value.
    """
    import yaml

    check_size(len(text), budget, where=file)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        events = yaml.parse(text, Loader=loader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                part = _Document(budget, file).read(events)
                if part.value is not None:
                    yield part.value, part.place
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ManifestError("the file is not UTF-8 text", where=f"{file}:{line}:1") from None
    except UnicodeEncodeError as error:
        line = str(text).count("\n", 0, error.start) + 1
        raise ManifestError("the file is not UTF-8 text", where=f"{file}:{line}:1") from None
    except yaml.reader.ReaderError as error:
        line = str(text).count("\n", 0, error.position) + 1
        raise ManifestError(f"broken YAML: {error.reason}", where=f"{file}:{line}:1") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be read"
        hint = _hint(problem, error.context or "")
        lines = str(text).splitlines()
        if mark and mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]:
            hint = "YAML is indented with spaces; replace the tab"
        raise ManifestError(f"broken YAML: {problem}", where=_where(file, mark), hint=hint) from None
    except yaml.YAMLError as error:
        raise ManifestError(f"broken YAML: {error}", where=file) from None


class _Document:
    """Builds one document from its events."""

    def __init__(self, budget: Budget, file: str) -> None:
        self._budget = budget
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, _Part | None] = {}
        """None while the anchor's value is being read."""
        self._values = 0
        self._bytes = 0
        self._scalars = _Scalars(file)

    def read(self, events: Iterator[Any]) -> _Part:
        import yaml

        root: _Part | None = None
        for event in events:
            kind = type(event)
            part = None
            if kind is yaml.ScalarEvent:
                part = self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event, {} if kind is yaml.MappingStartEvent else [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                part = self._end()
            elif kind is yaml.AliasEvent:
                part = self._alias(event)
            elif kind is yaml.DocumentEndEvent:
                break
            if part is None:
                continue
            if self._open:
                self._attach(part)
            else:
                root = part
        return root or _Part(None, Position(0, 0))

    def _count(self, values: int, size: int, mark: Any) -> None:
        self._values += values
        self._bytes += size
        budget = self._budget
        if self._values > budget.values_max:
            raise BudgetError("values", budget.values_max, self._values, where=_where(self._file, mark))
        if self._bytes > budget.expanded_bytes_max:
            where = _where(self._file, mark)
            raise BudgetError("expanded bytes", budget.expanded_bytes_max, self._bytes, where=where)

    def _check_levels(self, levels: int, mark: Any) -> None:
        if levels > self._budget.levels_max:
            raise BudgetError("levels", self._budget.levels_max, levels, where=_where(self._file, mark))

    def _scalar(self, event: Any) -> _Part:
        text = event.value
        self._count(1, len(text), event.start_mark)
        mark = event.start_mark
        part = _Part(self._scalars.value(event), Position(mark.line, mark.column, bool(text)), text)
        if event.anchor:
            self._anchors[event.anchor] = part
        return part

    def _begin(self, event: Any, value: Any) -> None:
        mark = event.start_mark
        if self._open and self._open[-1].key is _NO_KEY and isinstance(self._open[-1].part.value, dict):
            raise _error("a key must be plain text", self._file, mark)
        if event.tag and not event.tag.startswith(_TAG) and event.tag != "!":
            raise _error(f"the tag `{event.tag[:64]}` is not allowed in a manifest", self._file, mark)
        self._check_levels(len(self._open) + 1, mark)
        self._count(1, 0, mark)
        part = _Part(value, Position(mark.line, mark.column))
        part.place.children = {} if isinstance(value, dict) else []
        part.levels = 1
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(part, event.anchor))

    def _end(self) -> _Part:
        done = self._open.pop()
        part = done.part
        if done.merged:
            own = part.value
            part.value = {**{k: v for k, v in done.merged.items() if k not in own}, **own}
        if done.anchor:
            self._anchors[done.anchor] = part
        return part

    def _alias(self, event: Any) -> _Part:
        if event.anchor not in self._anchors:
            raise _error(f"broken YAML: found undefined alias '{event.anchor}'", self._file, event.start_mark)
        found = self._anchors[event.anchor]
        if found is None:
            raise _error("an alias contains itself", self._file, event.start_mark)
        self._count(found.values, found.bytes, event.start_mark)
        self._check_levels(len(self._open) + found.levels, event.start_mark)
        part = _Part(_copied(found.value), found.place, found.text)
        part.values, part.bytes, part.levels = found.values, found.bytes, found.levels
        return part

    def _attach(self, part: _Part) -> None:
        """Put a finished value into what it belongs to; in an object every other one is a key."""
        parent = self._open[-1]
        whole = parent.part
        whole.values += part.values
        whole.bytes += part.bytes
        whole.levels = max(whole.levels, part.levels + 1)
        children = whole.place.children
        value = "<<" if part.value is _MERGE else part.value
        if isinstance(children, list):
            whole.value.append(value)
            children.append(part.place)
        elif parent.key is _NO_KEY:
            parent.key = self._key(part, whole.value)
            parent.key_place = part.place
        elif parent.key is _MERGE:
            self._merge(parent, part)
            parent.key = _NO_KEY
        else:
            whole.value[parent.key] = value
            assert isinstance(children, dict)
            children[parent.key] = (parent.key_place, part.place)
            parent.key = _NO_KEY

    def _key(self, part: _Part, known: dict[str, Any]) -> Any:
        value = part.value
        if value is _MERGE:
            return _MERGE
        if isinstance(value, dict | list):
            raise _error("a key must be plain text", self._file, part.place)
        if value is None:
            raise _error("a key is empty", self._file, part.place)
        if isinstance(value, bool):
            key = str(value).lower()
        else:
            key = value if isinstance(value, str) else part.text
        if key in known:
            where = _where(self._file, part.place)
            raise DuplicateKeyError(key, part.place.line + 1, where=where, hint="remove one of the two")
        return key

    def _merge(self, parent: _Open, part: _Part) -> None:
        for item in part.value if isinstance(part.value, list) else [part.value]:
            if not isinstance(item, dict):
                raise _error("`<<` takes an object or a list of objects", self._file, part.place)
            for key, value in item.items():
                parent.merged.setdefault(key, value)


class _Scalars:
    """What a scalar means."""

    def __init__(self, file: str) -> None:
        import yaml

        self._file = file
        self._node = yaml.ScalarNode
        self._resolve: Callable[..., str] = yaml.resolver.Resolver().resolve
        self._constructor = yaml.constructor.SafeConstructor()

    def value(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag is None or tag == "!":
            if event.style:
                return text
            tag = self._resolve(self._node, text, event.implicit)
        tag = tag.removeprefix(_TAG)
        if tag in ("str", "value", "timestamp"):
            plain = not event.style and tag == "str" and event.tag is None
            return _number(text) if plain and _GO_FLOAT.fullmatch(text) else text
        if tag == "null":
            return None
        if tag == "merge":
            return _MERGE
        if tag == "bool" and text.lower() in self._constructor.bool_values:
            return self._constructor.bool_values[text.lower()]
        if tag in ("int", "float"):
            return self._number(event, tag)
        raise _error(
            f"the tag `{str(event.tag or tag)[:64]}` is not allowed in a manifest",
            self._file,
            event.start_mark,
        )

    def _number(self, event: Any, tag: str) -> Any:
        import yaml

        text = event.value
        if ":" in text:
            return text
        node = self._node(_TAG + tag, text)
        try:
            if tag == "int":
                return int(self._constructor.construct_yaml_int(node))
            value = float(self._constructor.construct_yaml_float(node))
        except (ValueError, IndexError, OverflowError, yaml.YAMLError):
            hint = "put it in quotes if it is text"
            raise _error(f"`{text[:64]}` is no number", self._file, event.start_mark, hint) from None
        if not math.isfinite(value):
            hint = "put it in quotes if it is text"
            raise _error(f"`{text[:64]}` cannot be written in JSON", self._file, event.start_mark, hint)
        return value


def _number(text: str) -> int | float | str:
    value = float(text)
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _copied(value: Any) -> Any:
    """Return a copy of plain values, as deep as the budget's levels at most."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _error(message: str, file: str, mark: Any, hint: str = "") -> ManifestError:
    return ManifestError(message, where=_where(file, mark), hint=hint)


def _where(file: str, mark: Any) -> str:
    return f"{file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else file


def _hint(problem: str, context: str) -> str:
    if "mapping values are not allowed" in problem:
        return "put a text that contains `: ` in quotes, or align this line with the ones above"
    if "could not find expected ':'" in problem or "did not find expected key" in problem:
        return "check that this line is indented like its neighbours and that every key ends with a colon"
    if "cannot start any token" in problem:
        return "put a text that begins with a special character in quotes"
    if "quoted scalar" in context:
        return "close the quotes"
    if "flow" in context:
        return "close the bracket, and separate the entries with commas"
    return "check the indentation of this line and of the one above"
