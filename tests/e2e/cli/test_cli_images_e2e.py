"""Images from folders and virtual environments of the user's: what a pod sees, is told, is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ISOLATIONS = [
    pytest.param(
        "network", marks=pytest.mark.skipif(os.geteuid() != 0, reason="network isolation needs root")
    ),
    "user",
]


@pytest.fixture
def folder(tmp_path):
    """Files to lay over the machine's: a program, and folders that are there and that are not."""
    files = tmp_path / "files"
    for name, text in (
        ("opt/tool/data", "data of the folder\n"),
        ("usr/bin/tool-of-folder", "#!/bin/sh\ncat /opt/tool/data /newtop/word\n"),
        ("newtop/word", "word of the folder\n"),
    ):
        path = files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return files


@pytest.fixture(params=ISOLATIONS)
def isolated(request, fresh):
    """Commands on a cluster of each isolation that has mounts."""
    up = fresh("up", "--isolation", request.param)
    if up.returncode:
        pytest.skip(up.stderr)
    return fresh


def test_a_folder_lies_over_the_machines_files_or_is_all_that_a_pod_sees(
    isolated, folder, tmp_path, pod_manifest
):
    line = "tool-of-folder; ls /usr/bin/env; echo x > /opt/tool/new"
    manifest = pod_manifest("files", line, image="acme/tool:3")

    ended = isolated("run", "--image", f"acme/tool={folder}", str(manifest))

    assert ended.stdout == "data of the folder\nword of the folder\n/usr/bin/env\n", ended.stderr
    assert f"image acme/tool:3 served by folder {folder}" in ended.stderr.splitlines()
    assert ended.stderr.splitlines()[-1].endswith(f"; image acme/tool:3 served by folder {folder}")
    assert not (folder / "opt/tool/new").exists()

    line = "cat /only-here/word; test -e /usr/bin/env || echo nothing of the machine"
    root = _root_file_system(tmp_path / "root")
    ended = isolated(
        "run", "--image", f"acme/root={root}", str(pod_manifest("root", line, image="acme/root"))
    )

    assert ended.stdout.splitlines() == ["of the root", "nothing of the machine"], ended.stderr


def _root_file_system(root):
    """Lay out a shell and `cat`, with the libraries that they need."""
    programs = [Path("/bin/sh").resolve(), Path("/bin/cat").resolve()]
    linked = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in linked.split() if word.startswith("/") and not word.endswith(":")}
    for source in {*map(str, programs), *libraries}:
        target = root / source.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(source).read_bytes())
        target.chmod(0o755)
    (root / "bin").mkdir(exist_ok=True)
    for name, program in zip(("sh", "cat"), programs, strict=True):
        if not (root / "bin" / name).exists():
            (root / "bin" / name).symlink_to(program)
    (root / "only-here").mkdir()
    (root / "only-here" / "word").write_text("of the root\n")
    return root


def test_the_python_of_a_virtual_environment_comes_first(fresh, tmp_path, pod_manifest):
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    manifest = pod_manifest(
        "venv", "python -c 'import sys; print(sys.prefix)'; echo $VIRTUAL_ENV", image="acme/env"
    )

    ended = fresh("run", "--image", f"acme/env={environment}", str(manifest))

    assert ended.stdout.splitlines() == [str(environment)] * 2, ended.stderr
    assert f"image acme/env served by virtual environment {environment}" in ended.stderr


def test_the_map_is_kept_shown_and_forgotten(fresh, folder, pod_manifest):
    manifest = pod_manifest("kept", "true", image="acme/tool")
    assert fresh("up", "--image", f"acme/tool={folder}").returncode == 0
    fresh("down")

    again = fresh("run", str(manifest))
    shown = json.loads(fresh("status", "-o", "json").stdout)["images"]
    forgotten = fresh("up", "--image", "acme/tool=")
    refused = fresh("run", str(manifest))

    assert again.returncode == 0, again.stderr
    assert shown == [f"image acme/tool served by folder {folder}"]
    assert forgotten.returncode == 0
    assert refused.returncode == 2


def test_an_image_that_nothing_serves_is_refused_before_anything_is_created(fresh, pod_manifest):
    ended = fresh("run", str(pod_manifest("none", "true", image="acme/none:1")))

    assert ended.returncode == 2
    assert "spec.containers[0].image: NotSupported: nothing on this machine serves this image" in ended.stderr
    hint = ended.stderr.partition("hint: ")[2]
    assert all(
        way in hint for way in ("--image acme/none=FOLDER", "--runtime containerd", "--context CONTEXT")
    )
    assert fresh("status").returncode == 3


def test_a_pod_that_kubectl_applied_waits_and_says_why(gangline, until):
    gangline("up")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "none", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "acme/none:1", "command": ["true"]}]},
    }
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.paths import ClusterPaths

    cluster = Cluster(ClusterPaths("default", gangline.home / "default"))
    cluster.request("POST", "/api/v1/namespaces/default/pods", pod)

    def waiting():
        status = cluster.request("GET", "/api/v1/namespaces/default/pods/none")["status"]
        states = [one["state"].get("waiting") or {} for one in status.get("containerStatuses") or []]
        return next((state for state in states if state.get("reason") == "ErrImageNeverPull"), None)

    until(waiting, "the reason")
    assert "--image acme/none=FOLDER" in waiting()["message"]

    def told():
        events = cluster.request("GET", "/api/v1/namespaces/default/events")["items"]
        return any(event["reason"] == "Failed" and "--runtime" in event["message"] for event in events)

    until(told, "the event")
    gangline("delete", "pod/none")


def test_wrong_use_ends_with_2_and_starts_nothing(fresh, folder, pod_manifest):
    manifest = str(pod_manifest("wrong", "true", image="acme/x"))
    cases = [
        (["run", manifest, "--image", "acme/x"], "write NAME=FOLDER"),
        (["run", manifest, "--image", "acme/x=/no/such/folder"], "there is no such folder"),
        (["run", manifest, "--image", "gangline/base=/usr"], "is this machine itself"),
        (
            ["run", manifest, "--image", "acme/x=/usr", "--context", "other"],
            "belongs to the one-machine cluster",
        ),
        (
            ["run", manifest, "--runtime", "podman", "--context", "other"],
            "belongs to the one-machine cluster",
        ),
        (["up", "--isolation", "plain", "--image", f"acme/x={folder}"], "isolation `plain` has no mounts"),
        (["up", "--isolation", "user", "--runtime", "containerd"], "containers need isolation `network`"),
    ]
    for words, rule in cases:
        ended = fresh(*words)

        assert (ended.returncode, rule in ended.stderr) == (2, True), ended.stderr
    assert fresh("status").returncode == 3
