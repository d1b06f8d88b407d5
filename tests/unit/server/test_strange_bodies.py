"""Whatever a client sends, the server's rules answer with a refusal or an object, never with a fault.

Valid objects of every kind, with one value somewhere replaced by one of a type that does not belong there.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from gangline import clock
from gangline.api.wire_types import Message, message, message_of_kind
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.resources import BUILT_IN_SERVED, ServedResource, crd_served
from gangline.cluster.server.rules import metadata, strategy
from gangline.cluster.server.status_errors import StatusError
from gangline.cluster.server.tables import tables
from gangline.cluster.server.wire import discovery, openapi

POD_SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
    "volumes": [
        {"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
        {"name": "w", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "x", "hostPath": {"path": "/x"}},
    ],
    "containers": [
        {
            "name": "main",
            "image": "i",
            "command": ["a"],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": 1}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "livenessProbe": {"httpGet": {"port": 80}},
            "securityContext": {"runAsUser": 1},
        }
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0, "multipleOf": 1, "default": 1},
                "text": {"type": "string", "pattern": "a", "minLength": 1, "enum": ["abc"], "format": "date"},
                "list": {
                    "type": "array",
                    "maxItems": 9,
                    "uniqueItems": True,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                },
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {
                    "x-kubernetes-int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {**POD_SPEC, "restartPolicy": "Always"}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
BODIES: dict[str, dict[str, Any]] = {
    "Deployment": {"spec": {**WORKLOAD, "strategy": {"rollingUpdate": {"maxSurge": "10%"}}}},
    "ReplicaSet": {"spec": WORKLOAD},
    "StatefulSet": {
        "spec": {**WORKLOAD, "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": CLAIM}]}
    },
    "DaemonSet": {"spec": {**WORKLOAD, "updateStrategy": {"type": "OnDelete"}}},
    "ReplicationController": {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}},
    "PersistentVolumeClaim": {"spec": CLAIM},
    "Pod": {"spec": POD_SPEC, "status": {"phase": "Pending", "conditions": []}},
    "Job": {"spec": {"parallelism": 1, "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}}},
    "Service": {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}},
    "ConfigMap": {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}},
    "Secret": {"stringData": {"a": "b"}, "data": {"c": "ZA=="}, "type": "Opaque"},
    "Node": {
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}},
    },
    "Event": {"involvedObject": {"kind": "Pod", "namespace": "default"}, "reason": "R", "count": 1},
    "Lease": {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}},
    "PriorityClass": {"value": 5},
    "Endpoints": {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]},
    "EndpointSlice": {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 1}],
    },
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}},
    "ServiceAccount": {"secrets": [{"name": "s"}]},
    "CustomResourceDefinition": {
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "trains", "kind": "Train"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}
                    },
                    "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}],
                }
            ],
        }
    },
}
STRANGE: list[Any] = [None, True, 7, -1, 1.5, "text", "", [], [None], [{}], {}, {"a": None}, [[1]], {"": [2]}]
SERVED = {row.resource.kind: row for row in BUILT_IN_SERVED if row.storage_version and "create" in row.verbs}
STORED = [kind for kind, row in SERVED.items() if row.is_stored]
VALUES = {
    "s": "a",
    "i": 1,
    "b": True,
    "y": "YQ==",
    "T": "2026-01-31T12:00:00Z",
    "M": "2026-01-31T12:00:00.000000Z",
    "Q": "1",
    "I": 1,
    "L": ["a"],
    "F": {},
    "R": {"a": "b"},
}
LEVELS = 3
"""Messages inside messages in the bodies that are made from the table of types."""


def made(schema: Message, levels: int = LEVELS) -> dict[str, Any]:
    """Return a body with every field of a message set."""
    body: dict[str, Any] = {}
    for field in schema.by_name.values():
        if levels == LEVELS and field.name == "metadata":
            continue
        if not field.is_message:
            value: Any = VALUES[field.type]
        elif levels:
            value = made(message(field.type), levels - 1)
        else:
            continue
        body[field.name] = [value] if field.shape == "*" else {"a": value} if field.shape == "%" else value
    return body


def body_of(kind: str) -> dict[str, Any]:
    name = {"CustomResourceDefinition": "trains.example.dev", "IPAddress": "10.96.0.1"}.get(kind, "a")
    body = BODIES.get(kind)
    if body is None:
        resource = SERVED[kind].resource
        schema = message_of_kind(resource.group, resource.version, kind)
        body = {} if schema is None else made(schema)
    return {"metadata": {"name": name, "labels": {"a": "b"}, "finalizers": ["e.dev/x"]}, **body}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(body)
    at: Any = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return result


def create(served: ServedResource, body: dict[str, Any]) -> dict[str, Any]:
    target = RequestTarget(served, "default" if served.resource.namespaced else "")
    body, _ = strategy.known_fields(served, body, "Warn")
    obj = metadata.created(target, body)
    obj = strategy.first_state(served, obj)
    strategy.check(served, obj, None)
    obj["metadata"]["resourceVersion"] = "1"
    return obj


def update(served: ServedResource, old: dict[str, Any], body: dict[str, Any]) -> None:
    target = RequestTarget(served, "default" if served.resource.namespaced else "", old["metadata"]["name"])
    body, _ = strategy.known_fields(served, body, "Warn")
    obj = metadata.updated(target, old, body)
    obj = strategy.later_state(served, obj, old)
    strategy.check(served, obj, old)
    metadata.count_generation(served, old, obj)
    metadata.is_same(old, obj)


@pytest.mark.parametrize("kind", STORED)
def test_strange_values_are_refused_or_taken_on_create_and_update(kind: str) -> None:
    served = SERVED[kind]
    good = create(served, body_of(kind))
    for path in places(body_of(kind)):
        for value in STRANGE:
            body = replaced(body_of(kind), path, value)
            for attempt in (lambda b=body: create(served, b), lambda b=body: update(served, good, b)):
                try:
                    attempt()
                except StatusError as failure:
                    assert 400 <= failure.code < 500
                except Exception as error:
                    raise AssertionError(f"{'.'.join(map(str, path))} = {value!r}") from error


def test_definition_that_is_accepted_can_be_served() -> None:
    served = SERVED["CustomResourceDefinition"]
    spec = {"text": "abc", "list": [{"k": "a"}, {"k": "b"}], "map": {"a": "b"}, "port": 1, "other": 2}
    for path in places(body_of("CustomResourceDefinition")):
        for value in STRANGE:
            try:
                crd = create(served, replaced(body_of("CustomResourceDefinition"), path, value))
            except StatusError:
                continue
            try:
                for row in crd_served(crd):
                    with contextlib.suppress(StatusError):
                        made = create(row, {"metadata": {"name": "t"}, "spec": spec})
                        tables.to_table(row.resource, [made], columns=row.columns, now=clock.now())
                rows = [*BUILT_IN_SERVED, *crd_served(crd)]
                discovery.aggregated(rows, core=False)
                discovery.api_group_list(rows)
                openapi.index(rows)
                for row in crd_served(crd):
                    openapi.document(rows, row.resource.root.strip("/"))
            except Exception as error:
                raise AssertionError(f"{'.'.join(map(str, path))} = {value!r}") from error
