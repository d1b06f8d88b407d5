"""A program with its folder on a cluster of a kubeconfig, which the one-machine cluster plays."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROGRAM = """
import os, sys
from parts import WORD
rank = os.environ["RANK"]
print(rank, os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"], WORD, os.environ.get("WORD_OF_ENV"))
sys.exit(7 if sys.argv[1:] == [rank] else 0)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "parts.py").write_text("WORD = 'mine'\n")
    (folder / "train.py").write_text(PROGRAM)
    (folder / ".gitignore").write_text("ignored.py\n")
    (folder / "ignored.py").write_text("")
    return folder


@pytest.fixture
def kubectl(run):
    """Run kubectl on the cluster; the test is skipped where there is none."""
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")

    def command(*words: str, text: str = "") -> str:
        line = ["kubectl", "--kubeconfig", run.kubeconfig, *words]
        return subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout

    return command


@pytest.fixture
def run(gangline, code):
    """`gangline run` in the folder, on the cluster as its kubeconfig names it."""
    gangline("up")
    kubeconfig = gangline("kubeconfig", "--path").stdout.strip()

    def command(*words: str, image: str = "gangline/base"):
        where = ["--kubeconfig", kubeconfig, "--context", "gangline", *(["--image", image] if image else [])]
        return gangline("run", *where, *words, cwd=code)

    command.kubeconfig = kubeconfig
    return command


def test_ranks_of_two_pods_have_the_code_and_what_belongs_to_the_job_goes_with_it(
    run, gangline, kubectl, until
):
    done = run(
        "-n", "3", "--nodes", "2", "--name", "three", "-e", "WORD_OF_ENV=hush", "--", "python", "train.py"
    )

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 3 0 mine hush",
        "[1] 1 3 1 mine hush",
        "[2] 2 3 0 mine hush",
    ]
    assert "Job default/three succeeded" in done.stderr

    left = kubectl("get", "secrets,services", "-o", "name")
    assert "secret/three-" in left and "service/three-" in left
    assert gangline("delete", "job/three").returncode == 0
    until(lambda: "/three-" not in kubectl("get", "secrets,services", "-o", "name"), "end of the code")


@pytest.mark.parametrize(
    ("kind", "first"), [("pytorchjob", "master-0"), ("mpijob", "launcher"), ("trainjob", "node-0-0")]
)
def test_a_job_of_another_kind_runs_the_same_program(run, gangline, kubectl, until, kind, first):
    name = f"of-{kind}"
    words = ("-n", "3", "--nodes", "2", "--kind", kind)
    done = run(*words, "--name", name, "--", "python", "train.py")

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 3 0 mine None",
        "[1] 1 3 1 mine None",
        "[2] 2 3 0 mine None",
    ]
    assert f"pod/{name}-{first}" in kubectl("get", "pods", "-o", "name")
    assert gangline("delete", f"{kind}/{name}").returncode == 0
    until(lambda: f"/{name}-" not in kubectl("get", "secrets", "-o", "name"), "end of the code")

    failed = run(*words, "--restarts", "1", "--name", f"bad-{kind}", "--", "python", "train.py", "2")

    assert failed.returncode == 7
    assert "all ranks start again, 1 of 1" in failed.stderr + failed.stdout
    assert failed.stdout.count("[2] 2 3 0 mine None") == 2
    assert f"default/bad-{kind} failed: rank 2 exited with code 7" in failed.stderr


def test_the_rank_that_fails_is_named_with_its_pod_and_its_code(run):
    done = run("-n", "4", "--nodes", "2", "--name", "bad", "--", "python", "train.py", "2")

    assert done.returncode == 7
    assert "error[job-failed]: Job default/bad failed: rank 2 in pod bad-1-" in done.stderr
    assert "exited with code 7" in done.stderr


def test_a_run_without_a_name_finds_one_that_is_free(run):
    runs = [run("--", "python", "train.py") for _ in range(2)]

    assert [done.returncode for done in runs] == [0, 0]
    assert "default/train succeeded" in runs[0].stderr
    assert "default/train-2 succeeded" in runs[1].stderr


