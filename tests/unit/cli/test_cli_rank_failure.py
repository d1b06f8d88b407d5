"""Which rank failed, read from what launchers print. Texts of Open MPI 5.0.11 are copied from real runs."""

import pytest

from gangline.launch.rank_failure import LauncherOutput, find_failure

RULE = "-" * 74

OPENMPI5_EXIT = f"""\
[1,0]<stdout>: hello 0
[1,1]<stdout>: hello 1
[1,1]<stderr>: ValueError: boom
{RULE}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-7367@1,1]
   Exit code:    3
{RULE}
"""
OPENMPI5_SIGNAL = f"""\
[1,2]<stdout>: hello 2
{RULE}
prterun noticed that process rank 2 with PID 0 on node pi-worker-1 exited on
signal 11 (Segmentation fault).
{RULE}
"""
OPENMPI5_ABORT = f"""\
[1,2]<stdout>: rank 2
[1,2]<stderr>: {RULE}
[1,2]<stderr>: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD
[1,2]<stderr>:   Proc: [[15332,1],2]
[1,2]<stderr>:   Errorcode: 7
[1,2]<stderr>:
[1,2]<stderr>: NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
{RULE}
prterun has exited due to process rank 2 with PID 0 on node vm calling
"abort". This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).
{RULE}
"""
OPENMPI5_NOT_FOUND = f"""\
{RULE}
prterun was unable to find the specified executable file, and therefore did
not launch the job.  This error was first reported for process rank
0; it may have occurred for other processes as well.

   Node:       pi-worker-0
   Executable: nonexistent-program
{RULE}
"""
OPENMPI5_SLOTS = """\
There are not enough slots available in the system to satisfy the 9
slots that were requested by the application:

  true
"""
OPENMPI5_UNREACHED = """\
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable, or the executable was unable to find its
required supporting libraries.

  Local host:    vm
  Remote host:   pi-worker-1
  Daemon exit status: 255
"""
OPENMPI5_LOST = """\
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-vm-7536@0,0] on node pi-launcher
  Remote daemon: [prterun-vm-7536@0,2] on node pi-worker-1

This is usually due to either a failure of the TCP network
"""
OPENMPI4_EXIT = """\
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[41012,1],3]
  Exit code:    4
"""
OPENMPI4_SIGNAL = """\
mpirun noticed that process rank 1 with PID 4711 on node host-b exited on signal 9 (Killed).
"""
OPENMPI4_ABORT = """\
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
with errorcode 5.
"""
MPICH_EXIT = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT host-b
=   EXIT CODE: 3
=   CLEANING UP REMAINING PROCESSES
"""
MPICH_SIGNAL = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT host-b
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
MPICH_ABORT = (
    "Abort(7) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2\n"
)
MPICH_NOT_FOUND = (
    "[proxy:0@host-b] HYDU_create_process (lib/utils/launch.c:73): execvp error on file foo (No such)\n"
)
INTEL_SIGNAL = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 1 PID 4711 RUNNING AT host-b
=   KILLED BY SIGNAL: 11 (Segmentation fault)
"""


