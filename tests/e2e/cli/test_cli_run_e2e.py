"""`gangline run` from start to result: exit codes, failed ranks, broken input, interruption."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

FAILING = """\
import os, signal, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], flush=True)
if rank == 1:
    print("about to fail", file=sys.stderr, flush=True)
    {how}
time.sleep(600)
"""


def test_a_program_runs_on_every_rank_with_torchs_variables(gangline, tmp_path):
    (tmp_path / "show.py").write_text(
        "import os\n"
        "names = 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT'.split()\n"
        "print(' '.join(f'{name}={os.environ[name]}' for name in names), os.getcwd(), flush=True)\n"
    )
    result = gangline("run", "-n", "2", "--", "python3", "show.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    assert len(lines) == 2
    for rank, line in enumerate(lines):
        assert f"RANK={rank} WORLD_SIZE=2 LOCAL_RANK={rank} LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1" in line
        assert line.endswith(str(tmp_path))
    assert "MPIJob default/show succeeded after" in result.stderr


def test_two_runs_of_a_program_never_meet_at_one_port(gangline, tmp_path):
    (tmp_path / "a.py").touch()
    shown = [gangline("run", "-n", "2", "--dry-run", "--", "python3", "a.py", cwd=tmp_path) for _ in range(3)]

    ports = {re.search(r"MASTER_PORT=(\d+)", run.stdout)[1] for run in shown}
    assert len(ports) > 1, "another cluster's job of that name would take the port before rank 0 does"


def test_ranks_on_two_nodes_run_in_two_pods(gangline, tmp_path):
    (tmp_path / "where.py").write_text("import os, socket\nprint('host', os.uname().nodename, flush=True)\n")
    result = gangline("run", "-n", "2", "--nodes", "2", "--", "python3", "where.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {line.split()[-1] for line in result.stdout.splitlines()} == {"where-worker-0", "where-worker-1"}
    report = json.loads(gangline("get", "where", "-o", "json").stdout)
    assert report["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("name", "how", "words", "code"),
    [
        ("fail", "sys.exit(3)", "exited with code 3", 3),
        ("killed-rank", "os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9 (SIGKILL)", 137),
    ],
)
def test_a_rank_that_dies_ends_the_run_and_is_named(gangline, tmp_path, name, how, words, code):
    (tmp_path / f"{name}.py").write_text(FAILING.format(how=how))
    result = gangline("run", "-n", "2", "--", "python3", f"{name}.py", cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert f"rank 1 in pod {name}-launcher {words}" in result.stderr
    assert "[1] about to fail" in result.stdout
    assert "prterun" not in result.stderr
    assert result.stderr.rstrip().endswith(words)
    why = f"rank 1 in pod {name}-launcher {words}"
    assert json.loads(gangline("get", name, "-o", "json").stdout)["reason"] == why
    explained = " ".join(gangline("explain", name).stdout.split())
    assert explained == f"mpijob default/{name} failed: {why}"


def test_an_exception_on_one_rank_ends_those_that_wait_for_it(gangline, tmp_path):
    (tmp_path / "boom.py").write_text(
        "import time\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1:\n    raise KeyError('lost')\ntime.sleep(600)\n"
    )
    result = gangline("run", "-n", "2", "--nodes", "2", "--", sys.executable, "boom.py", cwd=tmp_path)

    assert result.returncode == 1, result.stderr
    assert "[1] KeyError: 'lost'" in result.stdout
    assert result.stderr.rstrip().endswith("rank 1 in pod boom-worker-1 raised KeyError")


def test_a_pods_exit_code_becomes_the_commands(gangline, pod_manifest):
    result = gangline("run", str(pod_manifest("seven", "echo out; exit 7")))
    assert (result.returncode, result.stdout) == (7, "out\n")
    assert "pod seven exited with code 7" in result.stderr
    report = json.loads(gangline("get", "seven", "-o", "json").stdout)
    assert report["reason"] == "pod seven exited with code 7"


def test_a_finished_job_of_the_name_is_replaced_and_that_is_said(gangline, pod_manifest):
    first = gangline("run", str(pod_manifest("again", "echo one")))
    second = gangline("run", str(pod_manifest("again", "echo two")))
    assert (first.stdout, second.stdout) == ("one\n", "two\n")
    assert "replaced" in second.stderr


def test_what_can_never_run_is_refused_before_anything_is_created(gangline, pod_manifest):
    more = "      resources: {requests: {cpu: 4k}}\n"
    result = gangline("run", str(pod_manifest("huge", "true", more=more)))
    assert result.returncode == 4
    assert "cpu 4000" in result.stderr
    assert gangline("get", "pod/huge").returncode == 2


def test_an_unknown_image_is_refused_with_a_hint(gangline, pod_manifest):
    result = gangline("run", str(pod_manifest("image", "true", image="nobody/nothing:1")))
    assert result.returncode == 2
    assert "image.yaml:9:" in result.stderr
    assert "gangline/base" in result.stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run"], "nothing to run"),
        (["run", "job.yaml", "--yes"], "--try is not given"),
        (["run", "-n", "2", "--nodes", "3", "--", "true"], "a node would have no rank"),
        (["run", "-n", "0", "--", "true"], "-n must be"),
        (["run", "-n", "2", "--", "no-such-program"], "in no folder of your PATH"),
        (["run", "missing.yaml"], "cannot read `missing.yaml`"),
        (["run", "job.yaml", "-n", "2"], "-n belongs to programs behind `--`"),
        (["run", "plain.py"], "hint: gangline run -n 2 -- python plain.py"),
        (["run", "-n", "3", "plain.py"], "hint: gangline run -n 3 -- python plain.py"),
        (["rnu"], "did you mean `run`?"),
        (["get", "no-such-job"], "no job `no-such-job`"),
    ],
)
def test_bad_input_is_one_clear_error_with_exit_code_2(gangline, words, part):
    result = gangline(*words)
    assert result.returncode == 2, result.stderr
    assert part in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_interrupt_deletes_the_job_and_waits(gangline, pod_manifest, until, number, code):
    process = gangline.start("run", str(pod_manifest("stopped", "echo on; exec sleep 600")))
    assert process.stdout.readline() == "on\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "nothing is left running" in err
    assert gangline("delete", "pod/stopped").returncode == 2, "it is there no more"
    assert json.loads(gangline("get", "pod/stopped", "-o", "json").stdout)["status"] == "CANCELLED"


# Four seconds are more than a deleted job itself takes to go.
SAVES = """\
import os, signal, sys, time
asked = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: asked.append(1))
if os.environ["RANK"] == "0":
    print('@gangline {"kind":"saves-when-asked"}', file=sys.stderr, flush=True)
