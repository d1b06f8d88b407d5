"""Manifests in and out: YAML and JSON, with the place of every field.

``yaml_reader`` reads; here is what a manifest is: objects, one or several in a file, each with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.budgets import MANIFEST
from gangline.api.yaml_reader import Position, read_yaml
from gangline.errors import FieldError, ManifestError

# .spec, containers, [0], [team.example.com/name]
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
    _place: Position | None = field(default=None, repr=False, compare=False)

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
        if self._place is None:
            return f"{self.file}:{self.line}:1"
        return _where(self.file, _find(self._place, path, key))

    def place(self, errors: list[FieldError]) -> list[FieldError]:
        """Return the errors with the place of each."""
        return [replace(error, where=self.locate(error.path, key=error.is_unknown)) for error in errors]


def load_file(path: Path | str) -> list[Document]:
    """Read every object of a YAML or JSON file.

    Raises:
        ManifestError: the file cannot be read, or is no valid manifest (with file, line and column).
    """
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(MANIFEST.bytes_max + 1)
    except OSError as error:
        raise ManifestError(f"cannot read `{path}`: {error.strerror}", where=str(path)) from error
    return load_documents(text, file=str(path))


def load_documents(text: str | bytes, *, file: str = "<stdin>") -> list[Document]:
    """Return the objects of a manifest in order; empty documents are passed over, ``List`` is taken apart.

    Raises:
        ManifestError: with ``file:line:column`` and, for usual mistakes, a hint.
    """
    documents: list[Document] = []
    for value, place in read_yaml(text, MANIFEST, file=file):
        if not isinstance(value, dict):
            found = "a list" if isinstance(value, list) else "a plain value"
            raise ManifestError(
                f"a document of a manifest must be an object, this is {found}",
                where=_where(file, place),
                hint="begin it with `apiVersion:` and `kind:`",
            )
        documents += _take_apart(Document(value, file, place.line + 1, place))
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
    for index, item in enumerate(items):
        place = _find(document._place, f"items[{index}]", False) if document._place else Position(0, 0)
        if not isinstance(item, dict):
            raise ManifestError("an item of a List must be an object", where=_where(document.file, place))
        yield Document(item, document.file, place.line + 1, place)


def _where(file: str, place: Position) -> str:
    return f"{file}:{place.line + 1}:{place.column + 1}"


def _find(place: Position, path: str, wants_key: bool) -> Position:
    """Return the place of a plain value itself, else of the key that leads to it."""
    found = place
    for match in _SEGMENT.finditer(path):
        segment = match.group(1) if match.group(1) is not None else match.group(2)
        children = place.children
        if isinstance(children, list):
            if not (segment.isascii() and segment.isdigit()) or int(segment) >= len(children):
                return found
            found = place = children[int(segment)]
            continue
        if children is None or segment not in children:
            return found
        key, place = children[segment]
        found = place if place.is_text and not wants_key else key
    return found


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
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    return Dumper
