"""A cause is a value; its words are made in one place."""

import pytest

from gangline.workloads.job_outcome import JobOutcome, cause_of
from gangline.workloads.outcome import Cause, CauseKind, LaunchFailure, cause_of_code


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause(CauseKind.EXITED, rank=3, pod="w-1", exit_code=3), "rank 3 in pod w-1 exited with code 3"),
        (cause_of_code(137, rank=0), "rank 0 was killed by signal 9 (SIGKILL)"),
        (cause_of_code(2, of_launcher=True), "the launcher exited with code 2"),
        (Cause(CauseKind.EXITED, pod="pi", exit_code=2, of_launcher=True), "pod pi exited with code 2"),
        (Cause(CauseKind.ENDED, host="b", pod="pi-worker-1"), "a rank in pod pi-worker-1 ended badly"),
        (Cause(CauseKind.HOST_LOST, host="b"), "the connection to host `b` was lost"),
        (Cause(CauseKind.POD_ENDED, pod="w", exit_code=3), "pod w ended with exit code 3"),
        (Cause(CauseKind.POD_ENDED, pod="w", signal=9), "pod w ended with signal 9 (SIGKILL)"),
        (Cause(CauseKind.RAISED, rank=1, exit_code=1, detail="KeyError"), "rank 1 raised KeyError"),
    ],
)
def test_a_cause_has_words_of_its_own(cause: Cause, words: str) -> None:
    assert str(cause) == words


def test_a_cause_is_told_to_programs_without_what_is_not_known() -> None:
    cause = Cause(CauseKind.SIGNALLED, rank=0, pod="pi-worker-0", signal=9)

    assert cause.as_values() == {"kind": "Signalled", "rank": 0, "pod": "pi-worker-0", "signal": 9}


@pytest.mark.parametrize(
    ("kind", "is_failure"), [(CauseKind.HOST_LOST, True), (CauseKind.HOST_UNREACHED, False)]
)
def test_only_a_lost_host_makes_a_job_fail_that_says_it_succeeded(kind: CauseKind, is_failure: bool) -> None:
    job = {"kind": "MPIJob", "metadata": {"name": "pi"}, "spec": {}}
    told = LaunchFailure(Cause(kind, host="was lost"))

    assert (cause_of(JobOutcome(job, [], "SUCCEEDED", 0, told)) is not None) == is_failure
