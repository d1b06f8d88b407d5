"""Figures out of logs, as users and guides have them: one rank's, never a sum."""

from __future__ import annotations

import pytest

from gangline.bench.log_figures import LogFigures, read_figures, summary_lines

TWO_RANKS = """\
TensorFlow:  1.14
Model:       resnet101
Dataset:     imagenet (synthetic)
Mode:        training
SingleSess:  False
Batch size:  128 global
             64 per device
Num batches: 100
Num epochs:  0.01
Devices:     ['horovod/gpu:0', 'horovod/gpu:1']
40\timages/sec: 154.4 +/- 0.7 (jitter = 4.0)\t8.280
40\timages/sec: 154.4 +/- 0.7 (jitter = 4.1)\t8.482
100\timages/sec: 154.2 +/- 0.4 (jitter = 4.0)\t8.372
100\timages/sec: 154.2 +/- 0.4 (jitter = 4.0)\t8.542
----------------------------------------------------------------
total images/sec: 308.27
----------------------------------------------------------------
----------------------------------------------------------------
total images/sec: 308.26
----------------------------------------------------------------
"""


def figures_of(text: str) -> LogFigures:
    return read_figures(text.splitlines(keepends=True))


def test_total_is_one_ranks() -> None:
    figures = figures_of(TWO_RANKS)

    assert figures.images_per_s == 308.27
    assert figures.printed == 2
    assert (figures.model, figures.facts["Batch size"]) == ("resnet101", "128 global")


def test_last_step_is_one_ranks() -> None:
    figures = figures_of(TWO_RANKS)

    assert (figures.steps, figures.loss) == (100, 8.372)
    assert (figures.images_per_s_per_rank, figures.uncertainty, figures.jitter) == (154.2, 0.4, 4.0)


def test_tagged_log_is_read_from_its_lowest_rank() -> None:
    text = (
        "[1,1]<stdout>:10\timages/sec: 1.0 +/- 0.0 (jitter = 0.0)\t9.000\n"
        "[1,0]<stdout>:10\timages/sec: 2.0 +/- 0.0 (jitter = 0.0)\t8.000\n"
        "[1,1]<stdout>:total images/sec: 3.00\n"
        "[1,0]<stdout>:total images/sec: 4.00\n"
    )

    figures = figures_of(text)

    assert (figures.images_per_s_per_rank, figures.loss, figures.images_per_s) == (2.0, 8.0, 4.0)
    assert figures.printed == 2


def test_netapps_total() -> None:
    assert figures_of("Total images/sec = 12881.33875\n").images_per_s == 12881.33875


def test_horovods_lines() -> None:
    text = (
        "Model: resnet50\nBatch size: 32\nNumber of GPUs: 4\nRunning warmup...\nRunning benchmark...\n"
        "Iter #0: 150.1 img/sec per GPU\nImg/sec per GPU: 150.0 +-1.2\n"
        "Total img/sec on 4 GPU(s): 600.0 +-4.8\n"
    )

    figures = figures_of(text)

    assert (figures.model, figures.ranks) == ("resnet50", 4)
    assert (figures.images_per_s, figures.images_per_s_per_rank, figures.uncertainty) == (600.0, 150.0, 1.2)


def test_dlloggers_lines() -> None:
    text = (
        "DLL 2024-03-03 12:00:00.337358 - PARAMETER arch : resnet50  seed : None \n"
        "DLL 2024-03-03 12:00:01.337358 - (0, 51) total_ips : 320.5  total_loss : 6.9 \n"
        "DLL 2024-03-03 12:00:02.337358 - () train_throughput : 321.5 \n"
    )

    figures = figures_of(text)

    assert (figures.model, figures.steps, figures.loss, figures.images_per_s) == ("resnet50", 52, 6.9, 321.5)


@pytest.mark.parametrize("loss", ["nan", "inf", "1e+20"])
def test_loss_may_be_no_number(loss: str) -> None:
    figures = figures_of(f"1\timages/sec: 1.0 +/- 0.0 (jitter = 0.0)\t{loss}\n")

    assert str(figures.loss) == str(float(loss))


def test_log_without_a_total_has_figures_all_the_same() -> None:
    figures = figures_of("10\timages/sec: 5.0 +/- 0.1 (jitter = 0.2)\t7.000\nDone with training\n")

    assert figures.images_per_s is None
    assert "total     not printed (yet)" in summary_lines(figures)


def test_summary_says_whose_total_it_is_and_what_was_limited() -> None:
    limited = "Limited by --bench-limits: batch_size 256 -> 8\n"

    lines = list(summary_lines(figures_of(TWO_RANKS + limited)))

    assert "total     308.27 images/s, as one of 2 ranks printed it" in lines
    assert "one rank  154.2 +/- 0.4 images/s (jitter 4.0)" in lines
    assert "limited   batch_size 256 -> 8" in lines


def test_other_logs_have_no_figures() -> None:
    assert figures_of("hello\nepoch 3 loss 0.1\n").program == ""
