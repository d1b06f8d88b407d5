"""The end of a run in words: rank, pod, exit code or signal, last lines."""

from gangline.client.run.result import failure_of, last_lines
from gangline.launch.rank_failure import find_failure
from gangline.workloads.job_outcome import JobOutcome

EXIT = [
    "[1,0]<stdout>: epoch 1",
    "[1,3]<stderr>: ValueError: boom",
    "-" * 74,
    "prterun detected that one or more processes exited with non-zero status,",
    "thus causing the job to be terminated. The first process to do so was:",
    "   Process name: [prterun-vm-1@1,3]",
    "   Exit code:    3",
    "-" * 74,
]


def outcome(lines, *, status="FAILED", exit_code=3, kind="MPIJob", pods=(), replicas=2, slots=2):
    launcher = {"template": {"spec": {"containers": [{"command": ["mpirun", "-n", "4", "x"]}]}}}
    job = {
        "kind": kind,
        "metadata": {"name": "pi", "namespace": "default", "uid": "u"},
        "spec": {
            "slotsPerWorker": slots,
            "mpiReplicaSpecs": {"Launcher": launcher, "Worker": {"replicas": replicas}},
        },
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": "back-off limit"}]},
    }
    return JobOutcome(job, list(pods), status, exit_code, find_failure(lines, exit_code))


def pod(name, role, code, *, reason="Error"):
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {
        "metadata": {"name": name, "labels": {"training.kubeflow.org/job-role": role}},
        "status": {"containerStatuses": [{"state": state}]},
    }


def test_a_failed_rank_is_named_with_its_pod_and_exit_code():
    error = failure_of(outcome(EXIT))
    assert error is not None
    assert error.message == "MPIJob default/pi failed: rank 3 in pod pi-worker-1 exited with code 3"
    assert error.exit_code == 3


def test_its_last_lines_are_repeated_only_when_others_came_after_them():
    shown = ["last line of rank 3 in pod pi-worker-1:", "  | ValueError: boom"]

    assert last_lines(outcome(EXIT)) == []
    assert last_lines(outcome(EXIT), is_alone=False) == shown
    assert last_lines(outcome([*EXIT, "[1,0]<stdout>: epoch 2"])) == shown
    assert last_lines(outcome([*EXIT, "cleaning up"])) == shown


def test_the_launchers_lines_are_called_the_launchers_and_its_report_is_left_out():
    rule = "-" * 74
    report = [rule, "A call of the launcher failed.", rule]
    pods = [pod("pi-launcher-x", "launcher", 1)]
    lines = ["loading modules", *report, "[1,0]<stdout>: epoch 1"]

    assert last_lines(outcome(lines, exit_code=1, pods=pods)) == [
        "last line of the launcher in pod pi-launcher-x:",
        "  | loading modules",
    ]


def test_lines_without_tags_are_nobodys_rank():
    assert last_lines(outcome(["rank 1 says", *EXIT[2:]], exit_code=3)) == []


def test_a_program_that_could_not_be_started_is_named_with_its_reason():
    broken = pod("pi-launcher-x", "launcher", 128, reason="StartError")
    broken["status"]["containerStatuses"][0] |= {"name": "main"}
    broken["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = 'exec: "mpirunn": not found'
    error = failure_of(outcome([], exit_code=128, pods=[broken]))
    assert error is not None
    assert error.message.endswith('pod pi-launcher-x, container main: StartError: exec: "mpirunn": not found')


def test_a_signal_names_the_host_that_the_launcher_saw():
    line = "prterun noticed that process rank 1 with PID 0 on node pi-worker-0 exited on signal 9 (Killed)."
    error = failure_of(outcome([line], exit_code=137))
    assert error is not None
    assert error.message.endswith("rank 1 in pod pi-worker-0 was killed by signal 9 (SIGKILL)")
    assert error.exit_code == 137


def test_success_is_no_failure():
    assert failure_of(outcome(["[1,0]<stdout>: done"], status="SUCCEEDED", exit_code=0)) is None


def test_a_lost_host_fails_the_run_although_the_launcher_ended_with_0():
    lines = [
        "PRTE has lost communication with a remote daemon.",
        "  HNP daemon   : [prterun-vm-7536@0,0] on node pi-launcher",
        "  Remote daemon: [prterun-vm-7536@0,2] on node pi-worker-1",
    ]
    error = failure_of(outcome(lines, status="SUCCEEDED", exit_code=0))
    assert error is not None
    assert "pi-worker-1" in error.message
    assert error.exit_code == 1


def test_a_worker_that_ended_by_itself_is_named_when_no_rank_is():
    pods = [pod("pi-worker-1", "worker", 137, reason="Error"), pod("pi-launcher-x", "launcher", 1)]
    error = failure_of(outcome(["lost"], exit_code=1, pods=pods))
    assert error is not None
    assert "pod pi-worker-1 ended with signal 9 (SIGKILL)" in error.message


def test_a_pod_that_ran_out_of_memory_is_named_as_such():
    pods = [pod("pi-worker-1", "worker", 137, reason="OOMKilled"), pod("pi-launcher-x", "launcher", 1)]
    error = failure_of(outcome(["lost"], exit_code=1, pods=pods))
    assert error is not None
    assert "pod pi-worker-1 used more memory than its limit allows (OOMKilled)" in error.message


def test_without_any_output_the_jobs_own_reason_is_said():
    error = failure_of(outcome([], exit_code=None))
    assert error is not None
    assert error.message == "MPIJob default/pi failed: back-off limit"


def test_a_job_that_was_deleted_is_a_failure():
    error = failure_of(outcome([], status="DELETED", exit_code=None))
    assert error is not None
    assert "was deleted" in error.message


def test_a_plain_pod_is_named_with_its_exit_code():
    error = failure_of(outcome(["cannot read data"], kind="Pod", exit_code=2, pods=[pod("pi", "", 2)]))
    assert error is not None
    assert error.message == "Pod default/pi failed: pod pi exited with code 2"


def test_a_job_whose_ranks_saved_before_they_ended_says_how_it_goes_on():
    assert "the same command goes on" in failure_of(outcome([], exit_code=75)).hint
    assert not failure_of(outcome([], exit_code=3)).hint
