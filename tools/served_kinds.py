"""Write the table of the kinds that a release of Kubernetes serves, from its module ``k8s.io/kubernetes``.

``python tools/served_kinds.py`` fetches the module with Go and writes ``TABLE``; ``--check`` says whether the
table is fresh. Read are the discovery documents of the release (``api/discovery``), and the registry's
strategies for which kinds count ``metadata.generation``. The notation of the table is explained in
``gangline/cluster/server/resources.py``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes_types import modules, write_or_check

RELEASE = "v1.35.4"
"""The release whose API is spoken."""
TABLE = Path(__file__).parents[1] / "src/gangline/cluster/server/served_kinds.txt"

# "v1", not "v1beta1"
_STABLE = re.compile(r"v\d+")
# "ReturnDeletedObject: true,", in a store
_RETURNED = re.compile(r"\bReturnDeletedObject: +true\b")
# "pod.Generation = 1", in a strategy
_COUNTS = re.compile(r"\.Generation = 1\b")
_FULL_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
_COUNTED_ELSEWHERE = {"customresourcedefinition"}
"""Kinds that count generations in a strategy of another module."""


def counted(source: Path) -> set[str]:
    """Return the singular names of the kinds that count their generations."""
    strategies = (source / "pkg/registry").glob("*/*/strategy.go")
    found = {path.parent.name for path in strategies if _COUNTS.search(path.read_text(encoding="utf-8"))}
    return found | _COUNTED_ELSEWHERE


def returned(source: Path) -> set[str]:
    """Return the singular names of the kinds whose deletion answers with the object."""
    stores = (source / "pkg/registry").glob("*/*/storage/storage.go")
    return {path.parents[1].name for path in stores if _RETURNED.search(path.read_text(encoding="utf-8"))}


def documents(source: Path) -> Iterator[dict[str, Any]]:
    """Yield the resource list of every stable group and version, the core first."""
    folder = source / "api/discovery"
    for path in [folder / "api__v1.json", *sorted(folder.glob("apis__*__*.json"))]:
        if _STABLE.fullmatch(path.stem.rpartition("__")[2]):
            yield json.loads(path.read_text(encoding="utf-8"))


def line(resource: dict[str, Any], subresources: list[str], marks: dict[str, set[str]]) -> str:
    """Return the line of one kind."""
    kind = resource["kind"]
    if resource["singularName"] not in ("", kind.lower()):
        raise SystemExit(f"the singular of {kind} is {resource['singularName']}")
    words = [resource["name"], kind]
    if not resource["namespaced"]:
        words.append("cluster")
    words += [mark for mark, kinds in marks.items() if kind.lower() in kinds]
    verbs = set(resource["verbs"])
    words += [
        f"{name}={','.join(values)}"
        for name, values in (
            ("short", resource.get("shortNames") or ()),
            ("in", resource.get("categories") or ()),
            ("sub", subresources),
            ("only", sorted(verbs) if len(verbs) < len(_FULL_VERBS) / 2 else ()),
            ("not", sorted(_FULL_VERBS - verbs) if len(verbs) > len(_FULL_VERBS) / 2 else ()),
        )
        if values
    ]
    return " ".join(words)


def table() -> str:
    """Return the whole table."""
    source = modules(RELEASE, "kubernetes")["kubernetes"]
    marks = {"generation": counted(source), "returned": returned(source)}
    blocks = [f"# Written by tools/served_kinds.py from k8s.io/kubernetes {RELEASE}; do not edit."]
    for document in documents(source):
        blocks.append(f"[{document['groupVersion']}]")
        resources = document["resources"]
        for resource in sorted(resources, key=lambda found: found["name"]):
            name = resource["name"]
            if "/" in name:
                continue
            parts = sorted(r["name"].partition("/")[2] for r in resources if r["name"].startswith(f"{name}/"))
            blocks.append(line(resource, parts, marks))
    return "\n".join(blocks) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(TABLE, table, __doc__.splitlines()[0]))
