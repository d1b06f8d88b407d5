"""Write the table of Kubernetes' own types from the Go modules of a release.

``python tools/kubernetes_types.py`` fetches the modules with Go and writes ``TABLE``; ``--check`` says
whether the table is fresh. A new release is a change of ``RELEASE``.

Read are the struct tags of ``types.go``, which hold all that the server needs: the name in JSON, the number
in protobuf, whether a zero is shown, and how strategic merge joins a list. The notation of the table is
explained in ``gangline/api/wire_types.py``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

RELEASE = "v0.37.1"
EARLIER = "v0.35.4"
"""A field that ``RELEASE`` no longer has is kept as this release had it: objects of both are read."""

TABLE = Path(__file__).parents[1] / "src/gangline/api/kubernetes_types.txt"
WIDTH = 140

# "v1", of "v1", "v1beta1", "v2"
_STABLE = re.compile(r"v\d+")
# "type PodSpec struct {"
_STRUCT = re.compile(r"^type (\w+) struct ?\{(?:\n(.*?)^)?\}", re.M | re.S)
# "type PodPhase string", "type ResourceList map[ResourceName]resource.Quantity"
_ALIAS = re.compile(r"^type (\w+) ([^\s{}]+)\s*$", re.M)
# "	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`"; an embedded one has no name of its own
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([^\s`]+)\s+`([^`]*)`", re.M)
# "json" and "name,omitempty" of `json:"name,omitempty"`
_TAG = re.compile(r'(\w+):"([^"]*)"')
# "const GroupName = "rbac.authorization.k8s.io""
_GROUP = re.compile(r'GroupName = "([^"]*)"')

_LETTERS = {
    "string": "s",
    "int": "i",
    "int32": "i",
    "int64": "i",
    "uint32": "i",
    "bool": "b",
    "[]byte": "y",
    "metav1.Time": "T",
    "metav1.MicroTime": "M",
    "resource.Quantity": "Q",
    "intstr.IntOrString": "I",
    "metav1.FieldsV1": "F",
    "runtime.RawExtension": "R",
    "runtime.Object": "R",
    "types.UID": "s",
    "types.NodeName": "s",
    "types.NamespacedName": "s",
    "float64": "f",
    "JSON": "R",
    "JSONSchemaPropsOrArray": "O",
    "JSONSchemaPropsOrBool": "B",
    "JSONSchemaPropsOrStringArray": "N",
}
_PLAIN = {"s", "i", "b"}
_MODULES = {
    "api": "*/*/types.go",
    "apiextensions-apiserver": "pkg/apis/apiextensions/v1/types.go",
    "kube-aggregator": "pkg/apis/apiregistration/v1/types.go",
}
"""Modules of ``k8s.io`` that have the types of stored kinds, and where."""
_NOT_STORED = ("admission", "apidiscovery", "imagepolicy")
"""Groups whose kinds are sent between servers only."""


@dataclass
class Version:
    """The types of one group version: struct bodies and what other names stand for.

    Attributes:
        name: ``core/v1``, as the folder is called.
        group: the name of the group in the API, empty for core.
    """

    name: str
    group: str = ""
    structs: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def read(self, source: str) -> None:
        """Add the types of one Go file."""
        # Comments and blank lines may stand between a field and the next, and hold backquotes.
        lines = [line for line in source.splitlines() if not line.lstrip().startswith("//")]
        code = "\n".join(lines) + "\n"
        self.structs |= dict(_STRUCT.findall(code))
        if match := _GROUP.search(code):
            self.group = match[1]
        self.aliases |= {name: target for name, target in _ALIAS.findall(code) if target != "struct"}


def modules(release: str, *names: str) -> dict[str, Path]:
    """Return where Go has modules of a release, by their names below ``k8s.io``."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "go.mod").write_text("module tables\n", encoding="utf-8")
        wanted = [f"k8s.io/{name}@{release}" for name in names]
        command = ["go", "mod", "download", "-json", *wanted]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"cannot fetch {' '.join(wanted)}: {run.stderr or run.stdout}")
    one_after_another = run.stdout.replace("}\n{", "},{")
    found = json.loads(f"[{one_after_another}]")
    return {module["Path"].removeprefix("k8s.io/"): Path(module["Dir"]) for module in found}


def read_release(release: str) -> dict[str, Version]:
    """Return every group version of a release that the table has, by name."""
    homes = modules(release, *_MODULES, "apimachinery")
    versions = {"meta/v1": Version("meta/v1")}
    folders = [("meta/v1", homes["apimachinery"] / "pkg/apis/meta/v1")]
    for folder in sorted(
        path.parent for module, pattern in _MODULES.items() for path in homes[module].glob(pattern)
    ):
        group = folder.parent.name
        # The kinds of a group that is not stable yet are in the table where no stable version has them.
        if group not in _NOT_STORED and (
            _STABLE.fullmatch(folder.name) or group in ("scheduling", "resource")
        ):
            name = f"{group}/{folder.name}"
            versions[name] = Version(name)
            folders.append((name, folder))
    for name, folder in folders:
        for path in sorted(folder.glob("*.go")):
            if not path.name.startswith(("zz_", "generated", "types_swagger")) and "_test" not in path.name:
                versions[name].read(path.read_text(encoding="utf-8"))
    return versions


