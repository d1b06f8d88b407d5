"""Requests that no client would send on purpose: whole ones with strange parts, and bytes that were one once.

Every case follows from its seed and number alone: ``case(seed, number)`` gives the same bytes again.
"""

import base64
import copy
import json
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

TEXTS = [
    "", "0", "-1", "1", "²", "٣", "1e9", "9" * 19, "9" * 400, "9" * 4500, "-" + "9" * 400, "true", "All",
    "None", "NaN", "\x00", "\udcff", "é", "💥", "a" * 300, "../..", "%", "%zz", "%2e%2e", "a=b,c!=d",
    "a in (b",
    "a in (b,,)", "!", "((((", "metadata.name=x", "metadata.name==\\", "status.phase=²", "x>" + "9" * 4400,
    "x>²", "x<1", ",", "=", "a,b,c" * 500, "NotOlderThan", "Exact", "MQ",
    base64.b64encode(b'[1,"a","b"]').decode(),
    base64.b64encode(b"[" * 900).decode(), base64.b64encode(b'[1e400,"",""]').decode(),
    base64.b64encode(b'[-1,"",""]').decode(), "1970-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "\n",
    "a\r\nb: c",
]  # fmt: skip
PARAMETERS = [
    "limit", "continue", "resourceVersion", "resourceVersionMatch", "watch", "timeoutSeconds",
    "fieldSelector",
    "labelSelector", "includeObject", "dryRun", "fieldValidation", "fieldManager", "force", "pretty",
    "timeout",
    "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "allowWatchBookmarks",
    "sendInitialEvents",
    "tailLines", "sinceSeconds", "sinceTime", "limitBytes", "container", "follow", "previous", "stream",
    "verbose",
]  # fmt: skip
METHODS = [
    "GET", "GET", "GET", "POST", "POST", "POST", "PUT", "PATCH", "PATCH", "PATCH", "DELETE", "HEAD",
    "OPTIONS",
    "TRACE", "CONNECT", "FOO", "G\x00T",
]  # fmt: skip
PATHS = [
    "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/c",
    "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/p", "/api/v1/pods",
    "/api/v1/namespaces/default/pods/p/log", "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/eviction", "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/pods/p/exec", "/api/v1/namespaces", "/api/v1/namespaces/other",
    "/api/v1/namespaces/other/finalize", "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/nodes", "/api/v1/nodes/n", "/api/v1/nodes/n/status", "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/services/s", "/api/v1/namespaces/default/secrets", "/api/v1/events",
    "/apis/batch/v1/namespaces/default/jobs", "/apis/batch/v1/namespaces/default/jobs/j",
    "/apis/batch/v1/namespaces/default/jobs/j/status",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com",
    "/apis/example.com/v1/namespaces/default/things", "/apis/example.com/v1/namespaces/default/things/t",
    "/apis/example.com/v1/namespaces/default/things/t/scale",
    "/apis/example.com/v1/namespaces/default/things/t/status",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases", "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/api", "/apis", "/api/v1", "/apis/batch/v1", "/openapi/v3", "/openapi/v3/api/v1", "/version",
    "/healthz",
    "/readyz?verbose", "/", "//", "/api//v1/pods", "/metrics", "*",
]  # fmt: skip
TYPES = [
    "application/json", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml", "text/plain", "", "application/json; charset=\udcff",
]  # fmt: skip
ACCEPTS = [
    "*/*", "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml",
    "text/html",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/cbor", " " * 4000,
    ";,;," * 900,
]  # fmt: skip
CONTAINER = {"name": "m", "image": "i", "command": ["x"], "env": [{"name": "A", "value": "b"}]}
THING = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "multipleOf": 1}, "s": {"type": "string", "pattern": "^a+$"},
    "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
          "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}},
    "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n < 10"}]}}}  # fmt: skip
