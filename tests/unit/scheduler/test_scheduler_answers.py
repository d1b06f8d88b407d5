"""What a scheduler answers when it is asked why a gang waits, and where it is asked."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from gangline.api.core import Node, Pod
from gangline.placement import Policy, Workload, explain
from gangline.placement.gangs import Group
from gangline.scheduler.explained.answers import (
    Answers,
    AnswersAt,
    SchedulerAnswer,
    WhyQuestion,
    answer,
    answers_at,
)
from gangline.scheduler.explained.published import Published
from gangline.scheduler.state import SchedulerState

NAMES = ("gangline-scheduler",)


def pod(name: str, cpu: str, *, node: str = "", **labels: str) -> Pod:
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": labels}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "schedulerName": NAMES[0], "containers": [container]}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def state_of(*waiting: tuple[str, str]) -> SchedulerState:
    """Return a node of 4 processors with one pod that holds 2, and pods that wait."""
    state = SchedulerState(NAMES)
    amounts, ready = {"cpu": "4", "pods": "110"}, [{"type": "Ready", "status": "True"}]
    node = {"metadata": {"name": "a"}, "status": {"allocatable": amounts, "conditions": ready}}
    state.take_node(None, msgspec.convert(node, Node))
    state.take_pod(None, pod("runs", "2", node="a"))
    for name, cpu in waiting:
        state.take_pod(None, pod(name, cpu))
    return state


def known(state: SchedulerState) -> object:
    return state.snapshot(), state.table().room.free.tolist(), [one.uid for one in state.waiting()]


def said(state: SchedulerState, key: str) -> SchedulerAnswer:
    return answer(state, state.gangs(), key, Policy(), Workload(), 0.0)


def test_the_scheduler_says_what_a_look_at_the_whole_cluster_says():
    state = state_of(("big", "3"), ("small", "1"))
    found = said(state, "team/big")

    seen = explain(state.snapshot(), state.waiting(), "team/big", now=found.as_of, policy=Policy())
    assert found.explanation == seen
    assert found.explanation is not None and found.explanation.reason == "NoRoom"
    assert (found.explanation.message, found.pods) == ("needs 3 cpu on one node; best node a has 2 free", 1)


def test_answering_changes_nothing_of_what_the_scheduler_knows():
    state = state_of(("big", "3"), ("small", "1"))
    before = known(state)

    fits = said(state, "team/small").explanation

    assert fits is not None and fits.reason == "Fits"
    assert known(state) == before


def test_a_gang_that_does_not_wait_is_not_explained():
    assert said(state_of(), "team/runs").explanation is None


def test_a_group_is_meant_by_its_key():
    state = state_of()
    state.take_group("team/g", Group(key="team/g", min_member=2))
    for name in ("g-0", "g-1"):
        state.take_pod(None, pod(name, "2", **{"scheduling.x-k8s.io/pod-group": "g"}))

    found = said(state, "team/g").explanation
    assert found is not None and (found.gang, found.reason) == ("team/g", "NoRoom")


def lease(answers: str, holder: str = "host-1_0a") -> dict[str, Any]:
    published = Published(names=NAMES, answers=answers)
    metadata = {"namespace": "gangline-system", "annotations": published.annotations}
    return {"metadata": metadata, "spec": {"holderIdentity": holder}}


def test_a_scheduler_on_this_machine_is_asked_directly():
    assert answers_at(lease("127.0.0.1:8081"), "host-1") == AnswersAt("host-1_0a", 8081, "")
    assert answers_at(lease("127.0.0.1:8081"), "host-2") is None  # that is another machine's loopback


def test_a_scheduler_in_a_pod_is_asked_through_the_api_server():
    path = "/api/v1/namespaces/gangline-system/pods/host-1:8081/proxy/explain"
    assert answers_at(lease("0.0.0.0:8081"), "host-2") == AnswersAt("host-1_0a", 0, path)


def test_one_that_does_not_listen_or_leads_no_more_is_not_asked():
    assert answers_at(lease(""), "host-1") is None
    assert answers_at(lease("127.0.0.1:8081", holder=""), "host-1") is None
    assert (
        answers_at({"metadata": {"namespace": "x"}, "spec": {"holderIdentity": "host-1_0a"}}, "host-1")
        is None
    )


def test_a_question_survives_its_way():
    question = WhyQuestion(gang="team/g", workload=Workload())
    assert WhyQuestion.of(dict(parse_qsl(urlencode(question.parameters)))) == question


class Busy:
    """A scheduler in the place of ours."""

    is_synced = True

    def explain(self, gang: str, workload: Workload) -> SchedulerAnswer:
        return said(state_of((gang.partition("/")[2], "3")), gang)


async def test_whoever_leads_answers_under_its_name():
    answers = Answers("host-1_0a")
    answers.scheduler = Busy()  # type: ignore[assignment]  # what is asked of it is there

    found = await answers.answer(WhyQuestion(gang="team/big", workload=Workload()).parameters)

    told = msgspec.json.decode(found.body, type=SchedulerAnswer)
    assert (found.status, told.holder) == (200, "host-1_0a")
    assert told.explanation is not None and told.explanation.reason == "NoRoom"


async def test_one_that_stands_by_does_not_know_and_says_so():
    found = await Answers("host-1_0a").answer(WhyQuestion(gang="team/big", workload=Workload()).parameters)
    assert found.status == 503


async def test_what_is_no_question_is_refused():
    assert (await Answers("x").answer({})).status == 400