class Writer:
    """Lines of the table for the versions of one release."""

    def __init__(self, versions: dict[str, Version]) -> None:
        self.versions = versions

    def messages(self, version: Version) -> dict[str, list[str]]:
        """Return the fields of every message of a version; types without protobuf numbers are left out."""
        found = {}
        for name, body in version.structs.items():
            fields = list(self._fields(version, body))
            if (fields or not body.strip()) and not name.endswith("List"):
                found[name] = fields
        return found

    def _fields(self, version: Version, body: str) -> Iterator[str]:
        for _, go_type, tags in _FIELD.findall(body):
            tag = dict(_TAG.findall(tags))
            if "protobuf" not in tag or "json" not in tag:
                continue
            name, *options = tag["json"].split(",")
            if name == "-":
                continue
            number = tag["protobuf"].split(",")[1]
            is_optional = go_type.startswith("*")
            shape, kind = self._type(version, go_type.lstrip("*"))
            is_always = kind in _PLAIN and not shape and not {"omitempty", "omitzero"} & set(options)
            flag = "?" if is_optional else "!" if is_always else ""
            strategy = tag.get("patchStrategy", "").split(",")
            merge = f"@{tag.get('patchMergeKey', '')}" if "merge" in strategy else ""
            retain = "^" if "retainKeys" in strategy else ""
            yield f"{name or '~'}={number}{shape}{kind}{flag}{merge}{retain}"

    def _type(self, version: Version, go_type: str) -> tuple[str, str]:
        """Return shape and type letter or message of a Go type."""
        if go_type in _LETTERS:
            return "", _LETTERS[go_type]
        if go_type.startswith("[]"):
            return "*", self._type(version, go_type[2:].lstrip("*"))[1]
        # "map[string][]byte"
        if match := re.fullmatch(r"map\[[\w.]+\](.+)", go_type):
            shape, kind = self._type(version, match[1])
            return "%", "L" if shape == "*" else kind
        package, _, name = go_type.rpartition(".")
        home = self._home(version, package, name)
        if name in home.aliases:
            return self._type(home, home.aliases[name])
        if name in ("Time", "MicroTime", "FieldsV1") and home.name == "meta/v1":
            return "", _LETTERS[f"metav1.{name}"]
        return "", name if home is version else f"{home.name}.{name}"

    def _home(self, version: Version, package: str, name: str) -> Version:
        """Return the version that a package's short name stands for: ``v1``, ``metav1``, ``corev1``."""
        if not package:
            return version
        short_names = {home.name.replace("/", ""): home for home in self.versions.values()}
        either = [short_names["corev1"], short_names["metav1"]]
        for home in [short_names[package]] if package in short_names else either:
            if name in home.structs or name in home.aliases:
                return home
        raise SystemExit(f"{version.name}: no such type {package}.{name}")


def join(newest: dict[str, list[str]], earlier: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the newest messages, with messages and fields that only an earlier release had."""
    joined = dict(newest)
    for name, fields in earlier.items():
        known = {text.partition("=")[0] for text in newest.get(name, ()) if not text.startswith("~")}
        known |= {text for text in newest.get(name, ()) if text.startswith("~")}
        missing = [text for text in fields if text.partition("=")[0] not in known and text not in known]
        joined[name] = [*newest.get(name, ()), *missing]
    return joined


def table() -> str:
    """Return the whole table."""
    newest, earlier = read_release(RELEASE), read_release(EARLIER)
    blocks = [f"# Written by tools/kubernetes_types.py from k8s.io/api {RELEASE} and {EARLIER}; do not edit."]
    for name in sorted(newest | earlier):
        sets = [
            Writer(release).messages(release[name]) if name in release else {}
            for release in (newest, earlier)
        ]
        messages = join(*sets)
        if not messages:
            continue
        blocks.append(f"[{name} {(newest.get(name) or earlier[name]).group}]")
        for message, fields in sorted(messages.items()):
            line = f"{message}: {' '.join(fields)}".rstrip()
            blocks += textwrap.wrap(
                line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(blocks) + "\n"


def write_or_check(path: Path, table: Callable[[], str], doing: str) -> int:
    """Write a table, or say with ``--check`` whether it is fresh; return the exit code."""
    parser = argparse.ArgumentParser(description=doing)
    parser.add_argument("--check", action="store_true", help="write nothing, say whether it is fresh")
    options = parser.parse_args()
    made = table()
    if options.check:
        is_fresh = path.read_text(encoding="utf-8") == made
        print("fresh" if is_fresh else f"stale: run python {sys.argv[0]}")
        return 0 if is_fresh else 1
    path.write_text(made, encoding="utf-8")
    print(f"{len(made.splitlines())} lines in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(write_or_check(TABLE, table, __doc__.splitlines()[0]))
