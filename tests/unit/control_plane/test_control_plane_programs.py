"""Where the programs of a control plane are looked for, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.cluster.control_plane.commands import PlaneFiles, command_lines
from gangline.cluster.control_plane.programs import BUILT_VERSION, check_programs, find_programs
from gangline.errors import UserError

GOOD = {
    "etcd": "etcd Version: 3.6.16",
    "kube-apiserver": "Kubernetes v1.35.4",
    "kube-controller-manager": "Kubernetes v1.35.4",
}


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho {text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the three folders that are looked at, empty."""
    found = {name: tmp_path / name for name in ("assets", "path", "cache")}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(found["assets"]))
    monkeypatch.setenv("PATH", f"{found['path']}:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(found["cache"]))
    return {**found, "cache": found["cache"] / "gangline" / "kubernetes" / BUILT_VERSION}


def test_the_named_folder_is_before_the_path_and_that_before_what_was_built(places: dict[str, Path]) -> None:
    for name, text in GOOD.items():
        write(places["cache"], name, text)
    write(places["path"], "etcd", GOOD["etcd"])
    write(places["path"], "kube-apiserver", GOOD["kube-apiserver"])
    write(places["assets"], "etcd", GOOD["etcd"])

    found = find_programs()

    assert [found[name].parent for name in GOOD] == [places["assets"], places["path"], places["cache"]]
    check_programs()


def test_what_is_missing_is_named_with_the_way_to_get_it(places: dict[str, Path]) -> None:
    write(places["path"], "etcd", GOOD["etcd"])

    with pytest.raises(UserError) as refused:
        check_programs()

    assert "needs kube-apiserver, kube-controller-manager," in refused.value.message
    assert "make kubernetes" in refused.value.hint
    assert "KUBEBUILDER_ASSETS=" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("etcd", "etcd Version: 3.4.30", "is version 3.4, 3.5 or newer is needed"),
        ("kube-apiserver", "Kubernetes v1.30.9", "is version 1.30, 1.31 or newer is needed"),
        ("kube-controller-manager", "Kubernetes v1.36.0", "is version 1.36, newer than"),
        ("kube-apiserver", "nothing", "tells no version"),
    ],
)
def test_a_version_that_does_not_do_is_told(
    places: dict[str, Path], name: str, text: str, words: str
) -> None:
    for each, good in GOOD.items():
        write(places["assets"], each, good)
    write(places["assets"], name, text)

    with pytest.raises(UserError) as refused:
        check_programs()

    assert str(places["assets"] / name) in refused.value.message
    assert words in refused.value.message


def test_nothing_listens_beyond_this_machine_and_etcd_only_for_its_owner() -> None:
    files = PlaneFiles(Path("/c/pki"), Path("/c/etcd"), Path("/r"))

    lines = command_lines(files, 16000, "10.213.0.1")

    urls = [line.partition("=")[2] for line in lines["etcd"] if line.startswith("--listen")]
    assert urls == ["unix:///r/etcd.sock", "unix:///r/etcd-peer.sock"]
    assert not any("fsync" in line for line in lines["etcd"])
    assert "--bind-address=127.0.0.1" in lines["kube-apiserver"]
    assert "--secure-port=0" in lines["kube-controller-manager"]
