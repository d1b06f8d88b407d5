"""The environment of a container: order, references, expansion, missing objects."""

import base64

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod, Secret
from gangline.cluster.node.pods.container_env import ConfigError, Lookup, PodFacts, build_env, expand

FACTS = PodFacts(pod_ip="10.0.0.5", host_ip="10.0.0.1", allocatable={"cpu": "8", "memory": "16Gi"})
CONFIG_MAPS = {
    "cm": ConfigMap(data={"A": "from map", "B": "2", "not=a-name": "x"}),
    "dashed": ConfigMap(data={"1.key": "a", "any-key": "b", "k=v": "c"}),
}
SECRETS = {"s": Secret(data={"B": base64.b64encode(b"from secret").decode()})}
LOOKUP = Lookup(CONFIG_MAPS.get, SECRETS.get)


def make_pod(container: dict) -> Pod:
    meta = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app.kubernetes.io/name": "train"},
        "annotations": {"note": "hi"},
    }
    spec = {"nodeName": "n", "containers": [{"name": "c"} | container]}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def env_of(env=(), env_from=(), defaults=None, **container):
    pod = make_pod({"env": list(env), "envFrom": list(env_from)} | container)
    return build_env(pod, pod.spec.containers[0], FACTS, LOOKUP, defaults or {})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)", "1"),
        ("$(A)$(A)", "11"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(MISSING)", "$(MISSING)"),
        ("$A ${A} $", "$A ${A} $"),
        ("a$$b", "a$b"),
        ("$(", "$("),
    ],
)
def test_expand_replaces_known_names_and_keeps_the_rest(text, want):
    assert expand(text, {"A": "1"}) == want


def test_env_wins_over_env_from_which_wins_over_defaults():
    found = env_of(
        env=[{"name": "B", "value": "own"}],
        env_from=[{"configMapRef": {"name": "cm"}}],
        defaults={"A": "default", "C": "default"},
    )

    assert found == {"A": "from map", "B": "own", "C": "default"}


def test_every_printable_key_but_those_with_an_equals_sign_is_a_name():
    found = env_of(env_from=[{"configMapRef": {"name": "dashed"}}])

    assert found == {"1.key": "a", "any-key": "b"}


def test_later_env_from_wins_and_prefix_is_put_before_keys():
    found = env_of(
        env_from=[
            {"configMapRef": {"name": "cm"}},
            {"secretRef": {"name": "s"}},
            {"prefix": "P_", "secretRef": {"name": "s"}},
        ]
    )

    assert found == {"A": "from map", "B": "from secret", "P_B": "from secret"}


def test_values_refer_to_variables_before_them_only():
    found = env_of(
        env=[
            {"name": "X", "value": "$(Y)"},
            {"name": "Y", "value": "y"},
            {"name": "Z", "value": "$(Y)-$(D)"},
        ],
        defaults={"D": "d"},
    )

    assert (found["X"], found["Z"]) == ("$(Y)", "y-d")


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['app.kubernetes.io/name']", "train"),
        ("metadata.annotations['note']", "hi"),
        ("metadata.labels['absent']", ""),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.0.0.5"),
        ("status.hostIP", "10.0.0.1"),
    ],
)
def test_field_reference_gives_the_field(path, want):
    found = env_of(env=[{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}}])

    assert found["F"] == want


@pytest.mark.parametrize(
    ("resource", "divisor", "want"),
    [
        ("limits.cpu", "0", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", "1m", "250"),
        ("limits.memory", "1Mi", "16384"),
        ("requests.memory", "1", "0"),
    ],
    ids=["limit is rounded up", "divisor", "request", "missing limit is the node's", "missing request is 0"],
)
def test_resource_reference_is_divided_and_rounded_up(resource, divisor, want):
    reference = {"resourceFieldRef": {"resource": resource, "divisor": divisor}}
    resources = {"limits": {"cpu": "1500m"}, "requests": {"cpu": "250m"}}

    found = env_of(env=[{"name": "R", "valueFrom": reference}], resources=resources)

    assert found["R"] == want


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ({"configMapKeyRef": {"name": "cm", "key": "gone"}}, "couldn't find key gone in config map ns/cm"),
        ({"configMapKeyRef": {"name": "none", "key": "a"}}, 'config map "none" not found'),
        ({"secretKeyRef": {"name": "none", "key": "a"}}, 'secret "none" not found'),
    ],
)
def test_missing_object_or_key_is_an_error_unless_optional(source, want):
    with pytest.raises(ConfigError, match="^" + want.replace('"', ".")):
        env_of(env=[{"name": "V", "valueFrom": source}])

    kind, reference = next(iter(source.items()))
    assert "V" not in env_of(env=[{"name": "V", "valueFrom": {kind: reference | {"optional": True}}}])
