"""From the shim's reports to what is known of a container."""

from gangline.local.agent.observed import Ended, Observed, lost, observe


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
    ready = Observed("c", state="running", started_at=10.0, ready=True, started=True)

    assert observe(ready, report("running")).ready


def test_lost_container_failed_and_says_why():
    found = lost(observe(None, report("running")), now_s=20.0, message="killed")

    assert found.ended == Ended(137, 9, "Error", "killed", 10.0, 20.0, 0)


def test_container_that_had_ended_is_not_lost():
    done = observe(None, report("exited"))

    assert lost(done, now_s=20.0, message="killed") is done
