"""What a scheduler writes on its Lease is read back as it was, and explanations go by it."""

import pytest

from gangline.placement.policy import Policy, Queue
from gangline.scheduler.explained.published import ANNOTATION, Published

POLICY = Policy(levels=("example.com/block", "example.com/rack"), overdue_after_s=60, may_preempt=False)


def test_options_are_read_back_from_the_lease():
    said = Published.from_policy(POLICY, ("gangline-scheduler", "second"), "pool=a")

    assert Published.of({"metadata": {"annotations": said.annotations}}) == said


def test_a_policy_takes_the_options_and_keeps_its_queues():
    queues = {"night": Queue(name="night")}

    found = Published.from_policy(POLICY, ("x",), "").applied(Policy(queues=queues))

    assert (found.levels, found.overdue_after_s, found.may_preempt) == (POLICY.levels, 60, False)
    assert found.may_backfill
    assert found.queues == queues


@pytest.mark.parametrize("annotations", [{}, {ANNOTATION: "?"}], ids=["none", "no JSON"])
def test_a_lease_of_another_program_says_nothing(annotations):
    assert Published.of({"metadata": {"name": "kube-scheduler", "annotations": annotations}}) is None


@pytest.mark.parametrize(
    ("selector", "is_used"), [("", True), ("pool=a", True), ("pool=b", False), ("pool=a,zone=z", False)]
)
def test_nodes_are_used_that_carry_every_label_of_the_selector(selector, is_used):
    assert Published(node_selector=selector).uses({"pool": "a"}) is is_used
