"""OpenAPI v3: an index and one document for each group and version, made from the rows that are served.

Enough for ``kubectl apply`` and ``create`` (which look for the ``fieldValidation`` parameter and then leave
checking to the server) and for ``kubectl explain``. Built-in kinds show the fields of ``wire_types`` with
Kubernetes' own descriptions, custom kinds the schema of their CRD. ``openapi_v2`` translates it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from gangline.api.descriptions import descriptions
from gangline.api.wire_types import OBJECT_META, Message, WireField, message, message_of_kind
from gangline.cluster.server.resources import ServedResource

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PREFIXES = {
    "meta": "io.k8s.apimachinery.pkg.apis",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis",
}
"""Of the names of types that do not live in ``k8s.io/api``, by the folder of their group."""
_SCALARS: dict[str, dict[str, Any]] = {
    "s": {"type": "string"},
    "i": {"type": "integer", "format": "int64"},
    "b": {"type": "boolean"},
    "y": {"type": "string", "format": "byte"},
    "T": {"type": "string", "format": "date-time"},
    "M": {"type": "string", "format": "date-time"},
    "Q": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "I": {"oneOf": [{"type": "string"}, {"type": "integer"}], "format": "int-or-string"},
    "L": {"type": "array", "items": {"type": "string"}},
    "F": {"type": "object"},
    "R": {"type": "object"},
    "f": {"type": "number", "format": "double"},
    "O": {},
    "B": {},
    "N": {},
}


def index(rows: Iterable[ServedResource]) -> dict[str, Any]:
    """Return the answer of ``/openapi/v3``: where the document of each group and version is.

    The address carries a hash of the rows, so that clients may keep a document for long. Cost: O(rows).
    """
    hashes: dict[str, Any] = {}
    for row in rows:
        root = row.resource.root.strip("/")
        hashes.setdefault(root, hashlib.sha256()).update(repr(row).encode())
    return {
        "paths": {
            root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest.hexdigest()[:32].upper()}"}
            for root, digest in hashes.items()
        }
    }


def document(rows: Iterable[ServedResource], group_version: str) -> dict[str, Any] | None:
    """Return the document of ``api/v1`` or ``apis/GROUP/VERSION``, None where that is not served.

    Cost: milliseconds for core/v1; the caller keeps it until the rows change.
    """
    members = [row for row in rows if row.resource.root.strip("/") == group_version.strip("/")]
    if not members:
        return None
    paths, schemas = parts(members)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Gangline", "version": "v1.35"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def parts(rows: Iterable[ServedResource]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the paths of rows, and the schemas of their kinds by name."""
    schemas = _Schemas()
    schemas.add(message(OBJECT_META))
    paths: dict[str, Any] = {}
    for row in rows:
        paths |= _paths(row, schemas.add_kind(row))
    return paths, schemas.by_name


def _message_name(found: Message) -> str:
    """Return Kubernetes' own name: ``io.k8s.api.core.v1.PodSpec`` of ``core/v1.PodSpec``."""
    prefix = _PREFIXES.get(found.name.partition("/")[0], "io.k8s.api")
    return f"{prefix}.{found.name.replace('/', '.')}"


def _kind_of(row: ServedResource) -> dict[str, str]:
    resource = row.resource
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _paths(row: ServedResource, schema_name: str) -> dict[str, Any]:
    resource = row.resource
    prefix = f"{resource.root}/namespaces/{{namespace}}" if resource.namespaced else resource.root
    collection, item = f"{prefix}/{resource.plural}", f"{prefix}/{resource.plural}/{{name}}"
    names = ["namespace"] if resource.namespaced else []
    paths: dict[str, Any] = {}
    one = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
    many = {"get": "list", "post": "create", "delete": "deletecollection"}
    for path, methods, parameters in ((collection, many, names), (item, one, [*names, "name"])):
        operations = {
            method: _operation(row, schema_name, method, verb)
            for method, verb in methods.items()
            if verb in row.verbs
        }
        if operations:
            paths[path] = {**operations, "parameters": [_path_parameter(name) for name in parameters]}
    if resource.namespaced and "list" in row.verbs:
        everywhere = f"{resource.root}/{resource.plural}"
        paths[everywhere] = {"get": _operation(row, schema_name, "get", "list")}
    return paths


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


def _operation(row: ServedResource, schema_name: str, method: str, verb: str) -> dict[str, Any]:
    reference = {"schema": {"$ref": f"#/components/schemas/{schema_name}"}}
    operation: dict[str, Any] = {
        "operationId": f"{verb}{row.resource.kind}",
        "tags": [row.resource.api_version.replace("/", "_")],
        "responses": {"200": {"description": "OK", "content": {"application/json": reference}}},
        "x-kubernetes-action": {"create": "post", "update": "put"}.get(verb, verb),
        "x-kubernetes-group-version-kind": _kind_of(row),
    }
    if method in ("post", "put", "patch"):
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
    if method in ("post", "put"):
        operation["requestBody"] = {"content": {"application/json": reference}}
    return operation


class _Schemas:
    """The schemas of one document.

    Attributes:
        by_name: each message and kind that was added, by its name in the document.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}
        self._texts = descriptions()

    def add_kind(self, row: ServedResource) -> str:
        """Add the schema of a served kind; return its name."""
        resource = row.resource
        found = message_of_kind(resource.group, resource.version, resource.kind)
        types = self._texts["meta/v1.TypeMeta"]
        properties: dict[str, Any] = {
            name: {"type": "string", "description": types[name]} for name in ("apiVersion", "kind")
        }
        if found is not None and not row.is_custom:
            name = self.add(found)
            schema = self.by_name[name]
        else:
            group = ".".join(reversed(resource.group.split(".")))
            name = f"{group}.{resource.version}.{resource.kind}"
            schema = {"type": "object", **(row.schema or {"x-kubernetes-preserve-unknown-fields": True})}
            properties["metadata"] = {
                "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
                "default": {},
                "description": self._texts["meta/v1.PartialObjectMetadata"]["metadata"],
            }
        self.by_name[name] = {
            **schema,
            "properties": {**(schema.get("properties") or {}), **properties},
            "x-kubernetes-group-version-kind": [_kind_of(row)],
        }
        return name

    def add(self, found: Message) -> str:
        """Add the schema of a message and of all within it; return its name."""
        name = _message_name(found)
        if name not in self.by_name:
            self.by_name[name] = {}  # marks it as begun: messages may contain themselves
            texts = self._texts.get(found.name, {})
            properties = {
                key: self._field(field) | ({"description": texts[key]} if key in texts else {})
                for key, field in found.by_name.items()
            }
            self.by_name[name] = {"type": "object", "properties": properties}
            if "" in texts:
                self.by_name[name]["description"] = texts[""]
        return name

    def _field(self, field: WireField) -> dict[str, Any]:
        item: dict[str, Any]
        if field.is_message:
            item = {"$ref": f"#/components/schemas/{self.add(message(field.type))}"}
            if not field.shape:
                return {"allOf": [item]}
        else:
            item = dict(_SCALARS[field.type])
        if field.shape == "*":
            schema = {"type": "array", "items": item}
            if field.merge_key:
                schema |= {
                    "x-kubernetes-patch-merge-key": field.merge_key,
                    "x-kubernetes-patch-strategy": "merge",
                }
            return schema
        if field.shape == "%":
            return {"type": "object", "additionalProperties": item}
        return item