def test_a_dry_run_prints_the_same_objects_each_time_the_job_last_and_ready_to_start(run):
    words = ("-n", "2", "--nodes", "2", "--claim", "data:/data:ro", "--deadline", "60", "--dry-run", "-o")
    first, second = (run(*words, "yaml", "--", "python", "train.py").stdout for _ in range(2))

    assert first == second
    objects = list(yaml.safe_load_all(first))
    assert [one["kind"] for one in objects] == ["Secret", "Secret", "Service", "Job"]
    assert objects[-1]["spec"]["suspend"] is False
    assert objects[-1]["spec"]["activeDeadlineSeconds"] == 60
    as_json = json.loads(run(*words, "json", "--", "python", "train.py").stdout)
    assert as_json["items"] == objects


def test_a_job_whose_code_cannot_be_kept_leaves_nothing(run, kubectl):
    metadata = "metadata: {name: none, namespace: full}"
    quota = f"apiVersion: v1\nkind: ResourceQuota\n{metadata}\nspec: {{hard: {{secrets: 0}}}}"
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: full}"
    kubectl("apply", "-f", "-", text=f"{space}\n---\n{quota}")

    done = run("--namespace", "full", "--", "python", "train.py")

    assert done.returncode != 0
    assert "exceeded quota" in done.stderr, done.stderr
    assert kubectl("get", "-n", "full", "jobs,secrets,pods", "-o", "name") == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "python", "nowhere.py"], "`nowhere.py` is not in the code"),
        (["--", "python", "ignored.py"], "an ignore file names it"),
        (
            ["--claim", "data", "--toleration", "a:b", "--", "python", "train.py"],
            "--claim data: write NAME:/path",
        ),
        (
            ["--claim", "data", "--toleration", "a:b", "--", "python", "train.py"],
            "--toleration a:b: write KEY",
        ),
        (["--env-file", "no.env", "--", "python", "train.py"], "--env-file no.env: cannot be read"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_created(run, words, said):
    done = run(*words)

    assert done.returncode == 2
    assert said in done.stderr


def test_a_program_on_a_cluster_needs_an_image_and_a_local_one_no_pod_options(run, gangline, code):
    assert "found none" in run("--", "python", "train.py", image="").stderr
    refused = gangline("run", "--cpus", "2", "--", "python", "train.py", cwd=code)
    assert "--cpus belongs to programs on a cluster of a kubeconfig" in refused.stderr


def test_a_folder_that_is_too_large_is_refused_with_its_largest_parts(run, code):
    (code / "weights").mkdir()
    (code / "weights" / "one.bin").write_bytes(os.urandom(9_000_000))

    done = run("--", "python", "train.py")

    assert done.returncode == 2
    assert "weights/ (8.6 MiB)" in done.stderr


def test_logs_and_exec_find_all_ranks_of_a_job_that_goes_on_without_its_command(run, gangline, until):
    where = ("--kubeconfig", run.kubeconfig)
    program = "import os, time; print('rank', os.environ['RANK'], flush=True); time.sleep(99)"
    done = run("-n", "4", "--nodes", "2", "--name", "on", "--detach", "--", "python", "-c", program)
    assert done.returncode == 0, done.stderr
    lines = ["[1] rank 1", "[2] rank 2", "[3] rank 3", "rank 0"]
    until(lambda: sorted(gangline("logs", *where, "on").stdout.splitlines()) == lines, "lines of all ranks")

    assert gangline("exec", *where, "on", "--", "sh", "-c", "hostname; pwd").stdout == "on-0\n/code\n"
    assert gangline("exec", *where, "on", "--rank", "3", "--", "hostname").stdout == "on-1\n"
    refused = gangline("exec", *where, "on", "--rank", "4", "--", "hostname")
    assert "does not tell which pod holds rank 4" in refused.stderr
    assert gangline("delete", *where, "on").returncode == 0


def test_a_folder_keeps_options_for_its_cluster(run, code):
    (code / "gangline.toml").write_text(
        'ranks = 2\ncpus = "100m"\nimage = "nowhere"\nenv = ["WORD_OF_ENV=kept"]\n'
        '[context.gangline]\nimage = "gangline/base"\n[context.other]\nranks = 5\n'
    )

    done = run("--name", "kept", "--", "python", "train.py", image="")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2 0 mine kept", "[1] 1 2 1 mine kept"]
    objects = list(
        yaml.safe_load_all(run("-n", "1", "--dry-run", "--", "python", "train.py", image="").stdout)
    )
    container = objects[-1]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "100m"}}
    assert container["command"][container["command"].index("--ranks") + 1] == "1"


