"""The ring of samples of GPUs in use: what is in it after hours, restarts and torn writes."""

from pathlib import Path

from gangline.cluster.gpu_use import SAMPLE_S, SAMPLES_MAX, Sample, read_samples, write_sample

NOON = 1_800_000_000


def test_samples_come_back_in_their_order_and_the_oldest_make_room(tmp_path: Path) -> None:
    path = tmp_path / "use"
    samples = [Sample(NOON + SAMPLE_S * index, index % 9, 8) for index in range(SAMPLES_MAX + 50)]
    for sample in samples:
        write_sample(path, sample)

    assert read_samples(path, samples[-1].at_s) == samples[50:]
    assert path.stat().st_size == SAMPLES_MAX * 16
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_older_than_six_hours_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "use"
    write_sample(path, Sample(NOON, 3, 8))

    assert read_samples(path, NOON + 6 * 3_600 - 1) == [Sample(NOON, 3, 8)]
    assert read_samples(path, NOON + 6 * 3_600) == []
    assert read_samples(path, NOON - 1) == []  # a clock that was set back


def test_a_file_that_is_short_or_not_there_costs_no_more_than_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "use"
    assert read_samples(path, NOON) == []
    write_sample(path, Sample(NOON, 3, 8))
    path.write_bytes(path.read_bytes() + b"torn")

    assert read_samples(path, NOON) == [Sample(NOON, 3, 8)]
