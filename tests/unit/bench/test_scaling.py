"""Series of results and their figure; NetApp's published pair is the example: 98.6 % of the ideal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangline.bench.plots import draw
from gangline.bench.scaling import Point, series_of, table_lines
from gangline.errors import UserError


def result(ranks: int, speed: float, gpu: str = "Tesla V100", **more: Any) -> dict[str, Any]:
    return {
        "model": "resnet50",
        "batch_size": 256,
        "precision": "fp16",
        "data": "imagenet (synthetic)",
        "ranks": ranks,
        "images_per_s": speed,
        "machine": {"gpu": gpu},
    } | more


NETAPP = [result(16, 12881.33875), result(8, 6530.59125)]


def test_efficiency_is_the_published_one() -> None:
    (series,) = series_of(NETAPP, ["a", "b"])

    assert [point.ranks for point in series.points] == [8, 16]
    assert series.ideal(16) == pytest.approx(13061.1825)
    assert series.efficiency(series.points[1]) == pytest.approx(0.986, abs=5e-4)


def test_machines_precisions_and_limits_are_series_of_their_own() -> None:
    results = [
        result(1, 800.0),
        result(1, 160.0, gpu="Tesla T4"),
        result(1, 400.0, precision="fp32"),
        result(1, 700.0, data="imagenet"),
        result(1, 10.0, limited={"batch_size": {"asked": 256, "used": 8}}),
    ]

    labels = [series.label for series in series_of(results, list("abcde"))]

    assert labels == [
        "resnet50, Tesla V100, batch 256, fp16",
        "resnet50, Tesla T4, batch 256, fp16",
        "resnet50, Tesla V100, batch 256",
        "resnet50, Tesla V100, batch 256, fp16, data read",
        "resnet50, Tesla V100, batch 256, fp16, limited",
    ]


def test_several_results_of_one_number_of_ranks_count_as_their_median() -> None:
    (series,) = series_of([result(1, 1.0), result(1, 5.0), result(1, 2.0)], list("abc"))

    assert series.points == (Point(1, 2.0),)


@pytest.mark.parametrize("wrong", [{}, {"ranks": 2}, result(0, 1.0), result(1, 0.0), result(1, float("nan"))])
def test_what_is_no_result_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"notes\.json"):
        series_of([wrong], ["notes.json"])


def test_table_has_the_ideal_beside_the_speed() -> None:
    (series,) = series_of(NETAPP, ["a", "b"])

    assert list(table_lines(series)) == [
        "resnet50, Tesla V100, batch 256, fp16",
        "  ranks     images/s        ideal  efficiency",
        "      8      6,530.6      6,530.6     100.0 %",
        "     16     12,881.3     13,061.2      98.6 %",
    ]


def test_figure_is_written_as_png_and_svg(tmp_path: Path) -> None:
    paths = draw(series_of(NETAPP, ["a", "b"]), tmp_path / "figure.png", title="two DGX-1")

    assert [path.name for path in paths] == ["figure.png", "figure.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[1].read_text()
