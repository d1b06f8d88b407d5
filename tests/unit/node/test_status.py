"""The status of a pod: phases, conditions, container states."""

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.node.pods.observed_containers import AttemptEnd, ObservedContainer
from gangline.cluster.node.pods.pod_status import PodFacets, phase_of, pod_status

NOW_S = 1_700_000_000.0
NOW = "2023-11-14T22:13:20Z"


def make_pod(policy="Never", init=(), containers=("main",), **status):
    spec = {
        "restartPolicy": policy,
        "initContainers": [{"name": name} for name in init],
        "containers": [{"name": name, "image": "gangline/base"} for name in containers],
    }
    meta = {"name": "p", "namespace": "ns", "uid": "u1"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def view(**fields):
    base = {"pod_ip": "10.0.0.2", "host_ip": "10.0.0.1", "started_at_s": NOW_S, "sandbox": True}
    return PodFacets(**(base | fields))


def ended(name, code, **fields):
    reason = "Completed" if code == 0 else "Error"
    done = AttemptEnd(exit_code=code, reason=reason, started_at=NOW_S, finished_at=NOW_S)
    return ObservedContainer(name, state="exited", ended=done, **fields)


def running(name, ready=True):
    return ObservedContainer(name, state="running", ready=ready, started=True, started_at=NOW_S)


def by_name(*known):
    return {item.name: item for item in known}


@pytest.mark.parametrize(
    ("pod", "known", "want"),
    [
        (make_pod(), by_name(), "Pending"),
        (make_pod(init=("i",)), by_name(running("i")), "Pending"),
        (make_pod(init=("i",)), by_name(ended("i", 1)), "Failed"),
        (make_pod("OnFailure", init=("i",)), by_name(ended("i", 1)), "Pending"),
        (make_pod(), by_name(running("main")), "Running"),
        (make_pod(), by_name(ended("main", 0)), "Succeeded"),
        (make_pod(), by_name(ended("main", 3)), "Failed"),
        (make_pod("OnFailure"), by_name(ended("main", 0)), "Succeeded"),
        (make_pod("OnFailure"), by_name(ended("main", 3)), "Running"),
        (make_pod("Always"), by_name(ended("main", 0)), "Running"),
        (make_pod(containers=("a", "b")), by_name(ended("a", 1), running("b")), "Running"),
        (make_pod(containers=("a", "b")), by_name(ended("a", 1), ended("b", 0)), "Failed"),
    ],
)
def test_phase_follows_containers_and_restart_policy(pod, known, want):
    assert phase_of(pod, known, view()) == want


@pytest.mark.parametrize(("code", "want"), [(0, "Succeeded"), (143, "Failed")])
def test_stopped_pod_ends_by_its_exit_codes_whatever_the_policy(code, want):
    assert phase_of(make_pod("Always"), by_name(ended("main", code)), view(stopping=True)) == want


def test_final_phase_is_never_left():
    assert phase_of(make_pod(phase="Failed"), by_name(running("main")), view()) == "Failed"


def test_deadline_ends_the_pod_with_its_reason():
    stopped = view(stopping=True, failed_reason="DeadlineExceeded", failed_message="too long")

    found = pod_status(make_pod(), by_name(ended("main", 143)), stopped, NOW_S)

    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "DeadlineExceeded", "too long")


def conditions(pod, known, **fields):
    status = pod_status(pod, known, view(**fields), NOW_S)
    return {item["type"]: item for item in status["conditions"]}


def test_running_pod_is_ready():
    found = conditions(make_pod(), by_name(running("main")))

    want = {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
    assert {name for name, item in found.items() if item["status"] == "True"} == want


def test_pod_that_is_being_stopped_is_not_ready_although_its_containers_are():
    found = conditions(make_pod(), by_name(running("main")), stopping=True)

    assert (found["Ready"]["status"], found["ContainersReady"]["status"]) == ("False", "True")


def test_unready_containers_are_named():
    found = conditions(make_pod(containers=("a", "b")), by_name(running("a"), running("b", ready=False)))

    assert found["Ready"]["reason"] == "ContainersNotReady"
    assert found["Ready"]["message"] == "containers with unready status: [b]"


def test_time_of_a_condition_changes_only_with_its_status():
    known = {"type": "Initialized", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}

    found = conditions(make_pod(conditions=[known, ready]), by_name(running("main")))

    assert found["Initialized"]["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    assert found["Ready"]["lastTransitionTime"] == NOW


def container_status(pod, known, **fields):
    return pod_status(pod, by_name(known), view(**fields), NOW_S)["containerStatuses"][0]


def test_container_that_backs_off_is_waiting_with_its_last_end():
    found = container_status(make_pod("Always"), ended("main", 1, attempt=2), backing_off={"main": 20.0})

    assert found["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 20s restarting failed container=main pod=p_ns(u1)",
    }
    assert found["lastState"]["terminated"]["exitCode"] == 1
    assert found["restartCount"] == 2


def test_container_behind_init_containers_waits_for_them():
    found = container_status(make_pod(init=("i",)), running("i"))

    assert found["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_ended_container_tells_code_and_signal():
    done = AttemptEnd(exit_code=137, signal=9, reason="OOMKilled", started_at=NOW_S, finished_at=NOW_S)

    found = container_status(make_pod(), ObservedContainer("main", state="exited", ended=done))

    assert found["state"]["terminated"] == {
        "exitCode": 137,
        "signal": 9,
        "reason": "OOMKilled",
        "startedAt": NOW,
        "finishedAt": NOW,
    }


@pytest.mark.parametrize(("status", "ready"), [(None, "False"), ("False", "False"), ("True", "True")])
def test_a_pod_is_ready_when_its_gates_hold_too(status, ready):
    conditions = [] if status is None else [{"type": "example.com/in-service", "status": status}]
    pod = make_pod(conditions=conditions)
    pod = msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, readiness_gates=[{"conditionType": "example.com/in-service"}]),
    )

    found = {
        one["type"]: one for one in pod_status(pod, by_name(running("main")), view(), NOW_S)["conditions"]
    }

    assert found["Ready"]["status"] == ready
    assert found["ContainersReady"]["status"] == "True"


def test_init_containers_that_ended_well_are_ready_and_the_others_are_waited_for():
    pod = make_pod(init=("one", "two"))

    status = pod_status(pod, by_name(ended("one", 0), ended("two", 1)), view(), NOW_S)

    assert [found["ready"] for found in status["initContainerStatuses"]] == [True, False]
    initialized = next(found for found in status["conditions"] if found["type"] == "Initialized")
    assert initialized["status"] == "False"
    assert initialized["message"] == "containers with incomplete status: [two]"


def test_init_containers_that_wait_for_others_say_so():
    status = pod_status(make_pod(init=("one", "two")), by_name(running("one")), view(), NOW_S)

    assert status["initContainerStatuses"][1]["state"] == {"waiting": {"reason": "PodInitializing"}}
    told = [found.get("message") for found in status["conditions"] if found["type"] == "Initialized"]
    assert told == ["containers with incomplete status: [one two]"]
