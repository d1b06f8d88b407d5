"""Progress on rank 0: when it reports, what it computes, what Prometheus reads."""

from __future__ import annotations

import urllib.request

import pytest

from gangline.errors import UserError
from gangline.train.metrics import exposition, open_metrics
from gangline.train.progress import Progress, ProgressReport
from gangline.train.records import parse_record


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rank_0_reports_first_step_interval_and_last_step() -> None:
    clock, lines = Clock(), []
    progress = Progress(0, 2, steps=50, items_per_step=64, clock=clock, write=lines.append)
    for _ in range(50):
        clock.now += 0.5
        progress.step(0.25)

    texts = [line.split("\n")[0] for line in lines]
    assert texts[0] == "step 1/50  loss 0.2500"
    assert texts[1] == "step 21/50  128.0 images/s  loss 0.2500  ETA 14s"
    assert texts[-1] == "step 50/50  128.0 images/s  loss 0.2500"
    assert len(texts) == 4
    record = parse_record(lines[1].split("\n")[1])
    assert record == {
        "kind": "progress",
        "step": 21,
        "steps": 50,
        "rate": 128.0,
        "unit": "images",
        "loss": 0.25,
        "eta_s": 14.5,
        "ranks": 2,
    }


def test_program_with_lines_of_its_own_has_records_alone() -> None:
    lines: list[str] = []
    progress = Progress(0, 1, steps=2, lines=False, write=lines.append)
    progress.step()
    progress.step()

    records = [parse_record(line.rstrip("\n")) for line in lines]
    assert [record["step"] for record in records if record] == [1, 2]
    assert "".join(lines).count("\n") == 2


def test_other_ranks_say_nothing() -> None:
    lines: list[str] = []
    progress = Progress(1, 2, steps=1, write=lines.append)
    progress.step(1.0)
    progress.close()

    assert lines == []


def test_loss_that_is_no_number_is_shown_and_leaves_the_record_valid() -> None:
    lines: list[str] = []
    Progress(0, 1, write=lines.append).step(float("nan"))

    text, record, _ = lines[0].split("\n")
    assert text == "step 1  loss nan"
    assert parse_record(record) == {"kind": "progress", "step": 1, "unit": "images", "ranks": 1}


def test_resumed_training_counts_on() -> None:
    lines: list[str] = []
    progress = Progress(0, 1, steps=10, done=9, write=lines.append)
    progress.step()

    assert progress.done == 10
    assert lines[0].startswith("step 10/10")
    with pytest.raises(UserError, match="10 steps cannot begin with 11 done"):
        Progress(0, 1, steps=10, done=11)


SNAPSHOT = ProgressReport(240, 1000, 123.4, "images", 0.25, 61.0, 4)


def test_metrics_are_prometheus_text() -> None:
    assert exposition(SNAPSHOT).splitlines()[:3] == [
        "# HELP gangline_train_steps_total Training steps done.",
        "# TYPE gangline_train_steps_total counter",
        "gangline_train_steps_total 240",
    ]
    assert "gangline_train_images_per_second 123.4\n" in exposition(SNAPSHOT)
    assert "gangline_train_remaining_seconds 61\n" in exposition(SNAPSHOT)


def test_metrics_are_served() -> None:
    server = open_metrics("127.0.0.1:0")
    assert server is not None
    try:
        server.snapshot = SNAPSHOT
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    finally:
        server.close()

    assert text == exposition(SNAPSHOT)


def test_port_that_is_taken_costs_the_metrics_and_not_the_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = open_metrics("127.0.0.1:0")
    assert server is not None
    try:
        assert open_metrics(f"127.0.0.1:{server.port}") is None
    finally:
        server.close()

    assert "no metrics at" in capsys.readouterr().err


def test_place_of_metrics_must_name_a_port() -> None:
    with pytest.raises(UserError, match="write PORT or HOST:PORT"):
        open_metrics("localhost")
