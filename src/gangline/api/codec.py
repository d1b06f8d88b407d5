"""Manifests in and out: YAML and JSON, with the place of every field.

Reading is strict where YAML is loose: duplicate keys, tags of other languages and endless aliases are
refused, sizes are bounded. Scalars mean what they mean to ``kubectl`` (go-yaml): a date is text, ``22:22``
is text, ``1e3`` is a number. ``yaml`` is imported on first use, so that commands that read no file stay fast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from gangline.errors import FieldError, ManifestError

FILE_BYTES_MAX: Final = 16 << 20
NODES_MAX: Final = 1_000_000
"""Values in one document, counting an alias as often as it is used."""
DEPTH_MAX: Final = 100
_HARMLESS_CHARACTERS_MAX: Final = 4096
"""Every level of nesting takes a character; the C composer recurses and is safe to this depth."""

_TAG = "tag:yaml.org,2002:"
_GO_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SEGMENT = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest, and where it was written.

    Attributes:
        value: the object in wire form.
        file: the file's name as the user gave it.
        line: first line of the object, from 1.
    """

    value: dict[str, Any]
    file: str = ""
    line: int = 1
    _node: Any = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """``kind``, or an empty string."""
        return _text(self.value.get("kind"))

    @property
    def api_version(self) -> str:
        """``apiVersion``, or an empty string."""
        return _text(self.value.get("apiVersion"))

    @property
    def name(self) -> str:
        """``metadata.name``, or an empty string."""
        metadata = self.value.get("metadata")
        return _text(metadata.get("name")) if isinstance(metadata, dict) else ""

    def locate(self, path: str, *, key: bool = False) -> str:
        """Return ``file:line:column`` of a field path; of its nearest parent where the field is absent.

        The place is that of a plain value, or of the key before an object or list; ``key`` asks for the key.
        """
        mark = _mark(self._node, path, key) if self._node is not None else None
        return f"{self.file}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self.file}:{self.line}:1"

    def place(self, errors: list[FieldError]) -> list[FieldError]:
        """Return the errors with the place of each."""
        return [
            replace(error, where=self.locate(error.path, key=error.message.startswith("unknown field")))
            for error in errors
        ]


def load_file(path: Path | str) -> list[Document]:
    """Read every object of a YAML or JSON file.

    Raises:
        ManifestError: the file cannot be read, or is no valid manifest (with file, line and column).
    """
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ManifestError(f"cannot read `{path}`: {error.strerror}", where=str(path)) from error
    return load_documents(text, file=str(path))


def load_documents(text: str | bytes, *, file: str = "<stdin>") -> list[Document]:
    """Return the objects of a manifest in order; empty documents are passed over, ``List`` is taken apart.

    Raises:
        ManifestError: with ``file:line:column`` and, for usual mistakes, a hint.
    """
    if len(text) > FILE_BYTES_MAX:
        raise ManifestError(f"manifest is larger than {FILE_BYTES_MAX >> 20} MiB", where=file)
    documents: list[Document] = []
    for node in _compose(text, file):
        value = _Builder(file).build(node)
        if value is None:
            continue
        if not isinstance(value, dict):
            found = "a list" if isinstance(value, list) else "a plain value"
            raise ManifestError(
                f"a document of a manifest must be an object, this is {found}",
                where=_where(file, node.start_mark),
                hint="begin it with `apiVersion:` and `kind:`",
            )
        document = Document(value, file, node.start_mark.line + 1, node)
        documents += _take_apart(document)
    return documents


def dump_yaml(*values: Any) -> str:
    """Return the values as YAML documents, keys in their order, texts of several lines as blocks."""
    import yaml

    dumper = _dumper()
    return "".join(
        ("---\n" if index else "")
        + yaml.dump(value, Dumper=dumper, sort_keys=False, width=110, allow_unicode=True)
        for index, value in enumerate(values)
    )


def dump_json(value: Any) -> str:
    """Return the value as JSON with an indentation of four, as kubectl prints it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=4).decode()


def _take_apart(document: Document) -> Iterator[Document]:
    items = document.value.get("items")
    if document.kind != "List" or not isinstance(items, list):
        yield document
        return
    node = _child(document._node, "items")
    for item, item_node in zip(items, node.value, strict=True):
        if not isinstance(item, dict):
            raise ManifestError(
                "an item of a List must be an object", where=_where(document.file, item_node.start_mark)
            )
        yield Document(item, document.file, item_node.start_mark.line + 1, item_node)


def _compose(text: str | bytes, file: str) -> Iterator[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        if len(text) > _HARMLESS_CHARACTERS_MAX:
            _refuse_depth(text, file, loader)
        yield from yaml.compose_all(text, Loader=loader)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
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


def _refuse_depth(text: str, file: str, loader: Any) -> None:
    """Walk the parser's events, which takes no stack, before anything recurses."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                place = _where(file, event.start_mark)
                raise ManifestError(f"values are nested more than {DEPTH_MAX} deep", where=place)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


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


