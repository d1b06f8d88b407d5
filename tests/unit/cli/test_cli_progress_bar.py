"""The bar below the log: its text, and that it never mixes with the log's lines."""

from __future__ import annotations

import pytest

from gangline.cli.logs.progress_bar import ProgressBar, bar_text
from gangline.cli.run.view import LiveView
from gangline.workloads.job_start import job_ref

RECORD = {
    "kind": "progress",
    "step": 250,
    "steps": 1000,
    "rate": 1234.5,
    "unit": "images",
    "loss": 0.25,
    "eta_s": 130,
}
JOB = {"kind": "MPIJob", "metadata": {"name": "digits", "uid": "1"}}


def test_bar_shows_share_rate_loss_and_time_left() -> None:
    text = bar_text(RECORD, 100)

    assert text.endswith(" 25%  step 250/1000  1,234.5 images/s  loss 0.2500  ETA 2m10s")
    assert text.count("━") == 7
    assert text.count("╌") == 23


@pytest.mark.parametrize("width", [0, 1, 10, 40, 60, 65, 80, 200])
def test_bar_fits_every_terminal(width: int) -> None:
    assert len(bar_text(RECORD, width, name="job")) <= max(0, width - 1)


def test_training_of_unknown_length_has_no_bar() -> None:
    assert bar_text({"kind": "progress", "step": 3}, 80) == "step 3"


def test_bar_stands_below_whole_lines_only(capfd: pytest.CaptureFixture[str]) -> None:
    view = LiveView()
    view.record(job_ref(JOB), RECORD)
    view.log(job_ref(JOB), b"half a line")
    view.record(job_ref(JOB), RECORD)
    assert "step 250" not in capfd.readouterr().err.rpartition("\x1b[2K")[2]

    view.log(job_ref(JOB), b", now whole\n")
    view.close()
    out, err = capfd.readouterr()
    assert out == ", now whole\n"
    assert "step 250/1000" in err
    assert err.endswith("\x1b[2K")


def test_bar_says_for_which_ranks_the_others_wait_until_they_step_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    bar = ProgressBar()

    def shown(**record: object) -> str:
        bar.update(record)
        return capfd.readouterr().err.rpartition("\x1b[2K")[2]

    assert "ETA 2m10s" in shown(**RECORD)
    assert shown(kind="silence", rank=3, node="b", step=250).endswith(
        "  step 250/1000  waits for rank 3 on b"
    )
    assert shown(kind="silence", rank=5, node="c").endswith("waits for ranks 3 on b, 5 on c")
    assert shown(kind="going-on", rank=3, node="b").endswith("waits for rank 5 on c")
    assert "ETA" in shown(**RECORD)
