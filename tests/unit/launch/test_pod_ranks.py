"""The ranks of one pod, as the image's own Python starts them: standard library and what came along."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gangline.launch.pods.programs import source_of

FILES = ("pod_ranks.py", "rank_supervisor.py", "unpack_code.py")


@pytest.fixture
def start(tmp_path: Path):
    """Start ranks of a pod from copies of the files, with no package of ours on the path."""
    for name in FILES:
        (tmp_path / name).write_text(source_of(name))

    def run(
        *words: str, pod: int = 0, ranks: int = 3, per_pod: int = 2, restarts: int = 0
    ) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-S", str(tmp_path / "pod_ranks.py"), "--ranks", str(ranks)]
        line += ["--restarts", str(restarts), "--per-pod", str(per_pod), "--master", "first", "--", *words]
        environment = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(pod)}
        return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return run


SHOW = (
    "import os; print(*(os.environ[n] for n in "
    "['RANK','WORLD_SIZE','LOCAL_RANK','LOCAL_WORLD_SIZE','GROUP_RANK','MASTER_ADDR','MASTER_PORT']), end='')"
)


@pytest.mark.parametrize(
    ("pod", "lines"),
    [
        (0, [b"[1,0]<stdout>: 0 3 0 2 0 first 29500", b"[1,1]<stdout>: 1 3 1 2 0 first 29500"]),
        (1, [b"[1,2]<stdout>: 2 3 0 1 1 first 29500"]),
    ],
)
def test_each_rank_is_told_its_place_and_writes_whole_lines_behind_its_tag(start, pod, lines):
    out, _ = start("python3", "-c", SHOW, pod=pod).communicate(timeout=60)

    assert sorted(out.splitlines()) == lines


def test_the_first_rank_that_fails_is_said_ends_the_others_and_gives_its_code(start):
    script = "import os, sys, time; sys.exit(5) if os.environ['RANK'] == '1' else time.sleep(99)"
    process = start("python3", "-c", script)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 5
    assert out == b'@gangline {"kind":"rank-ended","rank":1,"code":5}\n'


def test_a_program_that_is_not_there_is_said_by_its_rank(start):
    process = start("nothing-of-that-name", ranks=1, per_pod=1)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 127
    assert b"[1,0]<stderr>: cannot start: " in out and b"nothing-of-that-name" in out


def test_ranks_may_save_when_the_pod_is_told_to_end(start):
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('on', flush=True); time.sleep(99)"
    )
    process = start("python3", "-c", script, ranks=1, per_pod=1)
    assert process.stdout.readline() == b"[1,0]<stdout>: on\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)

    assert out == b"[1,0]<stdout>: saved\n"
    assert process.returncode == 143  # a pod that is drained has not done its work


def test_what_a_rank_leaves_behind_ends_with_it(start):
    process = start("sh", "-c", "sleep 99 & echo $!", ranks=1, per_pod=1)
    out, _ = process.communicate(timeout=60)

    left = int(out.split()[-1])
    assert not Path(f"/proc/{left}/cmdline").exists() or not Path(f"/proc/{left}/cmdline").read_bytes()


COUNT = """
import os, sys, time
open(sys.argv[1] + "/" + os.environ["RANK"], "a").write("x")
tries = os.path.getsize(sys.argv[1] + "/" + os.environ["RANK"])
assert int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == tries - 1
while os.environ["RANK"] == "1" and not (
    os.path.exists(sys.argv[1] + "/0") and os.path.getsize(sys.argv[1] + "/0") == tries
):
    time.sleep(0.01)
if os.environ["RANK"] == "1":
    sys.exit(0 if tries == int(sys.argv[2]) else 5)
time.sleep(99 if tries < int(sys.argv[2]) else 0)
"""


@pytest.mark.parametrize(("restarts", "code", "starts"), [(0, 5, 1), (1, 5, 2), (2, 0, 3), (9, 0, 3)])
def test_all_ranks_start_again_until_they_end_well_or_did_so_too_often(
    start, tmp_path, restarts, code, starts
):
    process = start("python3", "-c", COUNT, str(tmp_path), "3", ranks=2, restarts=restarts)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == code
    assert [(tmp_path / rank).stat().st_size for rank in "01"] == [starts, starts]
    again = [line for line in out.splitlines() if line.startswith(b"gangline:")]
    assert again == [
        b"gangline: exit code 5: all ranks start again, %d of %d" % (number, restarts)
        for number in range(1, starts)
    ]


def test_a_progress_bar_is_shown_in_lines_while_it_grows(start):
    script = (
        "import sys, time\n"
        "for step in range(31): sys.stderr.write('\\r%d/30' % step); sys.stderr.flush(); time.sleep(0.1)\n"
        "print(file=sys.stderr)"
    )
    began_s = time.monotonic()
    out, _ = start("python3", "-c", script, ranks=1, per_pod=1).communicate(timeout=60)

    lines = out.splitlines()
    assert 2 <= len(lines) <= 2 + time.monotonic() - began_s
    shown = [int(line.rpartition(b": ")[2].rpartition(b"\r")[2].split(b"/")[0]) for line in lines]
    assert shown == sorted(set(shown)) and shown[-1] == 30


def test_ranks_that_were_asked_to_end_do_not_start_again(start):
    process = start("sh", "-c", "echo on; sleep 99", ranks=1, per_pod=1, restarts=3)
    assert process.stdout.readline() == b"[1,0]<stdout>: on\n"
    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=60)[0] == b""
    assert process.returncode == 143
