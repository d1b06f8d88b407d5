"""Which containers start now: init order, sidecars, restart policies, back-off."""

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.node.pods.observed_containers import AttemptEnd, ObservedContainer
from gangline.cluster.node.pods.restart_policy import Step, back_off_s, initialized, next_step

NOW_S = 1000.0


def make_pod(policy="Never", init=(), containers=("main",), sidecars=(), added=()):
    spec = {
        "restartPolicy": policy,
        "initContainers": [
            {"name": name} | ({"restartPolicy": "Always"} if name in sidecars else {}) for name in init
        ],
        "containers": [{"name": name} for name in containers],
        "ephemeralContainers": [{"name": name} for name in added],
    }
    return msgspec.convert({"spec": spec}, Pod)


def ended(name, code, *, at=NOW_S, crashes=0):
    return ObservedContainer(
        name, state="exited", crashes=crashes, ended=AttemptEnd(exit_code=code, finished_at=at)
    )


def running(name):
    return ObservedContainer(name, state="running", ready=True, started=True, started_at=900.0)


def step_of(pod, *known):
    return next_step(pod, {item.name: item for item in known}, NOW_S)


def test_init_containers_start_one_after_the_other():
    pod = make_pod(init=("a", "b"))

    assert step_of(pod) == Step(start=("a",))
    assert step_of(pod, running("a")) == Step()
    assert step_of(pod, ended("a", 0)) == Step(start=("b",))
    assert step_of(pod, ended("a", 0), ended("b", 0)) == Step(start=("main",))


def test_all_main_containers_start_together():
    assert step_of(make_pod(containers=("a", "b"))).start == ("a", "b")


def test_failed_init_container_ends_a_pod_that_never_restarts():
    assert step_of(make_pod(init=("a",)), ended("a", 1)) == Step(ended=True)


def test_failed_init_container_is_tried_again_otherwise():
    assert step_of(make_pod("OnFailure", init=("a",)), ended("a", 1)).start == ("a",)


def test_sidecar_that_has_started_lets_the_others_start_and_does_not_keep_the_pod():
    pod = make_pod(init=("side",), sidecars=("side",))

    assert step_of(pod, running("side")).start == ("main",)
    assert step_of(pod, running("side"), ended("main", 0)) == Step(ended=True)


def test_sidecar_that_runs_and_has_not_started_holds_the_others_back():
    """Its startup probe has not passed yet: Kubernetes starts what comes next only then."""
    pod = make_pod(init=("side", "second"), sidecars=("side",))
    begun = ObservedContainer("side", state="running", started=False, started_at=900.0)

    assert step_of(pod, begun) == Step()
    assert not initialized(pod, {"side": begun, "second": ended("second", 0)})
    assert step_of(pod, running("side")).start == ("second",)
    assert initialized(pod, {"side": running("side"), "second": ended("second", 0)})


def test_sidecar_that_is_started_again_does_not_hold_back_what_runs():
    """Once initialized, a pod stays so: the gate is for the first start."""
    pod = make_pod(init=("side",), sidecars=("side",))

    assert step_of(pod, ended("side", 1), running("main")).start == ("side",)
    assert initialized(pod, {"side": ended("side", 1)})


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
    ],
)
def test_restart_policy_decides_by_exit_code(policy, code, restarts):
    found = step_of(make_pod(policy), ended("main", code))

    assert found == (Step(start=("main",)) if restarts else Step(ended=True))


def test_pod_goes_on_while_one_container_runs():
    assert step_of(make_pod(containers=("a", "b")), ended("a", 1), running("b")) == Step()


def test_second_crash_waits_for_its_back_off():
    found = step_of(make_pod("Always"), ended("main", 1, at=NOW_S - 4, crashes=1))

    assert found == Step(backing_off=(("main", 10.0),), wake_at_s=NOW_S + 6)


def test_container_starts_again_when_the_back_off_is_over():
    assert step_of(make_pod("Always"), ended("main", 1, at=NOW_S - 10, crashes=1)).start == ("main",)


def test_back_off_doubles_to_five_minutes():
    assert [back_off_s(crashes) for crashes in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def with_policy(pod_policy, container_policy, rules=(), *, init=False):
    container = {"name": "main", "restartPolicy": container_policy, "restartPolicyRules": list(rules)}
    spec = {"restartPolicy": pod_policy, "initContainers": [], "containers": [{"name": "other"}]}
    spec["initContainers" if init else "containers"] = [container]
    return msgspec.convert({"spec": spec}, Pod)


RESTART_ON_42 = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
RESTART_BUT_ON_42 = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [42]}}


@pytest.mark.parametrize(
    ("policy", "own", "rules", "code", "restarts"),
    [
        ("Never", "OnFailure", (), 1, True),
        ("Always", "Never", (), 1, False),
        ("Always", "OnFailure", (), 0, False),
        ("Never", "Never", (RESTART_ON_42,), 42, True),
        ("Never", "Never", (RESTART_ON_42,), 1, False),
        ("Never", "Never", (RESTART_BUT_ON_42,), 1, True),
        ("Never", "Never", (RESTART_BUT_ON_42,), 42, False),
    ],
)
def test_a_container_may_have_a_policy_and_rules_of_its_own(policy, own, rules, code, restarts):
    """Kubernetes documentation, "Pod lifecycle", individual container restart policy and rules."""
    found = step_of(with_policy(policy, own, rules), ended("main", code))

    assert found == (Step(start=("main",)) if restarts else Step(ended=True))


def test_an_init_container_with_a_rule_is_tried_again_in_a_pod_that_never_restarts():
    pod = with_policy("Never", "Never", (RESTART_ON_42,), init=True)

    assert step_of(pod, ended("main", 42)).start == ("main",)
    assert step_of(pod, ended("main", 1)) == Step(ended=True)


def test_added_container_starts_once_whatever_the_others_do_and_does_not_keep_the_pod():
    pod = make_pod(init=("a",), added=("debug",))

    assert step_of(pod, running("a")).start == ("debug",)
    assert step_of(pod, running("a"), ended("debug", 1)).start == ()
    assert step_of(pod, ended("a", 0), ended("main", 0)) == Step(ended=True)
    assert step_of(pod, ended("a", 0), ended("main", 0), running("debug")) == Step(ended=True)