class _Builder:
    """Turns nodes into values; one for each document, for its count is the bound on aliases."""

    def __init__(self, file: str) -> None:
        import yaml

        self.file = file
        self.count = 0
        self.open: set[int] = set()
        self.scalars = yaml.constructor.SafeConstructor()

    def fail(self, message: str, node: Any, hint: str = "") -> ManifestError:
        return ManifestError(message, where=_where(self.file, node.start_mark), hint=hint)

    def build(self, node: Any) -> Any:
        self.count += 1
        if self.count > NODES_MAX:
            raise self.fail(f"the document has more than {NODES_MAX} values, aliases counted", node)
        if node.id == "scalar":
            return self.scalar(node)
        if id(node) in self.open:
            raise self.fail("an alias contains itself", node)
        if len(self.open) >= DEPTH_MAX:
            raise self.fail(f"values are nested more than {DEPTH_MAX} deep", node)
        self.open.add(id(node))
        if not node.tag.startswith(_TAG):
            raise self.fail(f"the tag `{node.tag}` is not allowed in a manifest", node)
        value = [self.build(item) for item in node.value] if node.id == "sequence" else self.mapping(node)
        self.open.discard(id(node))
        return value

    def mapping(self, node: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged = self.merge(value_node) | merged
                continue
            key = self.key(key_node)
            if key in result:
                raise self.fail(
                    f"the key `{key}` appears twice in one object", key_node, "remove one of the two"
                )
            result[key] = self.build(value_node)
        return {**{key: value for key, value in merged.items() if key not in result}, **result}

    def merge(self, node: Any) -> dict[str, Any]:
        value = self.build(node)
        result: dict[str, Any] = {}
        for part in reversed(value if isinstance(value, list) else [value]):
            if not isinstance(part, dict):
                raise self.fail("`<<` takes an object or a list of objects", node)
            result |= part
        return result

    def key(self, node: Any) -> str:
        if node.id != "scalar":
            raise self.fail("a key must be plain text", node)
        value = self.build(node)
        if isinstance(value, str):
            return value
        if value is None:
            raise self.fail("a key is empty", node)
        return str(node.value) if not isinstance(value, bool) else str(value).lower()

    def scalar(self, node: Any) -> Any:
        tag, text = node.tag.removeprefix(_TAG), node.value
        if tag in ("str", "value", "timestamp"):
            plain = not node.style and tag == "str"
            return _number(text) if plain and _GO_FLOAT.fullmatch(text) else text
        if tag == "null":
            return None
        if tag == "bool":
            return bool(self.scalars.construct_yaml_bool(node))
        if tag in ("int", "float"):
            return self.number(node, tag)
        raise self.fail(f"the tag `{node.tag}` is not allowed in a manifest", node)

    def number(self, node: Any, tag: str) -> Any:
        text = str(node.value)
        if ":" in text:
            return text
        try:
            if tag == "int":
                return int(self.scalars.construct_yaml_int(node))
            value = float(self.scalars.construct_yaml_float(node))
        except ValueError:
            raise self.fail(f"`{text}` is no number", node, "put it in quotes if it is text") from None
        if not math.isfinite(value):
            raise self.fail(f"`{text}` cannot be written in JSON", node, "put it in quotes if it is text")
        return value


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _where(file: str, mark: Any) -> str:
    return f"{file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else file


def _mark(node: Any, path: str, wants_key: bool) -> Any:
    """The place of a scalar itself, else of the key that leads to it."""
    mark = node.start_mark
    for match in _SEGMENT.finditer(path):
        segment = match.group(1) if match.group(1) is not None else match.group(2)
        if node.id == "sequence":
            if not segment.isdigit() or int(segment) >= len(node.value):
                return mark
            node = node.value[int(segment)]
            mark = node.start_mark
            continue
        entry = _entry(node, segment) if node.id == "mapping" else None
        if entry is None:
            return mark
        key, node = entry
        plain = node.id == "scalar" and node.value and not wants_key
        mark = node.start_mark if plain else key.start_mark
    return mark


def _entry(node: Any, name: str) -> Any:
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _child(node: Any, name: str) -> Any:
    entry = _entry(node, name)
    return entry[1] if entry else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dumper() -> Any:
    import yaml

    loose = re.compile(r"[-+]?[0-9.][0-9_.]*([eE][-+]?[0-9]+)?|[yYnN]|0o?[0-7]+")

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Plain YAML that go-yaml reads back as the same values."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        style = "|" if "\n" in text else "'" if loose.fullmatch(text) else None
        return dumper.represent_scalar(_TAG + "str", text, style=style)

    Dumper.add_representer(str, represent_text)
    return Dumper
