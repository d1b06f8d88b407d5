"""The picture of a job in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.client import live_picture
from gangline.client.job_picture import INSTANCES_MAX, job_picture
from gangline.client.live_picture import LINE_CHARS_MAX, LINES_SHOWN, LivePicture
from gangline.clock import parse_time
from gangline.workloads.job_start import job_ref
from gangline.workloads.job_view import JobView, view_job

NOW = parse_time("2026-05-01T10:00:10Z")
JOB: dict[str, Any] = {
    "kind": "Job",
    "metadata": {
        "name": "train",
        "namespace": "default",
        "uid": "1",
        "creationTimestamp": "2026-05-01T10:00:00Z",
    },
    "spec": {},
    "status": {},
}


def pod(index: int) -> dict[str, Any]:
    metadata = {"name": f"train-{index}", "namespace": "default", "uid": f"pod-{index}"}
    return {"metadata": metadata, "spec": {"nodeName": "node-0", "containers": []}, "status": {}}


def view(pods: int = 1) -> JobView:
    return view_job(JOB, [pod(index) for index in range(pods)], NOW)


def test_it_says_how_the_job_stands_and_how_far_it_is() -> None:
    record = {"kind": "progress", "step": 3, "steps": 4, "rate": 1234.5, "unit": "images", "loss": 0.25}

    text = job_picture(view(), progress=record, lines=["epoch 1"])

    assert "Job default/train</b> pending, 10s" in text
    assert '<progress value="3" max="4">' in text
    assert "step 3/4  1,234.5 images/s  loss 0.25" in text
    assert "<td>train-0</td>" in text
    assert "<pre>epoch 1</pre>" in text


def test_text_of_others_is_never_html() -> None:
    evil = "<script>alert(1)</script>"
    record = {"step": evil, "steps": evil, "unit": evil, "rate": 1.0}

    assert "<script>" not in job_picture(view(), progress=record, lines=[evil])


def test_of_many_pods_the_first_are_shown() -> None:
    text = job_picture(view(INSTANCES_MAX + 3))

    assert text.count("<td>train-") == INSTANCES_MAX
    assert "3 more" in text


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(live_picture, "PERIOD_S", 0.0)
    return []


def test_it_changes_with_pods_log_and_progress(drawn: list[str]) -> None:
    live = LivePicture(drawn.append)
    ref = job_ref(JOB)

    live.log(ref, b"before any pod")
    assert drawn == []
    live.pods_changed(JOB, [pod(0)])
    live.log(ref, "\nhalf a l\N{LATIN SMALL LETTER I WITH DIAERESIS}".encode())
    live.log(ref, b"ne\n")
    live.record(ref, {"kind": "progress", "step": 7})

    assert live.lines == ["before any pod", "half a l\N{LATIN SMALL LETTER I WITH DIAERESIS}ne"]
    assert "step 7" in drawn[-1]


def test_it_keeps_few_and_short_lines(drawn: list[str]) -> None:
    live = LivePicture(drawn.append)

    live.log(job_ref(JOB), b"".join(b"%d%s\n" % (index, b"x" * 500) for index in range(100)))

    assert [line[:2] for line in live.lines] == [str(index) for index in range(100 - LINES_SHOWN, 100)]
    assert max(map(len, live.lines)) == LINE_CHARS_MAX


def test_it_is_drawn_five_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_picture, "PERIOD_S", 3600.0)
    drawn: list[str] = []
    live = LivePicture(drawn.append)

    for _ in range(100):
        live.pods_changed(JOB, [pod(0)])

    assert len(drawn) <= 1
