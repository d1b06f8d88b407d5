"""A sweep on the one-machine cluster, resumed, and what `gangline runs` makes of its scalars."""

from __future__ import annotations

import csv
import json

PROGRAM = """
import json, pathlib, sys
lr, seed = float(sys.argv[1]), int(sys.argv[2])
for step in (1, 2):
    values = {"loss": lr / step + seed}
    print("@gangline " + json.dumps({"kind": "scalars", "step": step, "values": values}), flush=True)
sys.exit(3 if seed == 1 and not pathlib.Path("mended").exists() else 0)
"""


def test_a_sweep_tells_the_best_run_and_resumes_what_failed(fresh, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    sweep = ["run", "--sweep", "lr=2,1", "--sweep", "seed=0..1", "--parallel", "2", "--best", "loss"]
    program = ["--", "python3", "train.py", "{lr}", "{seed}"]

    first = fresh(*sweep, *program, cwd=tmp_path)
    assert first.returncode == 1
    assert "failed (3)" in first.stdout
    assert "exited with code 3" in first.stderr
    assert "(lr=1 seed=0), loss 0.5 at step 2" in first.stdout

    (tmp_path / "mended").touch()
    again = fresh(*sweep, "--resume", *program, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "2 of 4 runs have succeeded before" in again.stderr
    rows = [line.split() for line in again.stdout.splitlines()[1:5]]
    assert [row[1:4] for row in rows] == [
        ["1", "0", "succeeded"],
        ["2", "0", "succeeded"],
        ["1", "1", "succeeded"],
        ["2", "1", "succeeded"],
    ]

    best = rows[0][0]
    shown = json.loads(fresh("runs", "show", best, "-o", "json").stdout)
    assert shown["command"] == "python3 train.py 1 0"
    assert shown["scalars"]["loss"] == {
        "points": 2,
        "last": {"step": 2, "value": 0.5},
        "lowest": {"step": 2, "value": 0.5},
        "highest": {"step": 1, "value": 1.0},
    }
    compared = json.loads(fresh("runs", "compare", "train*", "--best", "loss", "-o", "json").stdout)
    assert (len(compared), compared[0]["name"]) == (6, best)
    exported = fresh("runs", "export", best, "--format", "csv").stdout
    assert [row["value"] for row in csv.DictReader(exported.splitlines())] == ["1.0", "0.5"]
    plotted = fresh("runs", "plot", best).stdout.splitlines()
    assert (plotted[0], plotted[1][:5]) == ("loss by step", "  1 |")
    assert fresh("runs", "plot", best, "--metric", "accuracy").returncode != 0
