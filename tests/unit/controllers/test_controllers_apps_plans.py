"""What workloads want next, as values. The shell that carries it out is tested in tests/integration."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, REPLICA_SETS
from gangline.clock import format_time
from gangline.cluster.controllers.apps.daemon_set import node_of, plan_daemon_set
from gangline.cluster.controllers.apps.deployment import plan_deployment, template_hash
from gangline.cluster.controllers.apps.plan import (
    ApiWrite,
    Failure,
    Seen,
    WorkloadObject,
    WorkloadPlan,
    selects,
)
from gangline.cluster.controllers.apps.replica_set import plan_replica_set
from gangline.cluster.controllers.apps.rollout import count_of
from gangline.cluster.controllers.apps.stateful_set import plan_stateful_set
from gangline.cluster.controllers.pod_rules import first_to_go

FINE = Failure()
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ME = [{"apiVersion": "apps/v1", "kind": "Owner", "name": "web", "uid": "me", "controller": True}]


def make(name: str = "web", uid: str = "me", *, image: str = "one", **given: Any) -> WorkloadObject:
    metadata = {"name": name, "namespace": "team", "uid": uid, "generation": 1, **given.pop("metadata", {})}
    status = given.pop("status", {})
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"image": image, "name": "c"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template, **given}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, WorkloadObject)


def pod(
    name: str, *, phase: str = "Running", ready_s_ago: float | None = 0, owner: Any = ME, **given: Any
) -> Pod:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "labels": {"app": "web"},
        "ownerReferences": owner,
    }
    metadata["creationTimestamp"] = format_time(NOW)
    metadata |= given.pop("metadata", {})
    conditions = []
    if ready_s_ago is not None:
        since = format_time(NOW - timedelta(seconds=ready_s_ago))
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    status = {"phase": phase, "conditions": conditions}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a", **given}, "status": status}, Pod)


def of_verb(plan: WorkloadPlan, verb: str) -> list[ApiWrite]:
    return [step for step in plan.steps if step.verb == verb]


class TestReplicaSet:
    def plan(self, owner: WorkloadObject, *pods: Pod, failure: Failure = FINE) -> WorkloadPlan:
        return plan_replica_set(REPLICA_SETS, owner, Seen(children={PODS: pods}, failure=failure), NOW)

    def test_makes_what_is_missing_and_counts_neither_ended_nor_deleted_pods(self) -> None:
        deleted = pod("b", metadata={"deletionTimestamp": format_time(NOW)})
        plan = self.plan(make(replicas=3), pod("a"), deleted, pod("c", phase="Failed"))
        made = of_verb(plan, "create")
        assert len(made) == 2
        assert made[0].body["metadata"]["generateName"] == "web-"
        assert made[0].body["metadata"]["ownerReferences"][0]["uid"] == "me"
        assert plan.status["replicas"] == 1
        assert plan.status["terminatingReplicas"] == 1

    def test_removes_pods_that_serve_least_first(self) -> None:
        pending = pod("pending", phase="Pending", ready_s_ago=None)
        unready = pod("unready", ready_s_ago=None)
        dear = pod("dear", metadata={"annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"}})
        plan = self.plan(make(replicas=1), dear, pod("cheap"), unready, pending)
        assert [step.meta.name for step in of_verb(plan, "delete")] == ["pending", "unready", "cheap"]

    def test_adopts_what_it_selects_and_releases_what_it_selects_no_more(self) -> None:
        orphan = pod("orphan", owner=[])
        stray = pod("stray", metadata={"labels": {"app": "other"}})
        plan = self.plan(make(replicas=1), orphan, stray)
        changed = {
            step.meta.name: step.body["metadata"]["ownerReferences"] for step in of_verb(plan, "patch")
        }
        assert changed["stray"] is None
        assert changed["orphan"][0]["uid"] == "me"
        assert not of_verb(plan, "create")

    def test_a_pod_is_available_when_it_has_been_ready_for_long_enough(self) -> None:
        plan = self.plan(
            make(replicas=2, minReadySeconds=10), pod("a", ready_s_ago=10), pod("b", ready_s_ago=4)
        )
        assert (plan.status["readyReplicas"], plan.status["availableReplicas"]) == (2, 1)
        assert plan.requeue_after_s == 6

    def test_says_that_pods_could_not_be_made(self) -> None:
        plan = self.plan(make(replicas=1), failure=Failure("Forbidden", "quota exceeded"))
        condition = plan.status["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert not self.plan(make(replicas=1, status=plan.status)).status.get("conditions")

    def test_leaves_everything_to_others_once_it_is_deleted(self) -> None:
        gone = make(replicas=3, metadata={"deletionTimestamp": format_time(NOW)})
        assert self.plan(gone, pod("a", owner=[])).steps == ()


class TestDeployment:
    def replica_set(
        self, owner: WorkloadObject, *, image: str, replicas: int, available: int, revision: int, **more: Any
    ) -> WorkloadObject:
        template = make(image=image).template
        template["metadata"]["labels"] |= {"pod-template-hash": image}
        annotations = {
            "deployment.kubernetes.io/revision": str(revision),
            "deployment.kubernetes.io/desired-replicas": str(owner.replicas),
            "deployment.kubernetes.io/max-replicas": "5",
        }
        metadata = {"labels": template["metadata"]["labels"], "ownerReferences": ME, "generation": 1}
        metadata |= {"annotations": annotations | more.pop("annotations", {})}
        metadata |= {"creationTimestamp": format_time(NOW + timedelta(seconds=revision))}
        status = {"replicas": replicas, "availableReplicas": available, "observedGeneration": 1, **more}
        return make(
            f"web-{image}",
            image,
            image=image,
            template=template,
            replicas=replicas,
            metadata=metadata,
            status=status,
        )

    def plan(self, owner: WorkloadObject, *sets: WorkloadObject, failure: Failure = FINE) -> WorkloadPlan:
        return plan_deployment(owner, Seen(children={REPLICA_SETS: sets}, failure=failure), NOW)

    def sizes(self, plan: WorkloadPlan) -> dict[str, int]:
        return {
            step.meta.name: step.body["spec"]["replicas"]
            for step in of_verb(plan, "patch")
            if step.resource == REPLICA_SETS and "replicas" in step.body.get("spec", {})
        }

    def test_makes_a_set_for_its_template_with_the_hash_on_selector_and_pods(self) -> None:
        owner = make(replicas=3)
        plan = self.plan(owner)
        (made,) = of_verb(plan, "create")
        hashed = template_hash(owner.template)
        assert made.body["metadata"]["name"] == f"web-{hashed}"
        assert made.body["spec"]["replicas"] == 3
        assert made.body["spec"]["selector"]["matchLabels"]["pod-template-hash"] == hashed
        assert made.body["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] == hashed
        assert made.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
        reasons = {entry["type"]: entry["reason"] for entry in plan.status["conditions"]}
        assert reasons == {"Progressing": "NewReplicaSetCreated", "Available": "MinimumReplicasUnavailable"}

    def test_counts_a_collision_when_the_name_is_taken(self) -> None:
        plan = self.plan(make(replicas=1), failure=Failure("AlreadyExists", "taken"))
        assert plan.status["collisionCount"] == 1
        (made,) = of_verb(plan, "create")
        assert made.body["metadata"]["name"] == f"web-{template_hash(make().template, 1)}"

    @pytest.mark.parametrize(
        ("bounds", "old", "new", "expected"),
        [
            # 4 wanted: up to 5 pods, at least 3 available
            ({"maxSurge": "25%", "maxUnavailable": "25%"}, (4, 4), (0, 0), {"web-two": 1}),
            ({"maxSurge": "25%", "maxUnavailable": "25%"}, (4, 4), (1, 0), {"web-one": 3}),
            ({"maxSurge": 0, "maxUnavailable": 1}, (4, 4), (0, 0), {"web-one": 3}),
            ({"maxSurge": 1, "maxUnavailable": 0}, (4, 4), (1, 0), {}),
            ({"maxSurge": 1, "maxUnavailable": 0}, (4, 4), (1, 1), {"web-one": 3}),
            # what does not serve goes first, however little may be unavailable
            ({"maxSurge": 1, "maxUnavailable": 0}, (4, 2), (1, 1), {"web-one": 3}),
        ],
    )
    def test_rolls_within_its_bounds(self, bounds: Any, old: Any, new: Any, expected: Any) -> None:
        owner = make(image="two", replicas=4, strategy={"type": "RollingUpdate", "rollingUpdate": bounds})
        plan = self.plan(
            owner,
            self.replica_set(owner, image="one", replicas=old[0], available=old[1], revision=1),
            self.replica_set(owner, image="two", replicas=new[0], available=new[1], revision=2),
        )
        assert self.sizes(plan) == expected

    def test_recreate_waits_for_the_last_old_pod_to_end(self) -> None:
        owner = make(image="two", replicas=2, strategy={"type": "Recreate"})
        old = self.replica_set(owner, image="one", replicas=2, available=2, revision=1)
        assert self.sizes(self.plan(owner, old)) == {"web-one": 0}
        going = self.replica_set(
            owner, image="one", replicas=0, available=0, revision=1, terminatingReplicas=1
        )
        assert not of_verb(self.plan(owner, going), "create")
        gone = self.replica_set(owner, image="one", replicas=0, available=0, revision=1)
        (made,) = of_verb(self.plan(owner, gone), "create")
        assert made.body["spec"]["replicas"] == 2
        assert made.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"

    def test_going_back_gives_the_old_set_the_next_revision_and_remembers_the_former(self) -> None:
        owner = make(image="one", replicas=2)
        plan = self.plan(
            owner,
            self.replica_set(owner, image="one", replicas=0, available=0, revision=1),
            self.replica_set(owner, image="two", replicas=2, available=2, revision=2),
        )
        annotations = next(
            step.body["metadata"]["annotations"]
            for step in of_verb(plan, "patch")
            if "deployment.kubernetes.io/revision-history"
            in step.body.get("metadata", {}).get("annotations", {})
        )
        assert annotations["deployment.kubernetes.io/revision"] == "3"
        assert annotations["deployment.kubernetes.io/revision-history"] == "1"

    def test_scaling_in_mid_rollout_is_shared_in_proportion(self) -> None:
        owner = make(
            image="two", replicas=10, strategy={"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 2}}
        )
        before = {
            "deployment.kubernetes.io/desired-replicas": "5",
            "deployment.kubernetes.io/max-replicas": "6",
        }
        plan = self.plan(
            owner,
            self.replica_set(owner, image="one", replicas=4, available=4, revision=1, annotations=before),
            self.replica_set(owner, image="two", replicas=2, available=0, revision=2, annotations=before),
        )
        assert self.sizes(plan) == {"web-one": 8, "web-two": 4}

    def test_a_paused_one_scales_and_starts_no_new_template(self) -> None:
        owner = make(image="two", replicas=3, paused=True)
        plan = self.plan(owner, self.replica_set(owner, image="one", replicas=1, available=1, revision=1))
        assert self.sizes(plan) == {"web-one": 3}
        assert not of_verb(plan, "create")
        reasons = {entry["type"]: entry["reason"] for entry in plan.status["conditions"]}
        assert reasons["Progressing"] == "DeploymentPaused"

    def test_tells_when_it_is_complete_and_when_it_has_stood_still_for_too_long(self) -> None:
        owner = make(replicas=2, progressDeadlineSeconds=60)
        done = self.replica_set(owner, image="one", replicas=2, available=2, revision=1)
        reasons = {entry["type"]: entry["reason"] for entry in self.plan(owner, done).status["conditions"]}
        assert reasons == {"Progressing": "NewReplicaSetAvailable", "Available": "MinimumReplicasAvailable"}
        stuck = self.replica_set(owner, image="one", replicas=2, available=1, revision=1)
        long_ago = format_time(NOW - timedelta(seconds=61))
        progressing = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": ""}
        progressing |= {"lastUpdateTime": long_ago, "lastTransitionTime": long_ago}
        counts = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1, "conditions": [progressing]}
        late = make(replicas=2, progressDeadlineSeconds=60, status=counts)
        reasons = {entry["type"]: entry["reason"] for entry in self.plan(late, stuck).status["conditions"]}
        assert reasons["Progressing"] == "ProgressDeadlineExceeded"

    def test_forgets_the_oldest_empty_sets_beyond_its_history(self) -> None:
        owner = make(image="three", replicas=1, revisionHistoryLimit=1)
        plan = self.plan(
            owner,
            self.replica_set(owner, image="one", replicas=0, available=0, revision=1),
            self.replica_set(owner, image="two", replicas=0, available=0, revision=2),
            self.replica_set(owner, image="three", replicas=1, available=1, revision=3),
        )
        assert [step.meta.name for step in of_verb(plan, "delete")] == ["web-one"]

    def test_a_second_look_at_what_is_finished_does_nothing(self) -> None:
        owner = make(replicas=4)
        done = self.replica_set(owner, image="one", replicas=4, available=4, revision=1)
        first = self.plan(owner, done)
        annotations = {"deployment.kubernetes.io/revision": "1"}
        settled = make(replicas=4, metadata={"annotations": annotations}, status=first.status)
        second = self.plan(settled, done)
        assert second.steps == ()
        assert second.status == first.status


@pytest.mark.parametrize(
    ("value", "up", "count"),
    [("25%", True, 2), ("25%", False, 1), (3, True, 3), ("100%", False, 5), ("0%", True, 0)],
)
def test_shares_are_rounded_up_for_surge_and_down_for_what_may_be_missing(
    value: Any, up: bool, count: int
) -> None:
    assert count_of(value, 5, up=up) == count


class TestStatefulSet:
    def settled(self, owner: WorkloadObject, *pods: Pod, revisions: Any = ()) -> WorkloadPlan:
        children = {PODS: pods, CONTROLLER_REVISIONS: revisions}
        return plan_stateful_set(owner, Seen(children=children), NOW)

    def revision(self, owner: WorkloadObject, number: int = 1) -> WorkloadObject:
        (made,) = (s for s in self.settled(owner).steps if s.resource == CONTROLLER_REVISIONS)
        body = {**made.body, "revision": number}
        body["metadata"] = {**body["metadata"], "uid": f"revision-{number}"}
        return msgspec.convert(body, WorkloadObject)

    def of(self, revision: WorkloadObject, name: str, **given: Any) -> Pod:
        labels = {"app": "web", "controller-revision-hash": revision.metadata.name}
        return pod(name, metadata={"labels": labels}, **given)

    def test_starts_one_after_the_other_with_names_and_claims_of_their_own(self) -> None:
        template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
        owner = make(replicas=3, serviceName="peers", volumeClaimTemplates=[template])
        revision = self.revision(owner)
        plan = self.settled(owner, self.of(revision, "web-0"), revisions=[revision])
        (claim,) = (s for s in plan.steps if s.resource == PERSISTENT_VOLUME_CLAIMS)
        (made,) = (s for s in plan.steps if s.resource == PODS)
        assert claim.body["metadata"]["name"] == "data-web-1"
        assert made.body["metadata"]["name"] == made.body["spec"]["hostname"] == "web-1"
        assert made.body["spec"]["subdomain"] == "peers"
        assert made.body["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
        waiting = self.settled(owner, self.of(revision, "web-0", ready_s_ago=None), revisions=[revision])
        assert waiting.steps == ()

    def test_parallel_pods_start_at_once(self) -> None:
        plan = self.settled(make(replicas=3, podManagementPolicy="Parallel"))
        assert len([s for s in plan.steps if s.resource == PODS]) == 3

    def test_shrinks_from_the_last_one_at_a_time(self) -> None:
        owner = make(replicas=1)
        revision = self.revision(owner)
        pods = [self.of(revision, f"web-{number}") for number in range(3)]
        assert [s.meta.name for s in self.settled(owner, *pods, revisions=[revision]).steps] == ["web-2"]

    @pytest.mark.parametrize(("unready", "gone"), [((0, 1, 2), []), ((1, 2), []), ((2,), ["web-2"])])
    def test_shrinking_halts_at_a_pod_that_is_not_the_first_unhealthy_one(
        self, unready: tuple[int, ...], gone: list[str]
    ) -> None:
        owner = make(replicas=0)
        revision = self.revision(owner)
        pods = [
            self.of(revision, f"web-{n}", **({"ready_s_ago": None} if n in unready else {})) for n in range(3)
        ]
        assert [s.meta.name for s in self.settled(owner, *pods, revisions=[revision]).steps] == gone

    def test_updates_from_the_last_down_to_its_partition(self) -> None:
        old = self.revision(make(image="one", replicas=3))
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        status = {"currentRevision": old.metadata.name, "currentReplicas": 3}
        owner = make(image="two", replicas=3, updateStrategy=strategy, status=status)
        new = self.revision(owner, 2)
        pods = [self.of(old, f"web-{number}") for number in range(3)]
        plan = self.settled(owner, *pods, revisions=[old, new])
        assert [s.meta.name for s in plan.steps] == ["web-2"]
        after = self.settled(owner, *pods[:2], self.of(new, "web-2"), revisions=[old, new])
        assert after.steps == ()
        assert after.status["updateRevision"] == new.metadata.name
        assert after.status["currentRevision"] == old.metadata.name
        # one that is lost below the partition comes back as it was
        lost = self.settled(owner, pods[1], self.of(new, "web-2"), revisions=[old, new])
        (made,) = lost.steps
        assert made.body["spec"]["containers"][0]["image"] == "one"

    def test_on_delete_replaces_nothing_of_its_own_accord(self) -> None:
        old = self.revision(make(image="one", replicas=1))
        owner = make(image="two", replicas=1, updateStrategy={"type": "OnDelete"})
        new = self.revision(owner, 2)
        assert self.settled(owner, self.of(old, "web-0"), revisions=[old, new]).steps == ()

    def test_going_back_renumbers_the_revision_that_is_there(self) -> None:
        first, second = self.revision(make(image="one")), self.revision(make(image="two"), 2)
        plan = self.settled(make(image="one", replicas=0), revisions=[first, second])
        assert [(s.verb, s.body) for s in plan.steps] == [("patch", {"revision": 3})]


class TestDaemonSet:
    def node(self, name: str, **given: Any) -> Node:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": name, "labels": given.pop("labels", {})}
        return msgspec.convert({"metadata": metadata, "spec": given, "status": ready}, Node)

    def plan(self, owner: WorkloadObject, nodes: list[Node], *pods: Pod, revisions: Any = ()) -> WorkloadPlan:
        return plan_daemon_set(
            owner, Seen(children={PODS: pods, CONTROLLER_REVISIONS: revisions}, nodes=nodes), NOW
        )

    def targets(self, plan: WorkloadPlan) -> list[str]:
        bodies = [step.body for step in of_verb(plan, "create") if step.resource == PODS]
        return sorted(node_of(msgspec.convert(body, Pod)) for body in bodies)

    def test_has_a_pod_on_each_node_that_it_fits_cordoned_ones_too(self) -> None:
        owner = make()
        owner.template["spec"]["nodeSelector"] = {"gpu": "yes"}
        taint = {"key": "reserved", "effect": "NoSchedule"}
        nodes = [
            self.node("plain"),
            self.node("gpu", labels={"gpu": "yes"}),
            self.node(
                "cordoned",
                labels={"gpu": "yes"},
                unschedulable=True,
                taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            ),
            self.node("reserved", labels={"gpu": "yes"}, taints=[taint]),
        ]
        plan = self.plan(owner, nodes)
        assert self.targets(plan) == ["cordoned", "gpu"]
        assert plan.status["desiredNumberScheduled"] == 2

    def test_stays_where_a_taint_keeps_new_pods_off_and_leaves_where_it_evicts(self) -> None:
        owner = make()
        nodes = [
            self.node("a", taints=[{"key": "k", "effect": "NoSchedule"}]),
            self.node("b", taints=[{"key": "k", "effect": "NoExecute"}]),
        ]
        plan = self.plan(owner, nodes, pod("on-a", nodeName="a"), pod("on-b", nodeName="b"))
        assert [step.meta.name for step in of_verb(plan, "delete")] == ["on-b"]

    def test_replaces_pods_that_have_ended(self) -> None:
        plan = self.plan(make(), [self.node("a")], pod("dead", phase="Failed"))
        assert [step.meta.name for step in of_verb(plan, "delete")] == ["dead"]
        assert plan.events[0][1] == "FailedDaemonPod"

    @pytest.mark.parametrize(
        ("bounds", "deleted", "created"),
        [
            ({"maxUnavailable": 1}, 1, 0),
            ({"maxUnavailable": "50%"}, 2, 0),
            ({"maxSurge": 1, "maxUnavailable": 0}, 0, 1),
        ],
    )
    def test_rolls_within_its_bounds(self, bounds: Any, deleted: int, created: int) -> None:
        owner = make(image="two", updateStrategy={"type": "RollingUpdate", "rollingUpdate": bounds})
        nodes = [self.node(name) for name in "abcd"]
        old = [pod(f"old-{name}", nodeName=name) for name in "abcd"]
        plan = self.plan(owner, nodes, *old)
        assert len(of_verb(plan, "delete")) == deleted
        assert len(self.targets(plan)) == created

    def test_on_delete_replaces_nothing_of_its_own_accord(self) -> None:
        owner = make(image="two", updateStrategy={"type": "OnDelete"})
        assert not of_verb(self.plan(owner, [self.node("a")], pod("old")), "delete")


def test_a_selector_needs_all_labels_and_all_expressions() -> None:
    rule = {"key": "tier", "operator": "In", "values": ["front"]}
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [rule]}
    assert selects(selector, {"app": "web", "tier": "front"})
    assert not selects(selector, {"app": "web"})
    assert not selects({}, {"app": "web"})
    assert selects({"app": "web"}, {"app": "web", "more": "x"})


def test_of_equal_pods_those_on_the_fullest_node_go_first() -> None:
    pods = [pod("a", nodeName="one"), pod("b", nodeName="two"), pod("c", nodeName="two")]
    assert [one.metadata.name for one in first_to_go(pods)][-1] == "a"