print("ready", flush=True)
while not asked:
    time.sleep(0.02)
time.sleep(4)
print("saved", os.environ["RANK"], flush=True)
"""


@pytest.mark.parametrize("ends_by", ["delete", "interrupt"])
def test_what_ranks_say_while_they_save_in_the_grace_period_is_shown(gangline, tmp_path, until, ends_by):
    (tmp_path / "saves.py").write_text(SAVES)
    output = (tmp_path / "output").open("wb")
    name = f"saves-{ends_by}"
    process = gangline.start(
        "run", "--name", name, "-n", "2", "--", "python3", "saves.py", cwd=tmp_path, stdout=output
    )
    until(lambda: (tmp_path / "output").read_text().count("ready") == 2, "both ranks")

    if ends_by == "delete":
        assert gangline("delete", name).returncode == 0
    else:
        process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)

    lines = (tmp_path / "output").read_text().splitlines()
    assert {"saved 0", "[1] saved 1"} <= set(lines), error
    assert ("was deleted before it ended" if ends_by == "delete" else "nothing is left running") in error


def test_two_interrupts_detach_and_say_how_to_come_back(gangline, pod_manifest):
    process = gangline.start("run", str(pod_manifest("left", "echo on; exec sleep 600")))
    assert process.stdout.readline() == "on\n"
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.stderr.readline() + process.stderr.readline() + process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "gangline logs -f left" in err
    assert json.loads(gangline("get", "left", "-o", "json").stdout)["status"] == "RUNNING"
    assert gangline("delete", "left").stdout == "pod/left deleted\n"


def test_a_killed_command_leaves_a_job_that_the_same_command_follows(gangline, held_pod):
    manifest, let_go = held_pod("killed")
    process = gangline.start("run", manifest)
    assert process.stdout.readline() == "on\n"
    process.kill()
    process.communicate()
    again = gangline.start("run", manifest)
    assert again.stdout.readline() == "on\n"
    let_go()
    out, err = again.communicate(timeout=60)
    assert (again.returncode, out) == (0, "off\n"), err
    assert "following it" in err


def test_an_interrupted_follower_leaves_the_job_of_the_command_that_started_it(gangline, pod_manifest):
    manifest = str(pod_manifest("shared", "echo on; exec sleep 600"))
    first = gangline.start("run", manifest)
    assert first.stdout.readline() == "on\n"
    second = gangline.start("run", manifest)
    assert second.stdout.readline() == "on\n"

    second.send_signal(signal.SIGINT)

    _, err = second.communicate(timeout=60)
    assert second.returncode == 130
    assert "detached from Pod default/shared, which another command started and which goes on" in err
    assert "gangline delete shared" in err
    assert json.loads(gangline("get", "shared", "-o", "json").stdout)["status"] == "RUNNING"
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130


def test_a_job_of_the_name_with_another_specification_is_not_touched(gangline, pod_manifest):
    process = gangline.start("run", str(pod_manifest("busy", "echo on; exec sleep 600")))
    assert process.stdout.readline() == "on\n"
    other = gangline("run", str(pod_manifest("busy", "echo other")))
    assert other.returncode == 2
    assert "another specification" in other.stderr
    assert "gangline delete busy" in other.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_a_command_that_is_not_there_is_said_at_once(gangline, pod_manifest):
    manifest = pod_manifest("misspelt", "true")
    manifest.write_text(manifest.read_text().replace("command: [sh,", "command: [shh,"))
    result = gangline("run", str(manifest))
    assert result.returncode == 128, result.stderr
    assert result.stderr.count('pod misspelt, container main: StartError: exec: "shh"') == 2


def test_a_missing_config_map_is_said_before_a_run_and_while_an_applied_pod_waits(
    gangline, pod_manifest, until
):
    manifest = pod_manifest("mapless", "true", more="      volumeMounts: [{name: v, mountPath: /x}]\n")
    manifest.write_text(manifest.read_text() + "  volumes: [{name: v, configMap: {name: absent}}]\n")
    refused = gangline("run", str(manifest))
    assert (refused.returncode, "config map `absent`" in refused.stderr) == (2, True)

    gangline("apply", str(manifest))

    until(lambda: 'configmap "absent" not found' in gangline("get", "mapless").stdout, "the reason")
    assert "PENDING" in gangline("get", "mapless").stdout
    gangline("delete", "mapless")


def read_lines_and_close(process, count):
    """Read like `head`: some lines, then close."""
    for _ in range(count):
        process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    return process.wait(timeout=60), err


def test_a_closed_output_stops_following_and_leaves_the_job_running(gangline, pod_manifest):
    line = "i=0; while true; do echo $i; i=$((i+1)); sleep 0.01; done"
    code, err = read_lines_and_close(gangline.start("run", str(pod_manifest("headed", line))), 3)
    assert code == 141
    assert "Traceback" not in err
    assert "gangline logs -f headed" in err
    assert json.loads(gangline("get", "headed", "-o", "json").stdout)["status"] == "RUNNING"
    code, err = read_lines_and_close(gangline.start("logs", "-f", "headed"), 3)
    assert (code, err) == (141, "")
    gangline("delete", "headed")


def test_an_output_on_a_full_disk_is_an_error_with_the_way_on(gangline, pod_manifest):
    manifest = pod_manifest("full", "echo one")
    with Path("/dev/full").open("w") as full:
        process = gangline.start("run", str(manifest), stdout=full)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 3, err
    assert "cannot write the output" in err
    assert "hint: free some space" in err
    assert "Traceback" not in err


def test_the_time_taken_is_never_less_than_what_the_program_took(gangline, pod_manifest):
    result = gangline("run", str(pod_manifest("timed", "sleep 1.2")))
    took_s = float(result.stderr.partition(" after ")[2].split()[0])
    assert took_s >= 1.2, result.stderr


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ([], 0, "Usage: gangline"),
        (["help"], 0, "Usage: gangline"),
        (["help", "run"], 0, "Usage: gangline run"),
        (["apply"], 2, "nothing to apply"),
        (["apply", "-f", "missing.yaml"], 2, "cannot read `missing.yaml`"),
        (["logs", "-t", "-1", "x"], 2, "-t must be 0 or more"),
        (["run", "--namespace", "ml", "--", "true"], 3, "kubectl create namespace ml"),
        (["delete", "a1", "b2"], 2, "no job `a1` in namespace `default`; no job `b2`"),
    ],
)
def test_words_of_newcomers_are_understood(gangline, words, code, part):
    gangline("up")
    result = gangline(*words)
    assert result.returncode == code, result.stderr
    assert part in (result.stderr if code else result.stdout)


def test_a_cold_start_says_so_and_the_pods_are_counted_by_role(fresh):
    result = fresh("run", "-n", "1", "--", "true")
    assert "started cluster `default` in" in result.stderr
    assert "`gangline down` ends it" in result.stderr
    again = fresh("run", "-n", "1", "--", "sh", "-c", "sleep 1")
    assert "started cluster" not in again.stderr
    assert "launcher on 1 node" in again.stderr


def test_a_rank_that_is_stopped_is_named_with_its_process_on_this_machine(gangline, tmp_path):
    """The clusters' pods have process ids of their own in some modes; the reader has not."""
    (tmp_path / "stop.py").write_text(
        "import os, signal, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    print('on again', flush=True)\n"
    )
    process = gangline.start("run", "-n", "2", "--", "python3", "stop.py", cwd=tmp_path)
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if "is stopped" in line:
            break
    named = re.search(r"default/stop: rank 1 \(process (\d+)\) is stopped .* kill -CONT (\d+)$", lines[-1])
    assert named, lines
    assert named[1] == named[2]
    os.kill(int(named[2]), signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "on again" in out