def test_what_a_folder_keeps_wrongly_is_said_all_at_once(run, code):
    (code / "pyproject.toml").write_text('[tool.gangline]\nimagee = "x"\nclaim = 5\ndetach = "yes"\n')

    done = run("--", "python", "train.py")

    assert done.returncode == 2
    assert "imagee: no option of `gangline run`, is --image meant?" in done.stderr
    assert "claim: write a string, or a list of them (found `5`)" in done.stderr
    assert "detach: write true or false (found `yes`)" in done.stderr


def test_code_that_a_volume_claim_has_does_not_travel(run, gangline, kubectl, tmp_path):
    claim = {"metadata": {"name": "code"}, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["spec"] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    write = "import pathlib; pathlib.Path('/mine/train.py').write_text('print(__file__)')"
    kubectl("apply", "-f", "-", text=json.dumps(claim))
    done = run("--claim", "code:/mine", "--", "python", "-c", write)
    assert done.returncode == 0, done.stderr

    done = run(
        "-n",
        "2",
        "--nodes",
        "2",
        "--name",
        "claimed",
        "--code-claim",
        "code:/mine:ro",
        "--",
        "python",
        "train.py",
    )

    assert sorted(done.stdout.splitlines()) == ["/mine/train.py", "[1] /mine/train.py"], done.stderr
    assert "secret/claimed-" in (left := kubectl("get", "secrets", "-o", "name"))
    assert not any(name.startswith("secret/claimed-") and "-code-" in name for name in left.split())
    assert (
        "exclude each other" in run("--code", ".", "--code-claim", "code:/mine", "--", "python", "x").stderr
    )


def test_a_quota_that_keeps_pods_from_being_made_is_said(run, kubectl):
    kubectl("create", "namespace", "tight")
    kubectl("create", "quota", "none", "--hard=pods=0", "-n", "tight")

    done = run("-n", "1", "--namespace", "tight", "--deadline", "5", "--", "python", "train.py")

    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if "a ResourceQuota of its namespace allows" in line]
    assert len(said) == 1, done.stderr
    assert "exceeded quota: none" in said[0]


def test_runs_of_the_cluster_stay_on_this_machine_with_what_was_followed(run, gangline, until):
    where = ("--kubeconfig", run.kubeconfig, "--context", "gangline")

    def kept():
        done = gangline("runs", *where, "-o", "json")
        assert done.returncode == 0, done.stderr
        return {one["name"]: (one["status"], one["exitCode"]) for one in json.loads(done.stdout)}

    assert run("--name", "kept-bad", "--", "python", "train.py", "0").returncode == 7
    assert run("--name", "kept-good", "--detach", "--", "python", "train.py").returncode == 0
    until(lambda: kept()["kept-good"] == ("SUCCEEDED", 0), "record of the detached run")
    assert kept()["kept-bad"] == ("FAILED", 7)

    assert gangline("delete", *where, "job/kept-bad", "job/kept-good").returncode == 0
    past = lambda: "FAILED" in gangline("get", *where, "job/kept-bad").stdout  # noqa: E731
    until(past, "past run in place of the job")
    assert gangline("logs", *where, "kept-bad").stdout == "0 1 0 mine None\n"
    assert "exited with code 7" in " ".join(gangline("explain", *where, "kept-bad").stdout.split())
    assert kept()["kept-good"] == ("SUCCEEDED", 0)

    assert gangline("runs", *where, "delete", "kept-bad").returncode == 0
    assert "kept-bad" not in kept() and "kept-good" in kept()


def test_a_job_whose_code_never_came_says_so(run, gangline, kubectl):
    dry = run("--name", "half", "--dry-run", "-o", "yaml", "--", "python", "train.py")
    job = list(yaml.safe_load_all(dry.stdout))[-1]
    job["spec"]["suspend"] = True
    job["metadata"]["annotations"]["gangline.dev/sending"] = "true"
    kubectl("create", "-f", "-", text=yaml.safe_dump(job))

    explained = gangline("explain", "half").stdout

    assert "`gangline run` has not sent all of its code" in " ".join(explained.split())
