r"""What Kubernetes says about its own types and their fields, for ``kubectl explain``.

Read when a document is made, and not kept: half a megabyte of text. The table is written by
``tools/kubernetes_descriptions.py`` from a release of Kubernetes (Apache License 2.0). A line
``[core/v1.PodSpec] TEXT`` begins a type, named as in ``wire_types``; each line ``FIELD TEXT`` below it is a
field; a line break within a text is written ``\n``.
"""

from __future__ import annotations

from pathlib import Path

_TABLE = Path(__file__).with_name("kubernetes_descriptions.txt")


def descriptions() -> dict[str, dict[str, str]]:
    """Return the texts of each type by field; that of the type itself is under the empty name. Cost: 3 ms."""
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in _TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        name, _, text = line.partition(" ")
        text = text.replace("\\n", "\n").replace("\\\\", "\\")
        if name.startswith("["):
            fields = found[name.strip("[]")] = {"": text} if text else {}
        else:
            fields[name] = text
    return found
