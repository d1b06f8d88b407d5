"""From the shim's reports to what is known of a container."""

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.node.pods.observed_containers import (
    AttemptEnd,
    ObservedContainer,
    as_report,
    conclude,
    lost,
    observe,
    observed_in_status,
)


def report(state="running", attempt=0, **fields):
    base = {"name": "c", "attempt": attempt, "state": state, "started_at": 10.0, "finished_at": 12.0}
    return base | {"exit_code": 0, "signal": 0, "reason": "", "message": ""} | fields


def test_reasons_follow_exit_code_and_memory():
    def reason(**fields):
        oom = fields.pop("oom", False)
        return observe(None, report("exited", **fields), oom=oom).ended.reason

    assert reason(exit_code=0) == "Completed"
    assert reason(exit_code=1) == "Error"
    assert reason(exit_code=137, signal=9) == "Error"
    assert reason(exit_code=137, signal=9, oom=True) == "OOMKilled"
    assert reason(exit_code=128, reason="StartError") == "StartError"


def test_next_attempt_remembers_how_the_one_before_ended():
    first = observe(None, report("exited", exit_code=1))
    second = observe(first, report("running", attempt=1))

    assert (second.attempt, second.crashes, second.state) == (1, 1, "running")
    assert second.before == first.ended


def test_long_run_starts_the_back_off_anew():
    first = observe(None, report("exited", exit_code=1, started_at=0.0, finished_at=601.0))

    assert observe(first, report("running", attempt=1)).crashes == 0


def test_running_container_keeps_what_probes_found():
    ready = ObservedContainer("c", state="running", started_at=10.0, ready=True, started=True)

    assert observe(ready, report("running")).ready


def test_lost_container_failed_and_says_why():
    found = lost(observe(None, report("running")), now_s=20.0, message="killed")

    assert found.ended == AttemptEnd(137, 9, "Error", "killed", 10.0, 20.0, 0)


def test_container_that_had_ended_is_not_lost():
    done = observe(None, report("exited"))

    assert lost(done, now_s=20.0, message="killed") is done


def test_what_was_written_down_decides_when_nobody_watches_any_more():
    seen = {
        "ended meanwhile": observe(None, report("running", name="ended meanwhile")),
        "ran": observe(None, report("running", name="ran")),
        "done": observe(None, report("exited", name="done")),
        "waits": ObservedContainer("waits"),
    }
    written = {
        "ended meanwhile": report("exited", name="ended meanwhile", exit_code=7),
        "ran": report("running", name="ran"),
        "done": report("exited", name="done"),
        "was to start": report("starting", name="was to start"),
    }

    found = conclude(seen, written, now_s=20.0, message="killed")

    codes = {name: one.ended.exit_code if one.ended else None for name, one in found.items()}
    assert codes == {"ended meanwhile": 7, "ran": 137, "done": 0, "waits": None, "was to start": 137}
    assert found["ran"].ended.message == "killed"


def test_an_older_report_does_not_undo_a_later_attempt():
    first = observe(None, report("exited", exit_code=1))
    second = observe(first, report("running", attempt=1))

    found = conclude({"c": second}, {"c": report("exited", exit_code=1)}, now_s=20.0, message="killed")["c"]

    assert (found.attempt, found.ended.exit_code, found.ended.message) == (1, 137, "killed")


def pod_with(**status):
    one = {"name": "c", "restartCount": 0, "state": {}, "lastState": {}} | status
    raw = {"metadata": {"name": "p"}, "status": {"containerStatuses": [one]}}
    return msgspec.convert(raw, Pod)


TERMINATED = {"exitCode": 2, "startedAt": "1970-01-01T00:00:10Z", "finishedAt": "1970-01-01T00:00:12Z"}


@pytest.mark.parametrize(
    ("status", "state", "attempt", "code"),
    [
        ({"state": {"running": {"startedAt": "1970-01-01T00:00:10Z"}}}, "running", 0, None),
        ({"state": {"terminated": TERMINATED}, "restartCount": 1}, "exited", 1, 2),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": TERMINATED},
                "restartCount": 3,
            },
            "exited",
            3,
            2,
        ),
    ],
)
def test_a_status_tells_of_containers_that_have_run(status, state, attempt, code):
    found = observed_in_status(pod_with(**status))["c"]

    assert (found.state, found.attempt) == (state, attempt)
    assert (found.ended.exit_code if found.ended else None) == code


def test_a_container_that_waits_to_start_for_the_first_time_has_not_run():
    assert observed_in_status(pod_with(state={"waiting": {"reason": "ErrImagePull"}})) == {}


def test_an_end_reads_the_same_as_a_report():
    done = observe(None, report("exited", exit_code=3, attempt=2, message="bye"))

    again = observe(None, as_report(done))

    assert (again.state, again.attempt, again.ended) == (done.state, done.attempt, done.ended)
