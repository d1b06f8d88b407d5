"""The Helm chart, from the objects of an installation: what a user may choose becomes a value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gangline import __version__
from gangline.api.codec import dump_yaml
from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.installation.objects import IMAGES, Installation, definitions, device_plugin, objects

Obj = dict[str, Any]

NAMESPACE = "{{ .Release.Namespace }}"
HELPERS = """\
{{- /* the image of a service: list CONTEXT NAME DIGEST */ -}}
{{- define "gangline.image" -}}
{{- $context := index . 0 -}}
{{- $digest := index . 2 -}}
{{- $name := list $context.Values.image.prefix (index . 1) | compact | join "/" -}}
{{- $tagged := printf "%s:%s" $name ($context.Values.image.tag | default $context.Chart.AppVersion) -}}
{{- empty $digest | ternary $tagged (printf "%s@%s" $tagged $digest) -}}
{{- end }}
"""
NOTES = """\
Gangline {{ .Chart.AppVersion }} is installed in namespace {{ .Release.Namespace }}\
{{ if .Values.namespaced }}, for its jobs alone{{ end }}.

  kubectl -n {{ .Release.Namespace }} get pods -l app.kubernetes.io/part-of=gangline

The definitions of MPIJob and PodGroup, and with them all jobs, stay when the release goes. Helm does not
upgrade them either: `gangline crds --install --context CONTEXT` does.
"""


def chart(image_prefix: str = "", digests: Mapping[str, str] = {}) -> Iterator[tuple[str, str]]:
    """Yield path and text of every file of the chart.

    Args:
        image_prefix: registry and folder of the images.
        digests: by the images' names, of those that are not to be taken by their tag.
    """
    values = {
        **_VALUES,
        "image": {**_VALUES["image"], "prefix": (image_prefix, _VALUES["image"]["prefix"][1])},
    }
    for part, service in _PARTS.items():
        digest = digests.get(IMAGES[part], "")
        values[service] = {**values[service], "digest": (digest, values[service]["digest"][1])}
    yield "Chart.yaml", dump_yaml(_metadata())
    yield "values.yaml", _values_file(values)
    yield "values.schema.json", json.dumps(_schema(values), indent=2) + "\n"
    for crd in definitions(Installation()):
        yield f"crds/{crd['metadata']['name']}.yaml", dump_yaml(crd)
    yield "templates/_helpers.tpl", HELPERS
    yield "templates/NOTES.txt", NOTES
    yield "templates/operator.yaml", _either("operator.enabled", _operator(False), _operator(True))
    yield "templates/scheduler.yaml", _either("scheduler.enabled", _scheduler(), [])
    yield "templates/cluster.yaml", _either("", _of_the_cluster(), [])
    yield "templates/device-plugin.yaml", _either("devicePlugin.enabled", _device_plugin(), _device_plugin())


def _metadata() -> Obj:
    return {
        "apiVersion": "v2",
        "name": "gangline",
        "description": "Operator of MPIJobs and gang scheduler",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.25.0-0",
    }


_PARTS = {"operator": "operator", "scheduler": "scheduler", "device-plugin": "devicePlugin"}
"""The services, and what their values are called."""

_DIGEST = ("", "sha256:..., of its image; counts for more than the tag")


def _service(name: str) -> Obj:
    (container,) = _pod(next(one for one in objects(Installation()) if _is_deployment(one, name)))[
        "containers"
    ]
    return {
        "enabled": (True, "whether it is installed"),
        "replicas": (2, "of which one works and the others stand by"),
        "digest": _DIGEST,
        "args": ([], f"more options of `gangline {name}`"),
        "resources": (container["resources"], ""),
        "nodeSelector": ({}, ""),
        "tolerations": ([], ""),
    }


def _is_deployment(obj: Obj, name: str) -> bool:
    return obj["kind"] == "Deployment" and obj["metadata"]["name"] == f"gangline-{name}"


def _pod(obj: Obj) -> Obj:
    pod: Obj = obj["spec"]["template"]["spec"]
    return pod


_VALUES: Obj = {
    "image": {
        "prefix": ("", "registry and folder of the images: registry.example.com/ml"),
        "tag": ("", "the version of the chart where it is empty"),
        "pullPolicy": ("IfNotPresent", ""),
    },
    "imagePullSecrets": ([], "[{name: SECRET}], of the release's namespace"),
    "namespaced": (
        False,
        "the operator alone, which sees the release's namespace alone and has no right outside",
    ),
    "priorityClassName": ("system-cluster-critical", "of the services; not with namespaced"),
    "operator": _service("operator"),
    "scheduler": _service("scheduler"),
    "devicePlugin": {
        "enabled": (False, "whether nodes with the label openshift.com/gpu-accelerator serve their GPUs"),
        "digest": _DIGEST,
        "args": ([], "[--simulate-gpus=8] tries it without GPUs"),
        "runtimeClassName": ("", "nvidia, where that runtime is not the default"),
    },
}
"""Default and meaning of every value."""

_ENUMS = {"pullPolicy": ["Always", "IfNotPresent", "Never"]}
_PATTERNS = {"digest": "^(sha256:[0-9a-f]{64})?$"}
_ITEMS: dict[str, Obj] = {"args": {"type": "string"}}


def _values_file(values: Obj, indent: str = "") -> str:
    lines = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", _values_file(value, indent + "  ").rstrip("\n")]
            continue
        default, meaning = value
        lines += [f"{indent}# {meaning}"] if meaning else []
        lines += [indent + line for line in dump_yaml({name: default}).splitlines()]
    return "\n".join(lines) + "\n"


def _schema(values: Obj, name: str = "") -> Obj:
    properties: Obj = {}
    for key, value in values.items():
        properties[key] = _schema(value, key) if isinstance(value, dict) else _property(key, *value)
    head = {} if name else {"$schema": "https://json-schema.org/draft-07/schema#"}
    if not name:
        properties["global"] = {"type": "object"}  # Helm gives every chart one
    return {**head, "type": "object", "additionalProperties": False, "properties": properties}


def _property(name: str, default: Any, meaning: str) -> Obj:
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    found: Obj = {"type": kinds[type(default)]}
    if meaning:
        found["description"] = meaning
    if isinstance(default, int) and not isinstance(default, bool):
        found["minimum"] = 1
    if name in _ENUMS:
        found["enum"] = _ENUMS[name]
    if name in _PATTERNS:
        found["pattern"] = _PATTERNS[name]
    if isinstance(default, list):
        found["items"] = _ITEMS.get(name, {"type": "object"})
    return found


class Placeholder(str):
    """An expression of the template language, that becomes the value of a field."""


def _operator(is_namespaced: bool) -> list[Obj]:
    installation = Installation(namespace=NAMESPACE, is_namespaced=is_namespaced, has_scheduler=False)
    found = [obj for obj in objects(installation) if "operator" in obj["metadata"]["name"]]
    both = "and .Values.scheduler.enabled (not .Values.namespaced)"
    gangs = f'{both} | ternary (list "--gang-scheduling={GANGLINE_SCHEDULER}") (list)'
    own = 'ternary (list "--namespace=$(POD_NAMESPACE)") (list) .Values.namespaced'
    return [_chosen(obj, "operator", gangs, own) for obj in found]


def _scheduler() -> list[Obj]:
    found = objects(Installation(namespace=NAMESPACE, has_operator=False))
    return [_chosen(obj, "scheduler") for obj in found if "scheduler" in obj["metadata"]["name"]]


def _of_the_cluster() -> list[Obj]:
    """Return what is there once: the users' roles, and the quota that allows the priority class."""
    kept = [obj for obj in objects(Installation(namespace=NAMESPACE)) if obj["metadata"]["name"] in _ONCE]
    for obj in kept:
        if obj["kind"] == "ResourceQuota":
            (scope,) = obj["spec"]["scopeSelector"]["matchExpressions"]
            scope["values"] = [Placeholder('.Values.priorityClassName | default "system-cluster-critical"')]
    return kept


