"""Defaults of built-in kinds; expected values from the API reference."""

import base64
import json
from pathlib import Path

import pytest

from gangline.api import resources as r
from gangline.cluster.server.rules.defaults import PriorityOf, apply_defaults
from gangline.cluster.server.rules.pod_defaults import pull_policy, qos_class


def container(**more):
    return {"name": "c", "image": "busybox:1", **more}


def new_pod(*, containers=None, **spec):
    return apply_defaults(
        r.PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers or [container()], **spec}}
    )


def test_new_pod_has_the_defaults_of_the_reference():
    pod = new_pod()

    spec = pod["spec"]
    wanted = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "enableServiceLinks": True,
        "serviceAccountName": "default",
        "serviceAccount": "default",
    }
    assert wanted == {key: spec[key] for key in wanted}
    assert [toleration["tolerationSeconds"] for toleration in spec["tolerations"]] == [300, 300]
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert spec["containers"][0] == container(
        imagePullPolicy="IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        resources={},
    )


def test_values_that_the_user_gave_stay():
    pod = new_pod(restartPolicy="Never", terminationGracePeriodSeconds=0, enableServiceLinks=False)

    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 0)
    assert spec["enableServiceLinks"] is False


def test_update_of_a_pod_adds_no_tolerations_and_keeps_the_status():
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container()]}, "status": {"phase": "Running"}}

    result = apply_defaults(r.PODS, pod, old=pod)

    assert "tolerations" not in result["spec"]
    assert result["status"] == {"phase": "Running"}


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("host:5000/busybox", "Always"),
        ("host:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:abc", "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(image, want):
    assert want == pull_policy(image)


def test_requests_default_to_limits_one_by_one():
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}

    pod = new_pod(containers=[container(resources=resources)])

    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_ports_probes_and_references_are_completed():
    given = container(
        ports=[{"containerPort": 80}],
        readinessProbe={"httpGet": {"port": 80}, "periodSeconds": 0},
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )

    result = new_pod(containers=[given])["spec"]["containers"][0]

    assert result["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert result["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert result["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("volume", "want"),
    [
        ({"configMap": {"name": "c"}}, {"configMap": {"name": "c", "defaultMode": 0o644}}),
        (
            {"secret": {"secretName": "s", "defaultMode": 0o400}},
            {"secret": {"secretName": "s", "defaultMode": 0o400}},
        ),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({}, {"emptyDir": {}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 0o644,
                }
            },
        ),
    ],
)
def test_volumes_get_their_modes(volume, want):
    assert new_pod(volumes=[{"name": "v", **volume}])["spec"]["volumes"] == [{"name": "v", **want}]


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        (
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}},
            "Guaranteed",
        ),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service_follows_from_cpu_and_memory(resources, want):
    assert want == qos_class({"containers": [{"resources": resources}]})


def test_priority_is_what_the_caller_resolved():
    pod = {"spec": {"containers": [container()]}}

    spec = apply_defaults(r.PODS, pod, priority=PriorityOf("high", 100, "Never"))["spec"]

    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("high", 100, "Never")


def make_job(**spec):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [container()], "restartPolicy": "Never"},
    }
    return {"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template, **spec}}


def test_new_job_has_defaults_and_a_selector_of_its_own():
    spec = apply_defaults(r.JOBS, make_job())["spec"]

    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"]) == ("NonIndexed", False)
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"] == {
        "a": "b",
        "controller-uid": "u",
        "batch.kubernetes.io/controller-uid": "u",
        "job-name": "j",
        "batch.kubernetes.io/job-name": "j",
    }
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "tolerations" not in spec["template"]["spec"]


def test_work_queue_job_has_no_completions():
    assert "completions" not in apply_defaults(r.JOBS, make_job(parallelism=3))["spec"]


def test_job_with_a_failure_policy_replaces_failed_pods_only():
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}

    spec = apply_defaults(r.JOBS, make_job(podFailurePolicy=policy))["spec"]

    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


def test_service_ports_lead_to_themselves():
    service = {
        "spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": 0}, {"port": 82, "targetPort": "x"}]}
    }

    spec = apply_defaults(r.SERVICES, service)["spec"]

    assert [port["targetPort"] for port in spec["ports"]] == [80, 81, "x"]
    assert (spec["type"], spec["sessionAffinity"], spec["internalTrafficPolicy"]) == (
        "ClusterIP",
        "None",
        "Cluster",
    )


def test_plain_texts_of_a_secret_become_data():
    secret = apply_defaults(r.SECRETS, {"data": {"a": "eA=="}, "stringData": {"b": "y"}})

    assert secret == {"type": "Opaque", "data": {"a": "eA==", "b": base64.b64encode(b"y").decode()}}


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (r.PODS, json.loads((Path(__file__).parent / "protobuf_bodies.json").read_text())[12]["want"]),
        (r.JOBS, make_job()),
        (r.SERVICES, {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
        (r.SECRETS, {"stringData": {"a": "b"}}),
        (r.PRIORITY_CLASSES, {"value": 3}),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_defaults_are_filled_in_once(resource, obj):
    before = json.dumps(obj)

    once = apply_defaults(resource, obj)

    assert once == apply_defaults(resource, once, old=once)
    assert json.dumps(obj) == before
