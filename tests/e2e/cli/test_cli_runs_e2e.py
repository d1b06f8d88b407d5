"""Runs stay: names of their own; results and logs after deletion, interruption, `down`, a killed command."""

from __future__ import annotations

import json
import os
import signal

import pytest

SCRIPT = """\
import json, os, sys, time
rank = os.environ["RANK"]
if rank == "0":
    record = {"kind": "progress", "step": 3, "steps": 9, "rate": 12.5, "unit": "images", "loss": 0.25}
    print("@gangline " + json.dumps(record), flush=True)
    print("hello", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
if rank == "1":
    sys.exit(int(sys.argv[2]))
if int(sys.argv[2]):
    time.sleep(600)  # until it is ended: Open MPI names no rank that fails when all others have ended well
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def program(script):
    """Words that run the script until the file ``go`` is there; the last one is rank 1's exit code."""
    return ("--", "python3", str(script / "train.py"), str(script / "go"))


def runs(commands, *words):
    result = commands("runs", *words, "-o", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def states(commands):
    return {report["name"]: report["status"] for report in runs(commands)}


def test_two_runs_of_one_script_at_the_same_time_have_names_of_their_own(fresh, script, program, until):
    first = fresh.start("run", "-n", "2", "--code", str(script), *program, "0")
    second = fresh.start("run", "-n", "2", "--code", str(script), *program, "3")
    until(lambda: states(fresh) == {"train": "RUNNING", "train-2": "RUNNING"}, "both to run")

    taken = fresh("run", "-n", "2", "--name", "train", "--code", str(script), *program, "0")
    assert taken.returncode == 2
    assert "a run of that name goes on" in taken.stderr
    assert "gangline logs -f train" in taken.stderr

    (script / "go").touch()
    ends = {
        first.communicate(timeout=120)[1]: first.returncode,
        second.communicate(timeout=120)[1]: second.returncode,
    }
    assert sorted(ends.values()) == [0, 3], ends
    found = {report["name"]: report for report in runs(fresh)}
    assert set(found) == {"train", "train-2"}
    [failed] = [report for report in found.values() if report["status"] == "FAILED"]
    assert (failed["exitCode"], failed["failedRank"]) == (3, 1)
    assert f"rank 1 in pod {failed['name']}-launcher exited with code 3" in failed["reason"]
    assert failed["command"].endswith("go 3")
    assert failed["metrics"] == {"step": 3, "steps": 9, "rate": 12.5, "unit": "images", "loss": 0.25}
    assert [report["name"] for report in runs(fresh, "--failed")] == [failed["name"]]
    (listed,) = [job for job in json.loads(fresh("list", "-o", "json").stdout) if job["status"] == "FAILED"]
    cause = {"kind": "Exited", "rank": 1, "pod": f"{failed['name']}-launcher", "exitCode": 3}
    assert (listed["reason"], listed["cause"]) == (failed["reason"], cause)
    assert len(runs(fresh, "--limit", "1")) == 1

    third = fresh("run", "-n", "2", "--code", str(script), *program, "0")
    assert "MPIJob default/train-3 succeeded" in third.stderr


def test_a_run_stays_after_deletion_interruption_and_down(fresh, script, program, until):
    (script / "go").touch()
    done = fresh("run", "-n", "2", "--name", "done", "--code", str(script), *program, "0")
    assert done.returncode == 0, done.stderr
    fresh("delete", "done")
    (script / "go").unlink()
    process = fresh.start("run", "-n", "2", "--name", "cut", "--code", str(script), *program, "0")
    assert process.stdout.readline() == "hello\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    process = fresh.start("run", "-n", "2", "--name", "down", "--code", str(script), *program, "0")
    assert process.stdout.readline() == "hello\n"
    assert fresh("down").returncode == 0
    process.communicate(timeout=120)

    for words in (["get", "nothing"], ["logs", "nothing"], ["explain", "nothing"]):
        unknown = fresh(*words)
        assert unknown.returncode == 3
        assert "no past run is called `nothing`, and cluster" in unknown.stderr
        assert "gangline runs" in unknown.stderr
    assert states(fresh) == {"done": "SUCCEEDED", "cut": "CANCELLED", "down": "CANCELLED"}
    assert fresh("logs", "done").stdout == "hello\n"
    for name in ("done", "cut", "down"):
        assert fresh("logs", name).stdout.startswith("hello\n")
        assert json.loads(fresh("logs", name, "--records").stdout)["loss"] == 0.25
        assert fresh("logs", name, "--tail", "0").stdout == ""
    [launcher] = json.loads(fresh("get", "done", "-o", "json").stdout)["instances"]
    assert fresh("logs", "done", "-i", launcher["name"]).stdout == "hello\n"
    assert "SUCCEEDED" in fresh("get", "done").stdout
    assert json.loads(fresh("get", "cut", "-o", "json").stdout)["status"] == "CANCELLED"
    assert fresh("explain", "down").stdout.startswith("mpijob default/down was cancelled")
    assert not json.loads(fresh("status", "-o", "json").stdout or "{}").get("ready"), "nothing was started"
    for line in ("logs", "get", "explain"):
        unknown = fresh(line, "never")
        assert unknown.returncode == 3
        assert "gangline runs" in unknown.stderr


def test_a_run_whose_command_was_killed_is_recorded_to_its_end(fresh, script, program, until):
    process = fresh.start("run", "-n", "2", "--code", str(script), *program, "4")
    assert process.stdout.readline() == "hello\n"
    process.kill()
    process.communicate()
    until(lambda: states(fresh) == {"train": "RUNNING"}, "the record of the run")
    (script / "go").touch()
    until(lambda: states(fresh) == {"train": "FAILED"}, "the end of the run")
    assert runs(fresh)[0]["exitCode"] == 4


def test_a_manifest_that_is_run_again_keeps_each_run_apart(fresh, pod_manifest):
    for word in ("one", "two"):
        assert fresh("run", str(pod_manifest("again", f"echo {word}"))).returncode == 0
    newest, older = runs(fresh, "again")
    assert (newest["name"], older["name"]) == ("again", "again")
    assert fresh("logs", "again").stdout == "two\n"
    assert fresh("logs", older["id"][:8]).stdout == "one\n"
    removed = fresh("runs", "delete", older["id"][:8])
    assert removed.stderr == "1 run removed\n"
    assert fresh("logs", older["id"][:8]).returncode == 2
    assert fresh("logs", "again").stdout == "two\n"


def test_no_secret_of_the_environment_is_kept_and_no_other_user_may_read(fresh, script, program):
    (script / "go").touch()
    line = ("run", "-n", "2", "-e", "HF_TOKEN=hf_secret", "--code", str(script), *program, "0")
    assert fresh(*line).returncode == 0
    folder = fresh.home / "default" / "runs"
    [file] = folder.iterdir()
    assert "hf_secret" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0


def test_a_damaged_record_is_told_and_the_others_are_shown(fresh, pod_manifest):
    assert fresh("run", str(pod_manifest("good", "echo good"))).returncode == 0
    assert fresh("run", str(pod_manifest("bad", "echo bad"))).returncode == 0
    fresh("down")
    [file] = (fresh.home / "default" / "runs").glob("*_bad_*")
    file.write_bytes(b'{"job":')
    result = fresh("runs")
    assert result.returncode == 0
    assert "good" in result.stdout
    assert "cannot read run `bad`" in result.stderr
    assert "Traceback" not in result.stderr
    damaged = fresh("logs", "bad")
    assert damaged.returncode == 1
    hint = damaged.stderr.partition("hint: `gangline ")[2].partition("`")[0]
    assert fresh(*hint.split()).returncode == 0
    assert fresh("runs").stderr == ""
    assert fresh("up").returncode == 0


def test_a_disk_that_refuses_the_record_harms_no_run(fresh, script, program):
    (script / "go").touch()
    (fresh.home / "default").mkdir(mode=0o700)
    (fresh.home / "default" / "runs").write_text("in the way")
    result = fresh("run", "-n", "2", "--code", str(script), *program, "0")
    assert (result.returncode, result.stdout) == (0, "hello\n"), result.stderr
    assert fresh("runs").stderr.startswith("no runs yet")


def test_the_size_that_the_user_sets_is_kept_the_oldest_first(fresh, pod_manifest, until):
    fresh.environment["GANGLINE_RUNS_SIZE"] = "much"
    refused = fresh("up")
    assert refused.returncode == 2
    assert "GANGLINE_RUNS_SIZE=much is no size" in refused.stderr
    fresh.environment["GANGLINE_RUNS_SIZE"] = "300k"
    for name in ("old", "new"):
        line = (
            "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done"
        )
        assert fresh("run", str(pod_manifest(name, line))).returncode == 0
        fresh("delete", name)
    until(lambda: set(states(fresh)) == {"new"}, "the oldest run to go")
    logs = [path.name for path in (fresh.home / "default" / "logs").iterdir()]
    assert [name.split("_")[1] for name in logs] == ["new"]


def test_runs_are_removed_by_age_and_all_but_those_that_go_on(fresh, script, program, pod_manifest):
    for name in ("old", "young"):
        assert fresh("run", str(pod_manifest(name, "echo on"))).returncode == 0
    [old] = (fresh.home / "default" / "runs").glob("*_old_*")
    week_ago_s = old.stat().st_mtime - 7 * 86400
    os.utime(old, (week_ago_s, week_ago_s))
    assert fresh("runs", "delete", "--older-than", "6d").stderr == "1 run removed\n"
    process = fresh.start("run", "-n", "2", "--code", str(script), *program, "0")
    assert process.stdout.readline() == "hello\n"
    refused = fresh("runs", "delete", "train")
    assert refused.returncode == 2
    assert "gangline delete train" in refused.stderr
    assert fresh("runs", "delete", "--all").stderr == "1 run removed\n"
    assert states(fresh) == {"train": "RUNNING"}
    (script / "go").touch()
    assert process.communicate(timeout=120) and process.returncode == 0


@pytest.mark.parametrize("columns", [80, 140])
def test_the_list_fits_the_terminal(fresh, pod_manifest, columns, on_terminal):
    name = "a-name-that-is-as-long-as-they-come"
    assert fresh("run", str(pod_manifest(name, "echo on; exit 7"))).returncode == 7
    shown = on_terminal(fresh, columns, "runs")
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert "failed (7)" in shown


@pytest.fixture
def on_terminal():
    """Run a command with its output on a terminal of so many columns."""
    import fcntl
    import pty
    import struct
    import termios

    def run(commands, columns: int, *words: str) -> str:
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        del commands.environment["COLUMNS"]
        process = commands.start(*words, stdout=follower)
        os.close(follower)
        data = b""
        try:
            while piece := os.read(leader, 65536):
                data += piece
        except OSError:  # how a terminal tells that its last writer went
            pass
        process.communicate(timeout=60)
        os.close(leader)
        return data.decode().replace("\r\n", "\n")

    return run


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["stop", "train"], "gangline delete train"),
        (["kill", "-9", "train"], "gangline delete train"),
        (["rm", "train"], "gangline delete train"),
        (["cancel"], "gangline delete NAME"),
        (["describe", "job", "train"], "gangline get -e train"),
        (["attach", "train"], "gangline logs -f train"),
    ],
)
def test_commands_of_other_tools_lead_to_the_one_that_does_it(gangline, words, part):
    result = gangline(*words)
    assert result.returncode == 2
    assert part in result.stderr
    assert result.stdout == ""


def test_ps_lists_jobs_and_history_lists_runs(gangline):
    gangline("up")
    assert gangline("ps").returncode == 0
    assert gangline("history").returncode == 0


def test_the_help_says_how_long_runs_are_kept(gangline):
    text = gangline("runs", "--help").stdout
    assert "30 days, 1 GiB and 1000" in " ".join(text.split())
    assert "GANGLINE_RUNS_SIZE" in text
