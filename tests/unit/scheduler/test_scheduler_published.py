"""What a scheduler writes on its Lease is read back as it was."""

from gangline.scheduler.published import Published


def test_names_and_levels_are_read_back_from_the_lease():
    said = Published(("gangline-scheduler", "second"), ("example.com/block", "example.com/rack"))

    assert Published.of({"metadata": {"annotations": said.annotations}}) == said


def test_a_scheduler_without_levels_says_so():
    said = Published(("gangline-scheduler",))

    assert Published.of({"metadata": {"annotations": said.annotations}}) == said


def test_a_lease_of_another_program_says_nothing():
    assert Published.of({"metadata": {"name": "kube-scheduler"}}) is None
