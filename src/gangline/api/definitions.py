"""Whose a custom resource definition is that a cluster serves, and what it says otherwise than ours. Pure.

Ours carry a fingerprint of what they say in an annotation. One that was changed or replaced afterwards, by
``kubectl apply`` for instance, keeps the annotation and says something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Obj = dict[str, Any]

ANNOTATION = "gangline.dev/definition"
DIFFERENCES_MAX = 4
"""So many are named; the others are counted."""

_OF_EVERY_OBJECT = ("apiVersion", "kind", "metadata")

State = Literal["ours", "earlier", "changed", "foreign"]


@dataclass(frozen=True, slots=True)
class DefinitionOrigin:
    """What a definition is, beside ours of the same name.

    Attributes:
        state: ``ours``: it says what ours says, whoever wrote it; ``earlier``: as another release of Gangline
            wrote it; ``changed``: Gangline wrote it, and somebody else changed or replaced it; ``foreign``.
        name: of the definition.
        owner: who wrote it, in words.
        differences: what it says otherwise, in words; the first few.
    """

    state: State
    name: str
    owner: str = ""
    differences: tuple[str, ...] = ()

    @property
    def is_safe(self) -> bool:
        """Whether Gangline may write its own over it unasked."""
        return self.state in ("ours", "earlier")

    @property
    def message(self) -> str:
        """What is wrong, in one line; empty where nothing is."""
        if self.is_safe:
            return ""
        verb = "was changed" if self.state == "changed" else "is not Gangline's"
        return f"definition {self.name} {verb}, {self.owner}: {'; '.join(self.differences)}"


def stamped(crd: Obj) -> Obj:
    """Return a definition with its fingerprint in the annotation."""
    metadata = crd["metadata"]
    notes = {**(metadata.get("annotations") or {}), ANNOTATION: fingerprint(crd)}
    return {**crd, "metadata": {**metadata, "annotations": notes}}


def fingerprint(crd: Obj) -> str:
    """Return a hash of all that a definition says and no server fills in."""
    text = msgspec.json.encode(_said(crd), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def _said(crd: Obj) -> Obj:
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    return {
        "group": spec.get("group"),
        "scope": spec.get("scope"),
        "names": {key: names.get(key) for key in ("plural", "kind", "singular", "shortNames")},
        "versions": [_version(version) for version in spec.get("versions") or []],
    }


def _version(version: Obj) -> Obj:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    kept = {key: version.get(key) for key in ("name", "served", "storage", "subresources")}
    return kept | {"schema": schema}


def judge(ours: Obj, live: Obj) -> DefinitionOrigin:
    """Return whose the definition is that a cluster serves under the name of ours."""
    name = ours["metadata"]["name"]
    says = fingerprint(live)
    if says == fingerprint(ours):
        return DefinitionOrigin("ours", name)
    note = (live["metadata"].get("annotations") or {}).get(ANNOTATION)
    if note == says or (note is None and _is_of_a_release_without_notes(ours, live)):
        return DefinitionOrigin("earlier", name)
    found = list(_differences(ours, live))
    if len(found) > DIFFERENCES_MAX:
        found[DIFFERENCES_MAX:] = [f"and {len(found) - DIFFERENCES_MAX} more"]
    return DefinitionOrigin("changed" if note else "foreign", name, _owner(live), tuple(found))


def _is_of_a_release_without_notes(ours: Obj, live: Obj) -> bool:
    """Whether the descriptions are ours in every version, as before there was an annotation."""

    def descriptions(crd: Obj) -> dict[str, str]:
        versions = crd.get("spec", {}).get("versions") or []
        schemas = {
            one.get("name"): (one.get("schema") or {}).get("openAPIV3Schema") or {} for one in versions
        }
        return {name: schema.get("description", "") for name, schema in schemas.items()}

    return descriptions(ours) == descriptions(live)


def _owner(live: Obj) -> str:
    """Return who wrote a definition, as its metadata tells: ``written by NAME on TIME``."""
    metadata = live["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    release = notes.get("meta.helm.sh/release-name")
    tool = labels.get("app.kubernetes.io/managed-by") or ("Helm" if release else "")
    entries = [one for one in metadata.get("managedFields") or [] if not one.get("subresource")]
    latest: Obj = max(entries, key=lambda one: one.get("time") or "", default={})
    who = f"{tool} (release {release})" if release else tool or latest.get("manager") or ""
    when = latest.get("time") or metadata.get("creationTimestamp") or ""
    words = f"written by {who or 'somebody else'}{f' on {when}' if when else ''}"
    served = {version.get("name") for version in live.get("spec", {}).get("versions") or []}
    if "controller-gen.kubebuilder.io/version" in notes and metadata["name"] == "mpijobs.kubeflow.org":
        # The training operator has the job as v1 alone, the MPI operator of today as v2beta1 alone.
        project = "training-operator" if served == {"v1"} else "mpi-operator" if "v2beta1" in served else ""
        words += f" (it looks like that of {project})" if project else ""
    return words


def _differences(ours: Obj, live: Obj) -> Iterator[str]:
    mine, other = _said(ours), _said(live)
    for key in ("group", "scope", "names"):
        if mine[key] != other[key]:
            yield f"spec.{key} differs"
    versions = {one["name"]: one for one in other["versions"]}
    for version in mine["versions"]:
        name = version["name"]
        found = versions.pop(name, None)
        if found is None:
            yield f"it lacks version {name}"
            continue
        for key in ("served", "storage", "subresources"):
            if version[key] != found[key]:
                yield f"{name}: {key} differs"
        yield from _schema_differences(version["schema"], found["schema"] or {}, f"{name}:")
    for name in versions:
        yield f"it has version {name}"


def _schema_differences(mine: Any, other: Any, path: str) -> Iterator[str]:
    """Yield the fields in which two schemas differ: ``v1: spec.runPolicy is missing``."""
    names, theirs = mine.get("properties") or {}, other.get("properties") or {}
    if _rules(mine) != _rules(other):
        yield f"{path} has other rules"
    for key in [*names, *(theirs.keys() - names.keys())]:
        if path.endswith(":") and key in _OF_EVERY_OBJECT:
            continue
        inner = f"{path} {key}" if path.endswith(":") else f"{path}.{key}"
        if key not in theirs:
            yield f"{inner} is missing"
        elif key not in names:
            yield f"{inner} is there"
        else:
            yield from _schema_differences(names[key], theirs[key], inner)


def _rules(schema: Obj) -> Obj:
    return {key: value for key, value in schema.items() if key not in ("properties", "description")}
