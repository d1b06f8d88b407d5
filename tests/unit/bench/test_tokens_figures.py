"""Figures of the token benchmark, from step times by hand."""

from __future__ import annotations

import pytest

from gangline.bench.tokens_figures import peak_tflops, tokens_of


def test_total_is_that_of_the_slowest_rank() -> None:
    found = tokens_of([[1.0, 2.0, 9.0], [4.0, 4.0, 4.0]], 100, 1e9, None)

    assert found.each == [50.0, 25.0]
    assert found.total == 50.0  # both do 100 tokens in 4 s
    assert found.mfu is None


def test_mfu_is_the_models_operations_over_the_peak_of_all_devices() -> None:
    # 2 ranks x 1000 tokens in 1 s at 1 GFLOP each are 2 TFLOP/s, of 2 x 4
    assert tokens_of([[1.0], [1.0]], 1000, 1e9, 4.0).mfu == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA A100-SXM4-40GB", 311.8),
        ("NVIDIA L40S", 362.1),
        ("NVIDIA L4", 121.0),
        ("NVIDIA A10G", None),
        ("cpu", None),
    ],
)
def test_peaks_are_found_by_whole_words(device: str, peak: float | None) -> None:
    assert peak_tflops(device) == peak
