"""Validation of built-in kinds: each case breaks one rule and is told about that one alone."""

import copy

import pytest

from gangline.api import resources as r
from gangline.cluster.server.rules.defaults import apply_defaults
from gangline.cluster.server.rules.validation import type_errors, validate
from gangline.cluster.server.wire.field_types import known_fields

CONTAINER = {"name": "c", "image": "busybox"}


def complete(resource, obj):
    return apply_defaults(resource, {"metadata": {"name": "x", "uid": "u"}, **obj})


def pod(**spec):
    return complete(r.PODS, {"spec": {"containers": [CONTAINER], **spec}})


def with_container(**fields):
    return pod(containers=[{**CONTAINER, **fields}], volumes=[{"name": "v", "emptyDir": {}}])


def job(*, template=None, restart="Never", **spec):
    pod_spec = {"containers": [CONTAINER], "restartPolicy": restart, **(template or {})}
    return complete(r.JOBS, {"spec": {"template": {"spec": pod_spec}, **spec}})


def told(errors):
    return [(error.reason, error.path) for error in errors]


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (pod(), []),
        (pod(containers=[]), [("Required", "spec.containers")]),
        (with_container(name=""), [("Required", "spec.containers[0].name")]),
        (with_container(name="A_b"), [("Invalid", "spec.containers[0].name")]),
        (with_container(image=""), [("Required", "spec.containers[0].image")]),
        (with_container(image=" x"), [("Invalid", "spec.containers[0].image")]),
        (with_container(imagePullPolicy="Never"), []),
        (pod(hostPID=True, hostIPC=True), [("Forbidden", "spec.hostIPC"), ("Forbidden", "spec.hostPID")]),
        (pod(hostPID=False, hostNetwork=True), []),
        (with_container(imagePullPolicy="Soon"), [("NotSupported", "spec.containers[0].imagePullPolicy")]),
        (pod(containers=[CONTAINER, CONTAINER]), [("Duplicate", "spec.containers[1].name")]),
        (
            pod(initContainers=[CONTAINER]),
            [("Duplicate", "spec.containers[0].name")],
        ),
        (
            with_container(volumeMounts=[{"name": "w", "mountPath": "/x"}]),
            [("NotFound", "spec.containers[0].volumeMounts[0].name")],
        ),
        (
            with_container(volumeMounts=[{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]),
            [("Invalid", "spec.containers[0].volumeMounts[1].mountPath")],
        ),
        (
            with_container(volumeMounts=[{"name": "v", "mountPath": "/x", "subPath": "../y"}]),
            [("Invalid", "spec.containers[0].volumeMounts[0].subPath")],
        ),
        (
            with_container(ports=[{"containerPort": 70000}]),
            [("Invalid", "spec.containers[0].ports[0].containerPort")],
        ),
        (with_container(env=[{"name": "A=B"}]), [("Invalid", "spec.containers[0].env[0].name")]),
        (
            with_container(env=[{"name": "A", "valueFrom": {}}]),
            [("Invalid", "spec.containers[0].env[0].valueFrom")],
        ),
        (with_container(envFrom=[{}]), [("Invalid", "spec.containers[0].envFrom[0]")]),
        (
            with_container(livenessProbe={"periodSeconds": 1}),
            [("Required", "spec.containers[0].livenessProbe")],
        ),
        (with_container(startupProbe={"grpc": {"port": 9000, "service": "trainer"}}), []),
        (
            with_container(livenessProbe={"grpc": {}}, readinessProbe={"grpc": {"port": 70000}}),
            [("Invalid", f"spec.containers[0].{kind}Probe.grpc.port") for kind in ("liveness", "readiness")],
        ),
        (
            with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}),
            [("Invalid", "spec.containers[0].resources.requests")],
        ),
        (
            with_container(resources={"limits": {"nvidia.com/gpu": "0.5"}}),
            [("Invalid", "spec.containers[0].resources.limits[nvidia.com/gpu]")] * 1
            + [("Invalid", "spec.containers[0].resources.requests[nvidia.com/gpu]")],
        ),
        (
            with_container(resources={"requests": {"nvidia.com/gpu": "1"}}),
            [("Required", "spec.containers[0].resources.limits")],
        ),
        (
            with_container(resources={"limits": {"cpus": "1"}}),
            [("Invalid", f"spec.containers[0].resources.{key}[cpus]") for key in ("limits", "requests")],
        ),
        (
            with_container(resources={"limits": {"cpu": "x"}}),
            [
                ("Invalid", "spec.containers[0].resources.limits[cpu]"),
                ("Invalid", "spec.containers[0].resources.requests[cpu]"),
            ],
        ),
        (pod(restartPolicy="Maybe"), [("NotSupported", "spec.restartPolicy")]),
        (pod(dnsPolicy="None"), [("Required", "spec.dnsConfig.nameservers")]),
        (pod(hostname="a.b"), [("Invalid", "spec.hostname")]),
        (pod(subdomain="a_b"), [("Invalid", "spec.subdomain")]),
        (pod(terminationGracePeriodSeconds=-1), [("Invalid", "spec.terminationGracePeriodSeconds")]),
        (pod(activeDeadlineSeconds=0), [("Invalid", "spec.activeDeadlineSeconds")]),
        (
            pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
            [("Duplicate", "spec.volumes[1].name")],
        ),
        (
            pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            [("Forbidden", "spec.volumes[0].hostPath")],
        ),
        (pod(volumes=[{"name": "v", "secret": {}}]), [("Required", "spec.volumes[0].secret.secretName")]),
        (
            pod(volumes=[{"name": "v", "configMap": {"name": "c", "defaultMode": 9999}}]),
            [("Invalid", "spec.volumes[0].configMap.defaultMode")],
        ),
        (pod(tolerations=[{"operator": "Equal"}]), [("Invalid", "spec.tolerations[0].operator")]),
        (pod(nodeSelector={"a": "b c"}), [("Invalid", "spec.nodeSelector")]),
        (
            pod(schedulingGates=[{"name": "a"}, {"name": "a"}]),
            [("Duplicate", "spec.schedulingGates[1].name")],
        ),
    ],
)
def test_pod_rule(obj, want):
    assert want == told(validate(r.PODS, obj))


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({"name": ""}, [("Required", "metadata.name")]),
        ({"name": "Upper"}, [("Invalid", "metadata.name")]),
        ({"name": "a" * 254}, [("Invalid", "metadata.name")]),
        ({"name": "a.b-c.1"}, []),
        ({"name": "x", "labels": {"a": "-"}}, [("Invalid", "metadata.labels")]),
        ({"name": "x", "labels": {"a/b/c": "v"}}, [("Invalid", "metadata.labels")]),
        ({"name": "x", "labels": {"/a": "v"}}, [("Invalid", "metadata.labels")]),
        ({"name": "x", "labels": {"a": "v" * 64}}, [("Invalid", "metadata.labels")]),
        ({"name": "x", "annotations": {"A.b/C": "any thing\n"}}, []),
        ({"name": "x", "annotations": {"a": "v" * (256 * 1024)}}, [("Invalid", "metadata.annotations")]),
        ({"name": "x", "finalizers": ["a b"]}, [("Invalid", "metadata.finalizers[0]")]),
        (
            {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]},
            [("Invalid", "metadata.ownerReferences[0].uid")],
        ),
        (
            {
                "name": "x",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
                    for uid in "ab"
                ],
            },
            [("Invalid", "metadata.ownerReferences")],
        ),
    ],
)
def test_metadata_rule(metadata, want):
    assert want == told(validate(r.CONFIG_MAPS, {"metadata": metadata}))
    assert want == told(validate(r.MPIJOBS, {"metadata": metadata}))


