"""`gangline topology`: known machines and files, in words and as JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from gangline.cli.group import invoke
from gangline.topology.known import known_machine

PRINT = """\
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      NV2     0-31            0
GPU1    NV2      X      0-31            0
"""


def test_a_known_machine_is_shown_with_its_best_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "show", "DGX-1V"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("v100-dgx1: DGX-1 with 8 V100")
    assert "0   -     NV1   NV1   NV2   NV2   SYS   SYS   SYS   0" in lines
    quad = next(line.split() for line in lines if line.startswith("4      "))
    assert quad[1:6] == ["0", "1", "2", "3", "80.0"]


def test_json_has_the_bandwidth_of_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "show", "v100-dgx1", "-o", "json"]) == 0
    value = json.loads(capsys.readouterr().out)

    assert len(value["sets"]) == 2**8 - 8 - 1
    assert value["links"][0][4] == "NV2"
    assert value["best"][-1]["busGBPerSecond"] == 120
    assert len(value["best"][-1]["rings"]) == 3


def test_behind_an_nvswitch_one_line_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "show", "h100"]) == 0

    assert "over any of them: 370.8 GB/s" in capsys.readouterr().out


def test_a_print_of_nvidia_smi_is_read_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(PRINT)

    assert invoke(["topology", "show", str(path), "--gpu-model", "Tesla V100-SXM2-16GB"]) == 0
    assert "2      0 1        40.0" in capsys.readouterr().out

    path.write_text(PRINT.replace("NV2", "NVX", 1))
    assert invoke(["topology", "show", str(path)]) == 2
    assert f"at {path}:2" in capsys.readouterr().err


@pytest.mark.parametrize("as_node", [True, False])
def test_an_annotation_is_read_from_standard_input(
    as_node: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(known_machine("p3.8xlarge").annotation(["a", "b", "c", "d"]))
    if as_node:
        text = json.dumps({"metadata": {"name": "n1", "annotations": {"gangline.dev/gpu-topology": text}}})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    assert invoke(["topology", "show", "-"]) == 0
    assert capsys.readouterr().out.startswith("p3.8xlarge: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"metadata": {"name": "n1"}}', "node `n1` has no annotation"),
        ('{"metadata": 3}', "cannot be read"),
        ("hello", "has no header"),
        ("", "has no header"),
    ],
)
def test_what_is_no_topology_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text(text)

    assert invoke(["topology", "show", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_wrong_names_say_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "show", "v100-dgx9"]) == 2
    assert "did you mean `v100-dgx" in capsys.readouterr().err
    assert invoke(["topology", "show", "no/such.txt"]) == 2
    assert "there is no file `no/such.txt`" in capsys.readouterr().err


def test_all_known_machines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "list"]) == 0
    assert "p3.16xlarge" in capsys.readouterr().out
    assert invoke(["topology"]) == 0
    assert "show" in capsys.readouterr().out


def test_name_of_a_machine_stands_for_showing_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "v100-dgx1"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("v100-dgx1: ")
    assert "\nNV2, NV1: so many NVLinks; SYS: between CPU sockets\n" in shown


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["topology", "v100-dgx"], "did you mean `v100-dgx2` or `v100-dgx1`?"),
        (["topology", "shw"], "did you mean `show`?"),
        (["top", "nodes"], "did you mean `node`?"),
        (["bench", "x"], "there are make-data, plot, scaling, tokens, wires"),
    ],
)
def test_unknown_command_below_another_names_the_nearest(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(argv) == 2

    assert f"\n\nhint: {hint}\n" in capsys.readouterr().err
