"""Runs on disk: whole or absent, told when damaged, removed with their logs."""

import json
import os
import stat
from pathlib import Path

import pytest

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.bounds import Bounds
from gangline.cluster.runs.history import DamagedRunError, History
from gangline.cluster.runs.reading import find_past
from gangline.cluster.runs.record import RunRecord

UID = "5f3a2c1b-0000-0000-0000-00000000000{}"


@pytest.fixture
def paths(tmp_path):
    return ClusterPaths("default", tmp_path)


@pytest.fixture
def history(paths):
    return History(paths)


def record(number, *, name="train", namespace="default", began="2026-11-22T12:00:0{}Z", **more):
    metadata = {"name": name, "namespace": namespace, "uid": UID.format(number)}
    metadata["creationTimestamp"] = began.format(number)
    pod = {"metadata": metadata | {"uid": f"pod-{number}", "name": f"{name}-0"}, "spec": {}, "status": {}}
    return RunRecord(job={"kind": "MPIJob", "metadata": metadata}, pods=[pod], **more)


def test_a_name_of_253_characters_is_whole_but_in_the_file_name(history, paths):
    namespace, name = "n" * 63, "p" * 250 + ".2"
    long, other = record(1, name=name, namespace=namespace), record(2, name=name + "3", namespace=namespace)
    long.pods[0]["metadata"]["name"] = name
    for run in (long, other):
        history.write(run)
    logs = paths.pod_logs(namespace, name, "pod-1")
    logs.mkdir(parents=True)

    assert [file.name for file in history.files()] == [name + "3", name]
    past = find_past(paths, name, namespace)
    assert past is not None and past.record == long
    history.delete(history.files()[1])
    assert [file.name for file in history.files()] == [name + "3"]
    assert not logs.exists()


def write_log(paths, number, size=100):
    folder = paths.pod_logs("default", "train-0", f"pod-{number}") / "main"
    folder.mkdir(parents=True)
    (folder / "0.log").write_bytes(b"x" * size)
    return folder


def test_runs_come_back_as_written_newest_first_and_private(history):
    old, new = record(1), record(2, gone_at="2026-11-22T13:00:00Z")
    history.write(new)
    history.write(old)
    history.write(new)

    files = history.files()

    assert [history.read(file) for file in files] == [new, old]
    assert [(file.namespace, file.name) for file in files] == [("default", "train")] * 2
    assert stat.S_IMODE(files[0].path.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.folder.stat().st_mode) == 0o700
    assert set(history.folder.iterdir()) == {file.path for file in files}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"job": {}}', b'{"job": {"metadata": 3}}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_run_is_told_by_its_file_and_the_others_stay(history, content):
    history.write(record(1))
    history.write(record(2))
    damaged = history.files()[0]
    damaged.path.write_bytes(content)

    with pytest.raises(DamagedRunError, match=r"is damaged") as told:
        history.read(damaged)

    assert damaged.uid in told.value.hint
    assert history.read(history.files()[1]) == record(1)
    assert history.held_pods() >= {"pod-1"}
    history.delete(damaged)
    assert len(history.files()) == 1


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("metadata", {"name": "other", "uid": UID.format(2)}),
        ("metadata", {"name": "train", "uid": UID.format(1)}),
        ("metadata", {"name": "train", "uid": UID.format(2), "creationTimestamp": "soon"}),
        ("status", "done"),
        ("status", {"conditions": 3}),
    ],
)
def test_a_record_of_another_run_or_of_another_shape_is_damaged(history, part, value):
    history.write(record(2))
    [file] = history.files()
    content = json.loads(file.path.read_bytes())
    content["job"][part] = value
    file.path.write_text(json.dumps(content))

    with pytest.raises(DamagedRunError, match=r"is damaged"):
        history.read(file)


def test_what_is_no_file_is_no_run(history):
    history.write(record(1))
    [file] = history.files()
    place = str(file.path).replace(file.uid, "{}")
    Path(place.format("folder")).mkdir()
    os.mkfifo(place.format("pipe"))
    Path(place.format("link")).symlink_to(file.path)

    assert history.files() == [file]


def test_a_record_that_leads_elsewhere_removes_nothing_there(history, tmp_path):
    history.write(record(1))
    [file] = history.files()
    value = json.loads(file.path.read_bytes())
    value["pods"][0]["metadata"]["uid"] = "/../../precious"
    file.path.write_text(json.dumps(value))
    (tmp_path / "precious").mkdir()
    history.delete(file)
    assert (tmp_path / "precious").is_dir()


def test_a_disk_that_refuses_leaves_the_older_record_whole(history, monkeypatch):
    history.write(record(1))
    before = history.files()[0].path.read_bytes()

    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        history.write(record(1, gone_at="2026-11-22T13:00:00Z"))

    assert history.files()[0].path.read_bytes() == before
    assert len(list(history.folder.iterdir())) == 1


def test_the_oldest_run_beyond_the_size_goes_with_its_logs(history, paths):
    folders = []
    for number in (1, 2, 3):
        history.write(record(number))
        folders.append(write_log(paths, number, size=10_000))
        os.utime(history.files()[0].path, (1000.0 + number, 1000.0 + number))

    removed = history.sweep(Bounds(bytes_max=25_000), living=set(), now_s=2000.0)

    assert removed == 1
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert history.held_pods() == {"pod-2", "pod-3"}
    assert history.sweep(Bounds(age_max_s=1.0), living={UID.format(3)}, now_s=2000.0) == 1
    assert history.held_pods() == {"pod-3"}


def test_two_commands_may_remove_the_same_run(history):
    history.write(record(1))
    [file] = history.files()
    history.delete(file)
    history.delete(file)
    assert history.files() == []


def test_drafts_of_killed_writers_go(history):
    history.write(record(1))
    draft = history.folder / ".x.1.new"
    draft.write_text("{")
    history.sweep(Bounds(), living=set(), now_s=draft.stat().st_mtime + 1)
    assert draft.exists()
    history.sweep(Bounds(), living=set(), now_s=draft.stat().st_mtime + 61)
    assert not draft.exists()
    assert len(history.files()) == 1


def test_a_run_is_found_by_name_kind_and_id(history, paths):
    for one in (record(1), record(2), record(3, name="other", namespace="lab")):
        history.write(one)

    def found(name, namespace="default"):
        past = find_past(paths, name, namespace)
        return past.record.uid[-1] if past else None

    assert found("train") == "2"
    assert found("mpijob/train") == found("MPIJobs/train") == "2"
    assert found("pod/train") is None
    assert found("other") is None
    assert found("other", None) == "3"
    assert found(UID.format(1)) == "1"
    assert found("5f3a2c1") is None, "fewer than 8 characters of an id are no id"