def test_services_and_namespaces_have_labels_for_names():
    assert told(validate(r.NAMESPACES, {"metadata": {"name": "a.b"}})) == [("Invalid", "metadata.name")]
    service = complete(r.SERVICES, {"metadata": {"name": "1a"}, "spec": {"clusterIP": "None"}})
    assert told(validate(r.SERVICES, service)) == [("Invalid", "metadata.name")]


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (job(), []),
        (job(restart="Always"), [("Required", "spec.template.spec.restartPolicy")]),
        (job(restart="Sometimes"), [("NotSupported", "spec.template.spec.restartPolicy")]),
        (job(parallelism=-1), [("Invalid", "spec.parallelism")]),
        (job(completionMode="Indexed", parallelism=2), [("Required", "spec.completions")]),
        (job(completionMode="Odd"), [("NotSupported", "spec.completionMode")]),
        (job(backoffLimitPerIndex=1), [("Invalid", "spec.backoffLimitPerIndex")]),
        (job(template={"containers": []}), [("Required", "spec.template.spec.containers")]),
        (
            job(manualSelector=True, selector={"matchLabels": {"a": "b"}}),
            [("Invalid", "spec.template.metadata.labels")],
        ),
        (job(manualSelector=True), [("Required", "spec.selector")]),
        (
            job(
                podFailurePolicy={
                    "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]
                }
            ),
            [("Invalid", "spec.podFailurePolicy.rules[0].onExitCodes.values")],
        ),
    ],
)
def test_job_rule(obj, want):
    assert want == told(validate(r.JOBS, obj))


