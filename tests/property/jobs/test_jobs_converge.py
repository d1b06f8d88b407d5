"""Whatever happens to a job in whatever order, looking again after a plan was carried out does nothing.

The world here takes plans as an API server would, and plays users, nodes and the Job controller.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gangline.api.core import ConfigMap, Job, ObjectMeta, Pod, Secret, Service
from gangline.api.dns_names import is_dns_1035_label, is_dns_1123_label
from gangline.api.mpijob_reading import read_observed
from gangline.api.pod_group import PodGroup
from gangline.jobs.mpijob import reconcile
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Create, Delete, EnsureKeyPair, Patch, Plan, merge_patch_between
from gangline.jobs.settings import Settings

TYPES: dict[str, Any] = {
    "Service": Service,
    "ConfigMap": ConfigMap,
    "Secret": Secret,
    "Job": Job,
    "Pod": Pod,
    "PodGroup": PodGroup,
}
KEY_PAIR = {"ssh-privatekey": "eA==", "ssh-publickey": "eA=="}
LOOKS_MAX = 8
"""A restart of a gang takes the longest: written down, deleted, made again."""
PHASES = ("Pending", "Running", "Succeeded", "Failed")


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class World:
    """One job and the objects around it."""

    def __init__(self) -> None:
        container = {"name": "main", "image": "image"}
        role = {"template": {"spec": {"containers": [container]}}}
        self.spec: dict[str, Any] = {
            "mpiReplicaSpecs": {"Launcher": role, "Worker": {"replicas": 2, **copy.deepcopy(role)}}
        }
        self.status: dict[str, Any] = {}
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.uids = 0
        self.was_finished = False
        self.annotations: dict[str, str] = {}
        self.settings = Settings()

    def look(self) -> Plan:
        self.now += timedelta(seconds=1)
        meta = ObjectMeta(name="pi", namespace="ns", uid="job", generation=1, annotations=self.annotations)
        typed: dict[str, dict[str, Any]] = {kind: {} for kind in TYPES}
        for (kind, name), wire in self.objects.items():
            typed[kind][name] = msgspec.convert(wire, TYPES[kind])
        observed = ObservedChildren(*typed.values())
        return reconcile(
            read_observed(meta, self.spec, self.status),
            observed,
            self.now,
            raw_status=self.status,
            settings=self.settings,
        )

    def carry_out(self, plan: Plan) -> None:
        for action in plan.actions:
            match action:
                case Create():
                    self.add(action.object)
                case EnsureKeyPair():
                    pair = KEY_PAIR | ({"agent-certificate": "eA=="} if action.has_certificate else {})
                    wanted = {**action.secret, "data": action.secret["data"] | pair}
                    if action.exists:
                        key = wanted["kind"], wanted["metadata"]["name"]
                        assert action.private_key, "pods have the pair"
                        self.objects[key] = merge(self.objects[key], {"data": wanted["data"]})
                    else:
                        self.add(wanted)
                case Patch():
                    key = action.resource.kind, action.name
                    self.objects[key] = merge(self.objects[key], action.body)
                case Delete():
                    wire = self.objects.pop((action.resource.kind, action.name))
                    assert wire["metadata"]["uid"] == action.uid
                    self.collect_garbage(action.uid)
        if plan.status is not None:
            assert merge(self.status, plan.status_patch) == plan.status
            self.status = plan.status

    def add(self, wanted: dict[str, Any]) -> None:
        key = wanted["kind"], wanted["metadata"]["name"]
        assert key not in self.objects, f"{key} is created twice"
        self.uids += 1
        wire = copy.deepcopy(wanted)
        wire["metadata"]["uid"] = str(self.uids)
        self.objects[key] = wire

    def collect_garbage(self, uid: str) -> None:
        for key, wire in list(self.objects.items()):
            if any(owner["uid"] == uid for owner in wire["metadata"].get("ownerReferences", [])):
                del self.objects[key]

    def launcher(self) -> dict[str, Any] | None:
        return self.objects.get(("Job", "pi-launcher"))

    def pods(self, start: str) -> list[dict[str, Any]]:
        return [
            wire for (kind, name), wire in self.objects.items() if kind == "Pod" and name.startswith(start)
        ]


class Life(RuleBasedStateMachine):
    """A user, nodes and the Job controller at work on one job."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def launcher_is_open(self) -> bool:
        launcher = self.world.launcher()
        return launcher is not None and not launcher.get("status", {}).get("conditions")

    @rule(count=st.integers(1, 4))
    def scale(self, count: int) -> None:
        self.world.spec["mpiReplicaSpecs"]["Worker"]["replicas"] = count

    @rule(value=st.booleans())
    def suspend(self, value: bool) -> None:
        self.world.spec.setdefault("runPolicy", {})["suspend"] = value

    @rule(policy=st.sampled_from(["None", "Running", "All"]))
    def clean(self, policy: str) -> None:
        self.world.spec.setdefault("runPolicy", {})["cleanPodPolicy"] = policy

    @rule(policy=st.sampled_from(["AtStartup", "WaitForWorkersReady"]))
    def wait(self, policy: str) -> None:
        self.world.spec["launcherCreationPolicy"] = policy

    @rule(value=st.booleans())
    def launcher_as_worker(self, value: bool) -> None:
        self.world.spec["runLauncherAsWorker"] = value

    @rule(value=st.sampled_from([{}, {"gangline.dev/on-worker-failure": "restart-gang"}]))
    def choose_what_a_failure_means(self, value: dict[str, str]) -> None:
        self.world.annotations = value

    @rule(least=st.none() | st.integers(0, 4))
    def scheduling(self, least: int | None) -> None:
        policy = {} if least is None else {"minAvailable": least}
        self.world.spec.setdefault("runPolicy", {})["schedulingPolicy"] = policy

    @rule(policy=st.sampled_from([None, "All"]))
    def write_an_old_field(self, policy: str | None) -> None:
        self.world.spec["cleanPodPolicy"] = policy

    @rule(gangs=st.sampled_from(["", "volcano", "gangs"]), shell=st.booleans())
    def restart_the_operator(self, gangs: str, shell: bool) -> None:
        if not any(kind == "PodGroup" for kind, _ in self.world.objects):
            self.world.settings = Settings(gang_scheduling=gangs, has_remote_shell=shell)

    @rule(slots=st.integers(-1, 3))
    def slots(self, slots: int) -> None:
        self.world.spec["slotsPerWorker"] = slots

    @rule(data=st.data(), phase=st.sampled_from(PHASES))
    def pod_moves(self, data: st.DataObject, phase: str) -> None:
        pods = self.world.pods("pi-")
        if pods:
            pod = data.draw(st.sampled_from(pods))
            ready = "True" if phase == "Running" else "False"
            pod["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}

    @rule(data=st.data())
    def a_member_of_a_gang_fails(self, data: st.DataObject) -> None:
        self.world.annotations = {"gangline.dev/on-worker-failure": "restart-gang"}
        for pod in self.world.pods("pi-"):
            pod["status"] = {"phase": "Running"}
        workers = self.world.pods("pi-worker-")
        if workers:
            data.draw(st.sampled_from(workers))["status"] = {"phase": "Failed"}

    @rule(data=st.data())
    def object_vanishes(self, data: st.DataObject) -> None:
        if self.world.objects:
            wire = self.world.objects.pop(data.draw(st.sampled_from(sorted(self.world.objects))))
            self.world.collect_garbage(wire["metadata"]["uid"])

    @precondition(launcher_is_open)
    @rule()
    def launcher_pod_appears(self) -> None:
        launcher = self.world.launcher()
        assert launcher is not None
        owner = {"kind": "Job", "name": "pi-launcher", "uid": launcher["metadata"]["uid"], "controller": True}
        name = f"pi-launcher-{self.world.uids}"
        self.world.add(
            {
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "ownerReferences": [owner],
                    "labels": {"training.kubeflow.org/job-role": "launcher"},
                },
            }
        )

    @precondition(launcher_is_open)
    @rule(end=st.sampled_from(["Complete", "Failed"]))
    def launcher_ends(self, end: str) -> None:
        launcher = self.world.launcher()
        assert launcher is not None
        launcher["status"] = {"conditions": [{"type": end, "status": "True"}], "failed": int(end == "Failed")}

    @invariant()
    def settles(self) -> None:
        """A plan carried out leaves nothing to do; finished stays finished; names are good."""
        for _ in range(LOOKS_MAX):
            plan = self.world.look()
            if plan.stages == () and plan.status is None:
                break
            self.world.carry_out(plan)
        again = self.world.look()
        assert again.actions == (), again
        assert again.status is None, again.status_patch
        assert again.events == ()
        self.check_end()
        for kind, name in self.world.objects:
            assert is_dns_1123_label(name)
            assert kind != "Service" or is_dns_1035_label(name)

    def check_end(self) -> None:
        conditions = {c["type"]: c for c in self.world.status.get("conditions", [])}
        ended = [
            type_ for type_ in ("Succeeded", "Failed") if conditions.get(type_, {}).get("status") == "True"
        ]
        if self.world.was_finished:
            assert ended, "a finished job must stay so"
        is_final = bool(ended) and conditions[ended[0]]["reason"] != "ValidationError"
        self.world.was_finished = self.world.was_finished or is_final
        assert len(ended) < 2
        if ended:
            assert self.world.status["completionTime"]
            assert conditions.get("Running", {"status": "False"})["status"] == "False"


TestLife = pytest.mark.timeout(60)(Life.TestCase)
TestLife.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
WITHOUT_NULL = JSON.filter(lambda value: "null" not in msgspec.json.encode(value).decode())
OBJECTS = st.dictionaries(st.text(max_size=2), WITHOUT_NULL, max_size=4)


def test_a_difference_applied_gives_the_new_object() -> None:
    from hypothesis import given

    @given(OBJECTS, OBJECTS)
    def check(old: dict[str, Any], new: dict[str, Any]) -> None:
        patch = merge_patch_between(old, new)

        assert merge(old, patch) == new
        assert bool(patch) == (old != new)

    check()
