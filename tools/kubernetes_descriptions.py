"""Write what Kubernetes says about its own types and their fields, from the Go modules of a release.

``python tools/kubernetes_descriptions.py`` fetches the modules with Go and writes ``TABLE``; ``--check`` says
whether it is fresh. Read are the descriptions that Kubernetes generates for its own documents
(``types_swagger_doc_generated.go``, Apache License 2.0). ``gangline/api/descriptions.py`` explains the
notation.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from kubernetes_types import modules, write_or_check

RELEASE = "v0.35.4"
"""The release whose API is spoken."""
TABLE = Path(__file__).parents[1] / "src/gangline/api/kubernetes_descriptions.txt"
_FILE = "types_swagger_doc_generated.go"

# "v1", of "v1", "v1beta1", "v2"
_STABLE = re.compile(r"v\d+")
# "var map_PodSpec = map[string]string{"
_TYPE = re.compile(r"^var map_(\w+) = map\[string\]string\{\n(.*?)^\}", re.M | re.S)
# "	"volumes": "List of volumes that can be mounted ...","
_FIELD = re.compile(r'^\t("(?:[^"\\]|\\.)*"):\s+("(?:[^"\\]|\\.)*"),$', re.M)


def lines(name: str, source: str) -> Iterator[str]:
    """Yield the lines of the types of one folder, ``core/v1``."""
    for type_name, body in _TYPE.findall(source):
        if type_name.endswith("List"):
            continue
        found = {json.loads(field): json.loads(text) for field, text in _FIELD.findall(body)}
        yield f"[{name}.{type_name}] {_one_line(found.pop('', ''))}".rstrip()
        for field, text in found.items():
            if text:
                yield f"{field} {_one_line(text)}"


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def table() -> str:
    """Return the whole table."""
    homes = modules(RELEASE, "api", "apimachinery")
    found = [f"# Written by tools/kubernetes_descriptions.py from k8s.io/api {RELEASE}; do not edit."]
    paths = [homes["apimachinery"] / "pkg/apis/meta/v1" / _FILE, *sorted(homes["api"].glob(f"*/*/{_FILE}"))]
    for path in paths:
        version, group = path.parent.name, path.parents[1].name
        if _STABLE.fullmatch(version):
            found += lines(f"{group}/{version}", path.read_text(encoding="utf-8"))
    return "\n".join(found) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(TABLE, table, __doc__.splitlines()[0]))
