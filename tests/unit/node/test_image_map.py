"""Names of images, the map of a cluster, what a folder is, and what is told when nothing serves an image."""

import json

import pytest

from gangline.cluster.images.image_map import (
    ImageMap,
    UserImage,
    full_name,
    nothing_serves,
    read_user_image,
    repository,
    tagged,
)
from gangline.errors import UserError

FOLDER = UserImage("files", "/images/pi")
OTHER = UserImage("root", "/images/other")


@pytest.mark.parametrize(
    ("reference", "want"),
    [
        ("ubuntu", "docker.io/library/ubuntu"),
        ("ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("mpioperator/mpi-pi:openmpi", "docker.io/mpioperator/mpi-pi:openmpi"),
        ("docker.io/mpioperator/mpi-pi", "docker.io/mpioperator/mpi-pi"),
        ("docker.io/ubuntu", "docker.io/library/ubuntu"),
        ("localhost/a/b", "localhost/a/b"),
        ("registry:5000/a", "registry:5000/a"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
    ],
)
def test_names_are_read_as_docker_reads_them(reference, want):
    assert full_name(reference) == want


def test_repository_and_tag():
    assert repository("registry:5000/a/b:1@sha256:00") == "registry:5000/a/b"
    assert tagged("a/b") == "docker.io/a/b:latest"
    assert tagged("a/b@sha256:00") == "docker.io/a/b@sha256:00"


@pytest.mark.parametrize(
    ("name", "reference", "is_served"),
    [
        ("mpioperator/mpi-pi", "mpioperator/mpi-pi:openmpi", True),
        ("mpioperator/mpi-pi", "docker.io/mpioperator/mpi-pi", True),
        ("mpioperator/mpi-pi", "mpioperator/mpi-pi@sha256:00", True),
        ("mpioperator/mpi-pi", "quay.io/mpioperator/mpi-pi", False),
        ("mpioperator/mpi-pi", "mpioperator/mpi-pi-two", False),
        ("acme/x:1", "acme/x:1", True),
        ("acme/x:1", "acme/x:2", False),
        ("acme/x:1", "acme/x", False),
        ("acme/x:latest", "acme/x", True),
    ],
)
def test_a_name_without_a_tag_stands_for_every_tag(name, reference, is_served):
    assert (ImageMap({name: FOLDER}).find(reference) is not None) == is_served


def test_an_exact_name_comes_before_one_for_all_tags():
    known = ImageMap({"acme/x": FOLDER, "acme/x:2": OTHER})

    assert known.find("acme/x:2") == OTHER
    assert known.find("acme/x:1") == FOLDER


def test_changes_add_replace_and_take_away():
    known = ImageMap({"acme/x": FOLDER, "acme/y": FOLDER}, "podman")

    assert known.changed({"docker.io/acme/x": OTHER, "acme/y": None}, None) == ImageMap(
        {"docker.io/acme/x": OTHER}, "podman"
    )
    assert known.changed({}, "").runtime == ""


def test_a_map_comes_back_from_its_config_map():
    known = ImageMap({"acme/x": FOLDER}, "containerd")

    found = known.to_object()

    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("kube-system", "gangline-images")
    assert ImageMap.from_object(found) == known


@pytest.mark.parametrize(
    "data", [{}, None, {"images": "{"}, {"images": "[]"}, {"images": json.dumps({"a": 1}), "runtime": "lxc"}]
)
def test_a_config_map_that_others_spoilt_is_an_empty_map(data):
    assert ImageMap.from_object({"data": data}) == ImageMap()


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["pyvenv.cfg", "bin/python"], "venv"),
        (["bin/sh", "etc/passwd"], "root"),
        (["usr/bin/sh", "README"], "root"),
        (["opt/tool/x"], "files"),
        ([".hidden", "usr/lib/x"], "files"),
    ],
)
def test_a_folder_is_told_by_what_is_in_it(tmp_path, names, want):
    found = read_user_image("acme/x", str(make(tmp_path, *names)))

    assert found == UserImage(want, str(tmp_path))


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        ([], "it is empty"),
        (["train.py", "data/x"], "it has the file `train.py` at its top"),
        (["pyvenv.cfg"], "has no `bin/python` that works"),
    ],
)
def test_a_folder_that_serves_nothing_is_refused(tmp_path, names, rule):
    with pytest.raises(UserError, match=rule):
        read_user_image("acme/x", str(make(tmp_path, *names)))


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no such folder"):
        read_user_image("acme/x", str(tmp_path / "none"))
    with pytest.raises(UserError, match="it is not a folder"):
        read_user_image("acme/x", str(make(tmp_path, "file") / "file"))
    (tmp_path / "a,b" / "opt").mkdir(parents=True)
    with pytest.raises(UserError, match="comma, colon or backslash"):
        read_user_image("acme/x", str(tmp_path / "a,b"))


def test_the_ways_on_are_named_with_the_image():
    _, hint = nothing_serves("mpioperator/mpi-pi:openmpi")

    assert "--image mpioperator/mpi-pi=FOLDER" in hint
    assert all(
        way in hint for way in ("--runtime containerd", "podman", "docker", "--context", "gangline/base")
    )


def test_limits_of_benchmarks_are_kept_until_they_are_changed() -> None:
    known = ImageMap().changed({}, None, "batch_size=8")

    assert ImageMap.from_object(known.to_object()).bench_limits == "batch_size=8"
    assert known.changed({}, "podman").bench_limits == "batch_size=8"
    assert known.changed({}, None, "").bench_limits == ""