_ONCE = ("gangline-critical-pods", "gangline-mpijobs-edit", "gangline-mpijobs-view")


def _device_plugin() -> list[Obj]:
    *account, plugin = device_plugin()
    pod = _pod(plugin)
    (container,) = pod["containers"]
    container["image"] = _image("device-plugin")
    container["args"] = Placeholder(".Values.devicePlugin.args")
    pod["imagePullSecrets"] = Placeholder(".Values.imagePullSecrets")
    pod["runtimeClassName"] = Placeholder(".Values.devicePlugin.runtimeClassName | default nil")
    return [*account, plugin]


def _image(part: str) -> Placeholder:
    return Placeholder(f'include "gangline.image" (list . "{IMAGES[part]}" .Values.{_PARTS[part]}.digest)')


def _chosen(obj: Obj, part: str, *more_args: str) -> Obj:
    """Return a service's object with what a user may choose as expressions; only its pods have some."""
    if not _is_deployment(obj, part):
        return obj
    values, pod = f".Values.{part}", _pod(obj)
    (container,) = pod["containers"]
    obj["spec"]["replicas"] = Placeholder(f"{values}.replicas")
    fixed = [word for word in container["args"] if not word.startswith("--namespace=")]
    listed = f"(list {' '.join(json.dumps(word) for word in fixed)})"
    every = " ".join([listed, *(f"({words})" for words in more_args), f"{values}.args"])
    container["args"] = Placeholder(f"concat {every}")
    container["image"] = _image(part)
    container["imagePullPolicy"] = Placeholder(".Values.image.pullPolicy")
    container["resources"] = Placeholder(f"{values}.resources")
    pod["priorityClassName"] = Placeholder('ternary "" .Values.priorityClassName .Values.namespaced')
    pod["imagePullSecrets"] = Placeholder(".Values.imagePullSecrets")
    pod["nodeSelector"] = Placeholder(f"{values}.nodeSelector")
    pod["tolerations"] = Placeholder(f"{values}.tolerations")
    return obj


def _either(value: str, on_cluster: list[Obj], in_namespace: list[Obj]) -> str:
    """Return a template: both ways' objects, those that only one has under its condition.

    Args:
        value: that has to be true for any; empty for none.
        on_cluster: objects of an installation for the cluster.
        in_namespace: of one for a namespace.
    """
    parts = []
    for obj in on_cluster:
        both = obj in in_namespace
        parts.append(_text(obj) if both else _guarded("not .Values.namespaced", _text(obj)))
    parts += [_guarded(".Values.namespaced", _text(obj)) for obj in in_namespace if obj not in on_cluster]
    text = "".join(parts)
    return _guarded(f".Values.{value}", text) if value else text


def _guarded(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _text(obj: Obj) -> str:
    """Return an object as a document whose expressions are written out, as JSON: a form that YAML has too."""
    expressions: list[str] = []

    def named(value: Any) -> Any:
        if isinstance(value, Placeholder):
            expressions.append(value)
            return f"@{len(expressions) - 1}@"
        if isinstance(value, dict):
            return {key: named(one) for key, one in value.items()}
        return [named(one) for one in value] if isinstance(value, list) else value

    text = dump_yaml(named(obj))
    # image: '@0@'
    return "---\n" + re.sub(
        r"'@(\d+)@'", lambda match: f"{{{{ {expressions[int(match[1])]} | toJson }}}}", text
    )
