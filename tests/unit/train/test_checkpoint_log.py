"""When trainings saved their state, from logs as kubelets write them."""

from pathlib import Path

from gangline.train.checkpoint_log import CheckpointLogs
from gangline.train.records import format_record

SAVED = format_record("checkpoint", step=40)


def line(minute: int, text: str, stream: str = "stdout") -> str:
    return f"2026-01-01T12:{minute:02}:00.123456789Z {stream} F {text.rstrip()}\n"


def log_of(folder: Path, container: str = "main", attempt: int = 0) -> Path:
    place = folder / container
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{attempt}.log"


def write(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_the_last_checkpoint_of_a_pod_is_told_once(tmp_path: Path) -> None:
    log, logs = log_of(tmp_path), CheckpointLogs()
    write(log, line(1, SAVED) + line(2, "loss 0.5") + line(3, SAVED) + line(4, "loss 0.4"))

    assert logs.news({"pod": tmp_path}) == {"pod": "2026-01-01T12:03:00Z"}
    assert logs.news({"pod": tmp_path}) == {}

    write(log, line(9, SAVED))
    assert logs.news({"pod": tmp_path}) == {"pod": "2026-01-01T12:09:00Z"}


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    log, logs = log_of(tmp_path), CheckpointLogs()
    write(log, line(1, SAVED)[:-9])
    assert logs.news({"pod": tmp_path}) == {}

    write(log, line(1, SAVED)[-9:])
    assert logs.news({"pod": tmp_path}) == {"pod": "2026-01-01T12:01:00Z"}


def test_a_log_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, logs = log_of(tmp_path), CheckpointLogs()
    write(log, line(1, SAVED) * 20)
    logs.news({"pod": tmp_path})

    log.rename(log.with_name("0.log.20260101-120200"))
    write(log, line(5, SAVED))

    assert logs.news({"pod": tmp_path}) == {"pod": "2026-01-01T12:05:00Z"}


def test_a_launchers_tag_may_stand_in_front_and_other_records_say_nothing(tmp_path: Path) -> None:
    first, second = log_of(tmp_path / "a"), log_of(tmp_path / "b")
    write(first, line(7, f"[1,0]<stdout>: {SAVED}"))
    write(second, line(8, format_record("progress", step=40)) + line(9, "@gangline {broken"))

    found = CheckpointLogs().news({"a": tmp_path / "a", "b": tmp_path / "b", "c": tmp_path / "gone"})

    assert found == {"a": "2026-01-01T12:07:00Z"}


def test_the_newest_of_several_containers_counts(tmp_path: Path) -> None:
    write(log_of(tmp_path, "one"), line(2, SAVED))
    write(log_of(tmp_path, "two", 3), line(6, SAVED))

    assert CheckpointLogs().news({"pod": tmp_path}) == {"pod": "2026-01-01T12:06:00Z"}