BODIES: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}},
    "data": {"k": "v"}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}},
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
     "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}},
    {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
     "metadata": {"name": "things.example.com"},
     "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
              "versions": [{"name": "v1", "served": True, "storage": True,
              "schema": {"openAPIV3Schema": THING},
                            "additionalPrinterColumns": [{"name": "N", "type": "integer",
                            "jsonPath": ".spec.n"}],
                            "subresources": {"status": {}, "scale": {
                                "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}}]}},
    {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
     "spec": {"n": 1, "s": "aa", "l": [{"k": "a"}]}},
    {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}},
    {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {}},
    {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "x"}},
    {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}, "spec": {"replicas": 2}},
    {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get",
    "resource": "pods"}}},
    {"kind": "TokenReview", "spec": {"token": "gl.x.y"}},
]  # fmt: skip
STRANGE: list[Any] = [
    None, True, 0, -1, 1 << 63, 10**400, 1.5, 1e308, "", "²", "\x00", "a" * 5000, [], {}, [[]], [None],
    {"": ""},
    {"a": None}, {"$patch": "replace"}, {"$patch": "x"}, [{"$patch": "delete"}], {"$retainKeys": ["x"]},
    "^(a+)+$",
    "(?=x)", "self.a.b.c", "1970-01-01T00:00:00Z", "1e9999999", "9" * 60, "1Ei", {"x": {"x": {"x": {}}}},
    "💥",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One request: its bytes, and whether it is whole, so that an answer is due."""

    raw: bytes
    is_whole: bool


def case(seed: int, number: int, *, token: str = "") -> Case:
    """Return a case of a series; with ``token`` it is sent to the TCP port."""
    chance = random.Random(f"{seed} {number}")
    raw = _request(chance, token)
    if chance.random() < 0.3:
        return Case(_broken(chance, raw), False)
    return Case(raw, True)


PLACES = {
    "ConfigMap": "/api/v1/namespaces/default/configmaps", "Pod": "/api/v1/namespaces/default/pods",
    "Namespace": "/api/v1/namespaces", "Node": "/api/v1/nodes",
    "Service": "/api/v1/namespaces/default/services",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Thing": "/apis/example.com/v1/namespaces/default/things",
    "TokenRequest": "/api/v1/namespaces/default/serviceaccounts/default/token",
    "Scale": "/apis/example.com/v1/namespaces/default/things/t/scale",
}  # fmt: skip


def _at_home(chance: random.Random) -> tuple[str, str, bytes, str]:
    """Return method, path, body and type of a request in which they fit, but for one strange value."""
    obj = copy.deepcopy(chance.choice([body for body in BODIES if body["kind"] in PLACES]))
    path = PLACES[obj["kind"]]
    name = (obj.get("metadata") or {}).get("name")
    for _ in range(chance.choice((0, 1, 1, 2))):
        _replace_somewhere(chance, obj)
    body = json.dumps(obj).encode("utf-8", "surrogateescape")
    method = chance.choice(["POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "GET"])
    if method == "POST" or name is None:
        return method, path, body, TYPES[0]
    path = path if path.endswith("/scale") else f"{path}/{name}{chance.choice(['', '', '', '/status'])}"
    if method == "PATCH" and chance.random() < 0.3:
        return method, f"{path}", json.dumps(_json_patch(chance)).encode(), "application/json-patch+json"
    if method == "PATCH":
        type_ = chance.choice(["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
        return method, f"{path}?fieldManager=m&force=true", body, f"application/{type_}"
    return method, path, body, TYPES[0]


def _request(chance: random.Random, token: str) -> bytes:
    method, path, body, type_ = _at_home(chance)
    if chance.random() < 0.5:
        method, path, body = chance.choice(METHODS), chance.choice(PATHS), _body(chance)
        type_ = chance.choice(TYPES)
    if chance.random() < 0.1:
        path += "/" + quote(chance.choice(TEXTS), errors="surrogateescape")
    query = [
        f"{chance.choice(PARAMETERS)}={quote(chance.choice(TEXTS), errors='surrogateescape')}"
        for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))
    ]
    query.append("timeoutSeconds=1")  # a watch ends
    separator = "&" if "?" in path else "?"
    headers = {
        "Host": "x",
        "Content-Type": type_,
        "Accept": chance.choice(ACCEPTS),
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if chance.random() < 0.1:
        headers[
            chance.choice(["Content-Encoding", "Expect", "Authorization", "Upgrade", "Cookie", "Range"])
        ] = chance.choice(
            ["gzip", "100-continue", "Bearer \udcff", "Bearer gl.é.é", "br", "websocket", "x" * 9000]
        )
    if chance.random() < 0.1:
        del headers["Content-Length"]
        headers["Transfer-Encoding"] = "chunked"
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    version = chance.choice(["HTTP/1.1"] * 9 + ["HTTP/1.0"])
    head = f"{method} {path}{separator}{'&'.join(query)} {version}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return head.encode("utf-8", "surrogateescape") + b"\r\n" + body


def _body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return b""
    if kind < 0.2:
        return chance.choice(_STRANGE_BODIES)
    if kind < 0.35:
        return json.dumps(_json_patch(chance)).encode()
    obj = json.loads(json.dumps(chance.choice(BODIES)))
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        _replace_somewhere(chance, obj)
    if kind < 0.45:
        import yaml

        return str(yaml.safe_dump(obj)).encode("utf-8", "surrogateescape")
    return json.dumps(obj).encode("utf-8", "surrogateescape")


def _json_patch(chance: random.Random) -> Any:
    paths = ["", "/", "/metadata", "/metadata/labels/a", "/data", "/data/k", "/spec/containers/0",
             "/spec/l/-", "/x",
             "/metadata/name", "/metadata/labels/²", "/spec/containers/" + "9" * 5000, "x"]  # fmt: skip
    return [
        {
            "op": chance.choice(["add", "remove", "replace", "copy", "move", "test", "²", None]),
            "path": chance.choice(paths),
            "from": chance.choice(paths),
            "value": chance.choice(STRANGE),
        }
        for _ in range(chance.choice((1, 2, 5, 40)))
    ]


def _replace_somewhere(chance: random.Random, obj: Any) -> None:
    """Put a strange value, or a strange key, somewhere into an object."""
    while True:
        keys = list(obj) if isinstance(obj, dict) else list(range(len(obj)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(obj[key], dict | list) and obj[key] and chance.random() < 0.8:
            obj = obj[key]
            continue
        if isinstance(obj, dict) and chance.random() < 0.15:
            obj[chance.choice(["", "²", "x.y/z", "a" * 400, "$patch", "\x00"])] = copy.deepcopy(
                chance.choice(STRANGE)
            )
        else:
            obj[key] = copy.deepcopy(chance.choice(STRANGE))
        return


_NINES = [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
_MERGES = [
    f"{b}: &{b} {{<<: [{','.join([f'*{a}'] * 9)}]}}" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
]
_STRANGE_BODIES = [
    b"[" * 40_000,
    b'{"a":' * 20_000,
    b"- " * 40_000,
    "\n".join(["a: &a [1,1,1,1,1,1,1,1,1]", *_NINES]).encode(),
    "\n".join(["a: &a {k: 1}", *_MERGES]).encode(),
    b"a: &a " + b"x" * 20_000 + b"\nb: [" + b",".join([b"*a"] * 500) + b"]",
    b"\xff\xfe\x00",
    b'"\xff"',
    b'{"kind":"Pod","metadata":{"name":"\xff"}}',
    b"k8s\x00",
    b"k8s\x00" + b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12" + b"\xff" * 40,
    b"k8s\x00" + b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x7f" + b"\x0a\x7d" * 60,
    b"{}" * 3,
    b"null",
    b"1" * 5000,
    b"1e999",
    b'{"metadata":{"name":"x"},"data":{"a":' + b"9" * 400 + b"}}",
    b"---\n---\n--- {}\n",
    b"a: !!python/object:os.system x",
    b"a: 0x" + b"f" * 3000,
    b"<<: 1",
    json.dumps(
        [
            {"op": "add", "path": "/data", "value": {"k": "v" * 99}},
            *({"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(26)),
        ]
    ).encode(),
]


def _broken(chance: random.Random, raw: bytes) -> bytes:
    """Return bytes of which some are changed, gone, doubled, or which end early."""
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(data))
        what = chance.random()
        if what < 0.4:
            data[place] = chance.randrange(256)
        elif what < 0.6:
            del data[place : place + chance.choice((1, 2, 10))]
        elif what < 0.8:
            data[place:place] = data[place : place + chance.choice((1, 20, 200))]
        elif what < 0.9:
            data[place:place] = chance.choice((b"\r\n", b"\n", b"\x00", b"\r", b" " * 50, b"%", b"\xff" * 9))
        else:
            del data[max(place, 1) :]
        if not data:
            return b"\n"
    return bytes(data)
