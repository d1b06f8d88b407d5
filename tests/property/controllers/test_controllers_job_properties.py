"""A Job against any fate of its pods: it ends once, counts right, and never runs more than it may."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.core import Pod, is_true
from gangline.clock import format_time
from gangline.cluster.controllers.job_plan import is_finished, plan_job
from gangline.cluster.controllers.job_types import TrackedJob

START = datetime(2026, 1, 1, tzinfo=UTC)
FATES = st.lists(st.sampled_from(["succeed", "fail", "delete", "vanish", "end", "wait"]), max_size=60)


class World:
    """A Job, its pods, and what became of them, as the node agent and users make it."""

    def __init__(self, parallelism: int, completions: int, backoff_limit: int, policy: str) -> None:
        spec = {
            "parallelism": parallelism,
            "completions": completions,
            "backoffLimit": backoff_limit,
            "podReplacementPolicy": policy,
            "template": {"spec": {"restartPolicy": "Never"}},
        }
        metadata = {"name": "job", "namespace": "ns", "uid": "job"}
        self.job = msgspec.convert({"metadata": metadata, "spec": spec}, TrackedJob)
        self.pods: dict[str, Pod] = {}
        self.vanished: dict[str, Pod] = {}
        self.created_count = self.succeeded_count = 0
        self.now = START

    def reconcile(self) -> None:
        self.now += timedelta(hours=1)  # every back-off is over
        plan = plan_job(self.job, list(self.pods.values()), self.now, vanished=list(self.vanished.values()))
        if plan.status is not None:
            self.job = msgspec.structs.replace(self.job, status=plan.status)
        self.vanished.clear()
        for _ in range(plan.create_count):
            self.created_count += 1
            uid = f"pod-{self.created_count}"
            self.put(uid, "Pending")
        for pod in plan.delete:
            self.put(pod.metadata.uid, pod.status.phase, deleted=True)
        again = plan_job(self.job, list(self.pods.values()), self.now)
        if not plan.delete:
            assert (again.status, again.create_count, again.delete) == (None, 0, ())

    def put(self, uid: str, phase: str, *, deleted: bool = False) -> None:
        metadata = {"name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": format_time(self.now)}
        if deleted or (uid in self.pods and self.pods[uid].metadata.deletion_timestamp):
            metadata["deletionTimestamp"] = format_time(self.now)
        self.pods[uid] = msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, Pod)

    def befall(self, fate: str) -> None:
        running = [pod for pod in self.pods.values() if not pod.is_finished]
        if not running:
            return
        uid = running[0].metadata.uid
        if fate == "succeed":
            self.succeeded_count += 1
            self.put(uid, "Succeeded")
        elif fate == "fail":
            self.put(uid, "Failed")
        elif fate == "delete":
            self.put(uid, "Running", deleted=True)
        elif fate == "vanish":
            self.vanished[uid] = self.pods.pop(uid)
        elif fate == "end" and running[0].metadata.deletion_timestamp:
            self.put(uid, "Failed")


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["TerminatingOrFailed", "Failed"]),
    FATES,
)
def test_a_job_ends_once_with_the_right_counts(parallelism, completions, backoff_limit, policy, fates):
    world = World(parallelism, completions, backoff_limit, policy)
    for fate in [*fates, *["end", "succeed"] * 30]:
        world.reconcile()
        active = [
            p for p in world.pods.values() if not p.is_finished and p.metadata.deletion_timestamp is None
        ]
        assert len(active) <= parallelism
        if policy == "Failed":
            assert len([p for p in world.pods.values() if not p.is_finished]) <= parallelism
        if is_finished(world.job):
            break
        world.befall(fate)

    status = world.job.status
    assert is_true(status.conditions, "Complete") != is_true(status.conditions, "Failed")
    assert not [pod for pod in world.pods.values() if not pod.is_finished]
    assert status.active == status.terminating == 0
    if is_true(status.conditions, "Complete"):
        assert status.succeeded >= completions
        assert status.failed <= backoff_limit
    else:
        assert status.failed > backoff_limit


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3))
def test_without_mishaps_exactly_the_completions_run(parallelism, completions, backoff_limit):
    world = World(parallelism, completions, backoff_limit, "Failed")
    while not is_finished(world.job):
        world.reconcile()
        world.befall("succeed")

    assert world.created_count == completions
    assert world.job.status.succeeded == completions
