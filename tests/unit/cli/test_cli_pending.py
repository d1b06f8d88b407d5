"""Why a pod does not start is said as soon as its status or an event says it, and only once."""

import pytest

from gangline.api.resources import MPIJOBS
from gangline.client.run.advice import advice_for
from gangline.client.run.follow import Follower
from gangline.workloads.pending import GANG_WAITED, is_silent, pending_reason_of, tries

NOT_FOUND = 'exec: "mpirunn": executable file not found in $PATH'
START_ERROR = {"terminated": {"exitCode": 128, "reason": "StartError", "message": NOT_FOUND}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
MOUNT = 'MountVolume.SetUp failed for volume "v": configmap "nope" not found'


def why_pending(pod, warnings=()):
    return str(pending_reason_of(pod, warnings) or "")


def pod(state, *, last=None, phase="Pending", role="launcher", restart_policy="OnFailure"):
    status = {"name": "main", "state": state, "lastState": last or {}}
    labels = {"training.kubeflow.org/job-name": "pi", "training.kubeflow.org/job-role": role}
    return {
        "metadata": {"name": "pi-x", "namespace": "default", "uid": "u1", "labels": labels},
        "spec": {"restartPolicy": restart_policy},
        "status": {"phase": phase, "containerStatuses": [status]},
    }


def job(kind="MPIJob", **spec):
    return {"kind": kind, "metadata": {"name": "pi", "namespace": "default", "uid": "j"}, "spec": spec}


def warning(reason, message, uid="u1"):
    return {"reason": reason, "message": message, "involvedObject": {"kind": "Pod", "uid": uid}}


def test_a_command_that_is_not_there_reads_the_same_before_and_during_the_back_off():
    first = pending_reason_of(pod(START_ERROR, phase="Running"))
    later = pending_reason_of(pod(BACK_OFF, last=START_ERROR, phase="Running"))

    assert first == later
    assert str(first) == f"pod pi-x, container main: StartError: {NOT_FOUND}"


def test_a_container_that_fails_again_and_again_says_its_exit_code():
    last = {"terminated": {"exitCode": 3, "reason": "Error"}}

    text = "pod pi-x, container main: CrashLoopBackOff: it is started again after it exited with code 3"
    assert why_pending(pod(BACK_OFF, last=last, phase="Running")) == text


def test_a_volume_that_cannot_be_mounted_is_found_in_the_status_or_in_an_event():
    with_message = {"waiting": {"reason": "ContainerCreating", "message": MOUNT}}

    assert why_pending(pod(with_message)) == f"pod pi-x, container main: FailedMount: {MOUNT}"
    assert is_silent(pod(CREATING))
    assert why_pending(pod(CREATING), [warning("FailedMount", MOUNT)]) == f"pod pi-x: FailedMount: {MOUNT}"
    assert why_pending(pod(CREATING), [warning("FailedMount", MOUNT, uid="other")]) == ""
    assert why_pending(pod(CREATING), [warning("Unhealthy", "x")]) == ""


def test_a_program_that_ran_and_failed_is_not_held_up():
    assert pending_reason_of(pod({"terminated": {"exitCode": 1, "reason": "Error"}}, phase="Failed")) is None


@pytest.mark.parametrize(
    ("owner", "role", "policy", "words"),
    [
        (job(), "launcher", "OnFailure", "up to 6 times"),
        (job(runPolicy={"backoffLimit": 1}), "launcher", "Never", "once"),
        (job(runPolicy={"backoffLimit": 0}), "launcher", "Never", ""),
        (job("Job", backoffLimit=3), "", "OnFailure", "up to 3 times"),
        (job("Pod"), "", "Always", "without end"),
        (job("Pod"), "", "Never", ""),
    ],
)
def test_it_is_said_how_often_kubernetes_tries_again_and_how_to_stop(owner, role, policy, words):
    found = pod(START_ERROR, role=role, restart_policy=policy)

    assert words in tries(owner, found)
    assert ("Ctrl-C" in advice_for(owner, found, pending_reason_of(found))) == bool(words)


class Listener:
    def __init__(self):
        self.reasons = []

    def pods_changed(self, job, pods):
        pass

    def pending_reason_of(self, job, pod, reason):
        self.reasons.append(reason.kind)

    def notice(self, job, text):
        self.reasons.append(text)


def test_a_reason_is_told_once_and_again_when_it_changes():
    heard = Listener()
    follower = Follower(None, MPIJOBS, job(), heard)
    follower._start_log = lambda pod: None

    for state, last in [(CREATING, None), (START_ERROR, None), (BACK_OFF, START_ERROR), (START_ERROR, None)]:
        follower._take_pods([pod(state, last=last)])
    follower._take_pods([pod({"waiting": {"reason": "ErrImagePull", "message": "no"}})])

    assert heard.reasons == ["StartError", "ErrImagePull"]


def gang_pod(uid, reason="", message="", disruption="", phase="Pending"):
    conditions = [{"type": "DisruptionTarget", "status": "True", "message": disruption}] if disruption else []
    if reason:
        conditions += [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            {"type": GANG_WAITED, "status": "True", "reason": reason},
        ]
    found = pod({"running": {}} if phase == "Running" else CREATING, phase=phase)
    found["metadata"] |= {"uid": uid, "name": f"pi-{uid}"}
    found["status"]["conditions"] = conditions
    return found


def test_a_gang_that_gives_way_says_to_whom_and_then_each_wait_once():
    heard = Listener()
    follower = Follower(None, MPIJOBS, job(), heard)
    follower._start_log = lambda pod: None
    gave_way = "gave way to default/urgent, which has a higher priority"

    follower._take_pods([gang_pod(uid, phase="Running") for uid in ("u1", "u2")])
    follower._take_pods([gang_pod(uid, disruption=gave_way, phase="Running") for uid in ("u1", "u2")])
    for number, reason in enumerate(["NoRoom", "BackOff", "NoRoom", "NoRoom", "BackOff"]):
        new = (f"v{number}", f"w{number}")
        follower._take_pods([gang_pod(uid, reason, f"waits: {reason}") for uid in new])

    assert heard.reasons == [gave_way, "NoRoom", "BackOff"]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [("NoRoom", "gangline explain"), ("NeverFits", "can never start here"), ("Incomplete", "missing pods")],
)
def test_a_gang_that_waits_is_said_once_for_all_of_its_pods(reason, advice):
    waiting = pod(CREATING)
    message = "gang default/pi waits: needs 8 nvidia.com/gpu on one node; best node a has 6 free"
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            {"type": GANG_WAITED, "status": "True", "reason": reason},
        ],
    }
    other = {**waiting, "metadata": {**waiting["metadata"], "name": "pi-y", "uid": "u2"}}
    found = pending_reason_of(waiting)

    assert found == pending_reason_of(other)
    assert (found.scope, found.kind, str(found)) == ("gang", reason, message)
    assert advice in advice_for(job(), waiting, found)


def test_whose_wait_it_is_is_not_read_from_the_message():
    waiting = pod(CREATING)
    message = "gang default/pi waits: needs 8 nvidia.com/gpu"
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": message}],
    }

    assert pending_reason_of(waiting).scope == "pod"