@pytest.mark.parametrize(
    ("text", "rank", "host", "exit_code", "signal", "what"),
    [
        (OPENMPI5_EXIT, 1, "", 3, None, "exited with code 3"),
        (OPENMPI5_SIGNAL, 2, "pi-worker-1", None, 11, "was killed by signal 11 (SIGSEGV)"),
        (OPENMPI5_ABORT, 2, "vm", 7, None, "called MPI_Abort with code 7"),
        (OPENMPI5_NOT_FOUND, 0, "pi-worker-0", None, None, "`nonexistent-program` was not found"),
        (OPENMPI5_SLOTS, None, "", None, None, "9 ranks were asked for, more than there are slots"),
        (OPENMPI5_UNREACHED, None, "pi-worker-1", None, None, "host `pi-worker-1` could not be reached"),
        (OPENMPI5_LOST, None, "pi-worker-1", None, None, "the connection to host `pi-worker-1` was lost"),
        (OPENMPI4_EXIT, 3, "", 4, None, "exited with code 4"),
        (OPENMPI4_SIGNAL, 1, "host-b", None, 9, "was killed by signal 9 (SIGKILL)"),
        (OPENMPI4_ABORT, 0, "", 5, None, "called MPI_Abort with code 5"),
        (MPICH_EXIT, None, "host-b", 3, None, "exited with code 3"),
        (MPICH_SIGNAL, None, "host-b", None, 9, "was killed by signal 9 (SIGKILL)"),
        (MPICH_ABORT, 2, "", 7, None, "called MPI_Abort with code 7"),
        (MPICH_NOT_FOUND, None, "host-b", None, None, "`foo` was not found"),
        (INTEL_SIGNAL, 1, "host-b", None, 11, "was killed by signal 11 (SIGSEGV)"),
    ],
)
def test_a_launcher_names_what_failed(text, rank, host, exit_code, signal, what):
    failure = find_failure(text.splitlines(), 1)
    assert failure is not None
    assert failure.cause.ending.startswith(what)
    cause = failure.cause
    assert (cause.rank, cause.host, cause.exit_code, cause.signal) == (rank, host, exit_code, signal)


def test_the_last_lines_are_those_of_the_rank_that_failed_without_tags():
    failure = find_failure(OPENMPI5_EXIT.splitlines(), 3)
    assert failure is not None
    assert failure.lines == ("hello 1", "ValueError: boom")


def test_only_the_last_twenty_lines_are_kept():
    output = LauncherOutput()
    for number in range(100):
        output.feed(f"[1,1]<stdout>: line {number}")
    for line in OPENMPI5_EXIT.splitlines()[2:]:
        output.feed(line)
    failure = output.failure(3)
    assert failure is not None
    assert len(failure.lines) == 20
    assert failure.lines[0] == "line 81"
    assert failure.lines[-1] == "ValueError: boom"


def test_an_untagged_log_gives_the_launchers_last_lines():
    failure = find_failure(["starting", "cannot read data.csv", ""], 2)
    assert failure is not None
    assert (str(failure.cause), failure.cause.rank) == ("the launcher exited with code 2", None)
    assert failure.lines == ("starting", "cannot read data.csv")


def test_a_shells_exit_code_above_128_is_a_signal():
    failure = find_failure(
        [line.replace("3", "137") if "Exit code" in line else line for line in OPENMPI5_EXIT.splitlines()]
    )
    assert failure is not None
    assert (failure.cause.signal, failure.cause.exit_code) == (9, None)


def test_success_is_no_failure():
    assert find_failure(["[1,0]<stdout>: done"], 0) is None


def test_a_lost_host_is_a_failure_even_when_the_launcher_ends_with_0():
    failure = find_failure(OPENMPI5_LOST.splitlines(), 0)
    assert failure is not None
    assert failure.cause.host == "pi-worker-1"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("[1,3]<stdout>: text", "text"),
        ("[1,3]<stderr>:text", "text"),
        ("[1,3][vm:7467]<stdout>: text", "text"),
        ("[3] text", "text"),
    ],
)
def test_tags_of_every_launcher_are_understood(line, kept):
    output = LauncherOutput()
    output.feed(line)
    output.feed("mpirun noticed that process rank 3 with PID 1 on node h exited on signal 6 (Aborted).")
    failure = output.failure(134)
    assert failure is not None
    assert failure.lines == (kept,)


def test_a_rank_that_says_its_own_end_is_named_where_the_launcher_names_none():
    lines = [
        "[1,0]<stdout>: hello",
        '[1,1]<stdout>: @gangline {"kind":"rank-ended","rank":1,"code":3}',
        '[1,0]<stdout>: @gangline {"kind":"rank-ended","rank":0,"code":143}',
    ]
    found = find_failure(lines, exit_code=3)

    assert found is not None
    assert (found.cause.rank, found.cause.exit_code, found.cause.ending) == (1, 3, "exited with code 3")
    assert find_failure(lines[:1], exit_code=3).cause.rank is None