def changed(obj, *path, to):
    result = copy.deepcopy(obj)
    place = result
    for key in path[:-1]:
        place = place.setdefault(key, {}) if isinstance(key, str) else place[key]
    place[path[-1]] = to
    return result


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        (("spec", "parallelism"), 5, []),
        (("spec", "suspend"), True, []),
        (("spec", "backoffLimit"), 1, []),
        (("spec", "completions"), 5, [("Invalid", "spec.completions")]),
        (("spec", "completionMode"), "Indexed", [("Invalid", "spec.completionMode")]),
        (("spec", "template", "spec", "containers", 0, "image"), "y", [("Invalid", "spec.template")]),
        (("spec", "template", "spec", "nodeSelector"), {"a": "b"}, [("Invalid", "spec.template")]),
    ],
)
def test_running_job_keeps_its_template(path, value, want):
    old = job()

    assert want == told(validate(r.JOBS, changed(old, *path, to=value), old))


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        (("spec", "template", "spec", "nodeSelector"), {"a": "b"}, []),
        (("spec", "template", "metadata", "annotations"), {"a": "b"}, []),
        (("spec", "template", "spec", "tolerations"), [{"operator": "Exists"}], []),
        (("spec", "template", "spec", "containers", 0, "image"), "y", [("Invalid", "spec.template")]),
    ],
)
def test_suspended_job_may_be_steered_before_it_starts(path, value, want):
    old = job(suspend=True)
    new = changed(old, *path, to=value)

    assert want == told(validate(r.JOBS, new, old))
    started = changed(old, "status", "startTime", to="2026-01-01T00:00:00Z")
    assert told(validate(r.JOBS, new, started)) == [("Invalid", "spec.template")]


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        (("spec", "containers", 0, "image"), "other", []),
        (("spec", "activeDeadlineSeconds"), 5, []),
        (("metadata", "labels"), {"a": "b"}, []),
        (("spec", "nodeName"), "n", [("Forbidden", "spec")]),
        (("spec", "containers", 0, "command"), ["x"], [("Forbidden", "spec")]),
        (("spec", "containers"), [CONTAINER, {**CONTAINER, "name": "d"}], [("Forbidden", "spec.containers")]),
        (("spec", "schedulingGates"), [{"name": "g"}], [("Forbidden", "spec.schedulingGates")]),
        (("spec", "tolerations"), [], [("Forbidden", "spec.tolerations")]),
    ],
)
def test_pod_changes_little_after_creation(path, value, want):
    old = pod()

    assert want == told(validate(r.PODS, changed(old, *path, to=value), old))


def test_gated_pod_may_be_steered_and_freed():
    old = pod(schedulingGates=[{"name": "g"}])
    new = changed(changed(old, "spec", "schedulingGates", to=[]), "spec", "nodeSelector", to={"a": "b"})

    assert validate(r.PODS, new, old) == []


def test_status_writes_are_not_held_to_the_rules_of_the_spec():
    broken = pod(containers=[])

    assert validate(r.PODS, broken, broken, subresource="status") == []


@pytest.mark.parametrize(
    ("resource", "obj", "want"),
    [
        (r.SERVICES, {"spec": {}}, [("Required", "spec.ports")]),
        (r.SERVICES, {"spec": {"clusterIP": "None"}}, []),
        (r.SERVICES, {"spec": {"type": "ExternalName"}}, [("Required", "spec.externalName")]),
        (
            r.SERVICES,
            {"spec": {"ports": [{"port": 1}, {"port": 2}]}},
            [("Required", f"spec.ports[{n}].name") for n in (0, 1)],
        ),
        (r.SERVICES, {"spec": {"ports": [{"port": 0}]}}, [("Invalid", "spec.ports[0].port")]),
        (
            r.SERVICES,
            {"spec": {"clusterIP": "x", "ports": [{"port": 1}]}},
            [("Invalid", "spec.clusterIPs[0]")],
        ),
        (r.CONFIG_MAPS, {"data": {"a b": ""}}, [("Invalid", "data[a b]")]),
        (r.CONFIG_MAPS, {"data": {"..x": ""}}, [("Invalid", "data[..x]")]),
        (r.CONFIG_MAPS, {"data": {"a": ""}, "binaryData": {"a": ""}}, [("Invalid", "binaryData[a]")]),
        (r.CONFIG_MAPS, {"data": {"a": "x" * (1 << 20)}}, [("TooLong", "data")]),
        (r.CONFIG_MAPS, {"data": {"a": 1}}, [("TypeInvalid", "data[a]")]),
        (r.SECRETS, {"type": "kubernetes.io/ssh-auth"}, [("Required", "data[ssh-privatekey]")]),
        (r.SECRETS, {"data": {"a": "?"}}, [("Invalid", "data[a]")]),
        (r.PRIORITY_CLASSES, {"value": 2_000_000_000}, [("Forbidden", "value")]),
        (r.PRIORITY_CLASSES, {"preemptionPolicy": "Often"}, [("NotSupported", "preemptionPolicy")]),
        (r.LEASES, {"spec": {"leaseDurationSeconds": 0}}, [("Invalid", "spec.leaseDurationSeconds")]),
        (
            r.EVENTS,
            {"metadata": {"name": "e", "namespace": "a"}, "involvedObject": {"namespace": "b"}},
            [("Invalid", "involvedObject.namespace")],
        ),
    ],
)
def test_rule_of_the_smaller_kinds(resource, obj, want):
    assert want == told(validate(resource, complete(resource, obj)))


