"""`gangline simulate`: tables that fit, values, files, pictures, wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gangline.cli.group import invoke
from gangline.simulate.policies import POLICIES

SMALL = ["simulate", "--nodes", "4", "--hours", "2", "--warm-up-hours", "1"]


def test_the_table_has_a_line_for_each_load_and_policy_and_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*SMALL, "--load", "60,95"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split() == [
        "LOAD",
        "POLICY",
        "JCT",
        "WAIT",
        "MAX",
        "USED",
        "GOODPUT",
        "FRAG",
        "SPEED",
    ]
    assert [line.split()[2] for line in lines[1:9]] == 2 * ["gangline", "rack-only", "best-fit", "first-fit"]
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("simulated: 32 GPUs on 4 nodes (v100-dgx1)")


def test_the_same_seed_prints_the_same_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for output in ("json", "json", "yaml"):
        assert invoke([*SMALL, "--policy", "gangline,first-fit", "--seed", "7", "-o", output]) == 0
        printed.append(capsys.readouterr().out)
    value = json.loads(printed[0])

    assert printed[0] == printed[1]
    assert yaml.safe_load(printed[2]) == value
    assert value["simulated"] is True
    assert [result["policy"] for result in value["results"]] == ["gangline", "first-fit"]
    assert {
        "completion_mean_s",
        "wait_mean_s",
        "utilisation",
        "goodput",
        "fragmentation",
        "speed_mean",
    } <= set(value["results"][0])


def test_a_saved_trace_is_replayed_to_the_same_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    assert invoke([*SMALL, "--policy", "gangline", "--save-trace", str(path)]) == 0
    count = len(path.read_text().splitlines()) - 1
    capsys.readouterr()

    assert (
        invoke(["simulate", "--nodes", "4", "--trace", str(path), "--policy", "best-fit", "-o", "json"]) == 0
    )
    value = json.loads(capsys.readouterr().out)

    assert value["traces"] == [{"load": None, "jobs": count, "stretch": 1.0}]
    assert value["results"][0]["jobs"] == count


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_figures_are_drawn(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / f"day{suffix}"

    assert invoke([*SMALL, "--policy", "gangline,first-fit", "--plot", str(target)]) == 0

    assert target.stat().st_size > 10_000
    assert f"drawn: {target}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "fastest"], "there is no `fastest`"),
        (["--load", "much"], "--load must be percentages"),
        (["--load", "0"], "load must be above 0"),
        (["--hours", "0"], "--hours must be above 0"),
        (["--warm-up-hours", "-1"], "--warm-up-hours must be at least 0"),
        (["--nodes", "0"], "1 to 10,000 nodes"),
        (["--machine", "toaster"], "no known machine is called `toaster`"),
        (["--overlap", "2"], "--overlap must be 0 to 1"),
        (["--network-gbit-s", "0"], "--network-gbit-s must be above 0"),
        (["--trace", "nowhere.csv"], "cannot read the trace nowhere.csv"),
        (["--plot", "day.jpg"], "--plot must end in .png or .svg"),
        (["--plot", "nowhere/day.png"], "there is no folder"),
        (["--load", "60,80", "--save-trace", "jobs.csv"], "--save-trace writes one trace"),
    ],
)
def test_wrong_use_ends_with_code_2_before_anything_is_simulated(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["simulate", *arguments]) == 2

    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_a_job_that_cannot_fit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("name,arrival_s,gpus,work_s\nhuge,0,64,60\n")

    assert invoke(["simulate", "--nodes", "4", "--trace", str(path)]) == 2
    assert "huge asks for 8 pods of 8 GPUs at once" in capsys.readouterr().err


def test_all_policies_are_compared_and_the_table_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*SMALL, "--policy", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert {line.split()[2] for line in lines[1:-2]} == set(POLICIES)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("options", "is_suspended"),
    [
        ([], True),
        (["--suspend-after", "0"], False),
        (["--suspensions", "0"], False),
        (["--min-run", "9999999"], False),
    ],
)
def test_the_bounds_of_suspension_are_options(
    options: list[str], is_suspended: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("arrival_s,work_s,gpus\n0,90000,8\n36000,60,8\n")
    words = ["simulate", "--nodes", "1", "--trace", str(trace), "--policy", "resumable", "-o", "json"]

    assert invoke([*words, *options]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]

    assert (found["suspensions"], found["wait_max_s"] < 10) == (int(is_suspended), is_suspended)


def test_a_restart_costs_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("arrival_s,work_s,gpus\n0,90000,8\n36000,60,8\n")
    words = ["simulate", "--nodes", "1", "--trace", str(trace), "--policy", "resumable", "-o", "json"]
    means = []
    for restart_s in ("0", "600"):
        assert invoke([*words, "--restart", restart_s]) == 0
        means.append(json.loads(capsys.readouterr().out)["results"][0]["completion_mean_s"])

    assert means[1] - means[0] == pytest.approx(300)