@pytest.mark.parametrize(
    ("resource", "old", "new", "want"),
    [
        (
            r.CONFIG_MAPS,
            {"immutable": True, "data": {}},
            {"immutable": True, "data": {"a": "b"}},
            [("Forbidden", "data")],
        ),
        (r.CONFIG_MAPS, {"immutable": True}, {}, [("Forbidden", "immutable")]),
        (r.CONFIG_MAPS, {}, {"immutable": True, "data": {"a": "b"}}, []),
        (r.SECRETS, {"type": "a"}, {"type": "b"}, [("Invalid", "type")]),
        (r.PRIORITY_CLASSES, {"value": 1}, {"value": 2}, [("Forbidden", "value")]),
        (
            r.SERVICES,
            {"spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 1}]}},
            {"spec": {"clusterIP": "10.96.0.2", "ports": [{"port": 1}]}},
            [("Invalid", "spec.clusterIPs[0]")],
        ),
    ],
)
def test_what_may_not_change(resource, old, new, want):
    assert want == told(validate(resource, complete(resource, new), complete(resource, old)))


def make_crd(**spec):
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"plural": "foos", "kind": "Foo"}
    return {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
            **spec,
        },
    }


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (make_crd(), []),
        (make_crd(scope="Everywhere"), [("NotSupported", "spec.scope")]),
        (make_crd(versions=[]), [("Required", "spec.versions")]),
        (
            make_crd(versions=[{"name": "v1", "storage": True}]),
            [("Required", "spec.versions[0].schema.openAPIV3Schema")],
        ),
        (make_crd(group="example.org"), [("Invalid", "metadata.name")]),
        (
            make_crd(versions=make_crd()["spec"]["versions"] * 2),
            [("Duplicate", "spec.versions[1].name"), ("Invalid", "spec.versions")],
        ),
    ],
)
def test_crd_rule(obj, want):
    assert want == told(validate(r.CRDS, obj))


def test_names_of_a_crd_stay():
    new = make_crd(names={"plural": "foos", "kind": "Fooo"})

    assert told(validate(r.CRDS, new, make_crd())) == [("Invalid", "spec.names.kind")]


def test_all_broken_rules_come_at_once():
    broken = pod(containers=[{"name": "A"}, {"image": "x"}], restartPolicy="x")

    assert len(validate(r.PODS, broken)) == 4


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        ({"spec": {"containers": 3}}, "spec.containers"),
        ({"spec": {"containers": [3]}}, "spec.containers[0]"),
        ({"spec": {"hostNetwork": "true"}}, "spec.hostNetwork"),
        ({"spec": {"priority": True}}, "spec.priority"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels[a]"),
        ({"metadata": {"creationTimestamp": "yesterday"}}, "metadata.creationTimestamp"),
        ({"spec": {"nodeSelector": []}}, "spec.nodeSelector"),
        ({"spec": "x"}, "spec"),
    ],
)
def test_values_of_another_type_are_told_first(obj, want):
    assert [want] == [error.path for error in type_errors(r.PODS, obj)]
    assert [want] == [error.path for error in validate(r.PODS, obj)]


def test_null_is_the_same_as_absent():
    obj = {"metadata": {"creationTimestamp": None, "labels": {}}, "spec": {"containers": None}}

    kept, found = known_fields(r.PODS, obj)

    assert (kept, found.unknown, found.errors) == ({"metadata": {"labels": {}}, "spec": {}}, [], [])
    assert known_fields(r.MPIJOBS, {"any": 1, "no": None})[0] == {"any": 1}


def test_unknown_fields_are_named_and_dropped():
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "imag": "x"}], "contaners": []},
        "stauts": {},
    }
    before = copy.deepcopy(obj)

    result, found = known_fields(r.PODS, obj)

    assert found.unknown == ["spec.containers[0].imag", "spec.contaners", "stauts"]
    assert result == {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    assert obj == before


def test_object_without_unknown_fields_comes_back_itself():
    obj = pod()

    assert known_fields(r.PODS, obj)[0] is obj
