"""The files of the images that Gangline brings: at the paths that published manifests name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangline.cluster.images.image_map import UserImage
from gangline.cluster.images.local_images import LocalImages, local_image_of
from gangline.cluster.images.shipped_images import SHIPPED, layer_of, write_layers

PUBLISHED = Path(__file__).resolve().parents[3] / "examples" / "published"


def launchers() -> list[tuple[str, str, list[str]]]:
    """Return file, image and words of every launcher of the published manifests."""
    found = []
    for path in sorted(PUBLISHED.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        template = (
            spec["mpiReplicaSpecs"]["Launcher"]["template"] if "mpiReplicaSpecs" in spec else spec["template"]
        )
        for container in template["spec"]["containers"]:
            words = [*container.get("command", []), *container.get("args", [])]
            found.append((path.name, container["image"], [str(word) for word in words]))
    return found


@pytest.mark.parametrize(("name", "image", "words"), launchers())
def test_programs_of_published_manifests_are_there(
    name: str, image: str, words: list[str], tmp_path: Path
) -> None:
    write_layers(tmp_path)
    served = LocalImages(shipped=tmp_path).find(image)

    assert served is not None
    programs = [word for word in words if word.endswith(".py")]
    for program in programs:
        path = Path(served.config.working_dir, program)
        assert Path(served.layers[0], str(path).lstrip("/")).is_file()


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("mpioperator/tensorflow-benchmarks:latest", "mpioperator/tensorflow-benchmarks"),
        ("nvcr.io/nvidia/tensorflow:19.10-py3", "nvidia/tensorflow"),
        ("docker.io/mirrorgooglecontainers/cuda-vector-add:v0.1", "mirrorgooglecontainers/cuda-vector-add"),
        ("k8s.gcr.io/cuda-vector-add:v0.1", "cuda-vector-add"),
        ("horovod/horovod:0.18.1-tf1.14.0-torch1.2.0-mxnet1.5.0-py3.6", "horovod/horovod"),
        ("netapp/tensorflow-py2:19.03.0", "netapp/tensorflow-py2"),
        ("mpioperator/mpi-pi:intel", "mpioperator/mpi-pi"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.1", "nvidia/k8s-device-plugin"),
        ("acme/tensorflow-benchmarks", ""),
    ],
)
def test_name_is_found_whatever_registry_and_tag(reference: str, name: str) -> None:
    assert local_image_of(reference) == name


def test_a_volume_of_the_published_device_plugin_has_a_place(tmp_path: Path) -> None:
    """Who is not root cannot make a folder below /var/lib."""
    (container,) = yaml.safe_load((PUBLISHED / "pods" / "device-plugin.yaml").read_text())["spec"][
        "template"
    ]["spec"]["containers"]
    write_layers(tmp_path)
    served = LocalImages(shipped=tmp_path).find(container["image"])

    assert served is not None
    for mount in container["volumeMounts"]:
        assert Path(served.layers[0], mount["mountPath"].lstrip("/")).is_dir()


def test_every_program_is_a_file_that_can_be_run(tmp_path: Path) -> None:
    write_layers(tmp_path)

    for name, image in SHIPPED.items():
        for path in image.programs:
            file = layer_of(tmp_path, name) / path.lstrip("/")
            assert file.is_file(), file
            assert path.endswith(".py") or os.access(file, os.X_OK), file


def test_writing_again_leaves_alone_what_pods_may_lie_over(tmp_path: Path) -> None:
    write_layers(tmp_path)
    before = {path: path.lstat().st_ino for path in tmp_path.rglob("*")}

    write_layers(tmp_path)

    assert {path: path.lstat().st_ino for path in tmp_path.rglob("*")} == before


def test_virtual_environment_lends_its_python_to_our_programs(tmp_path: Path) -> None:
    images = LocalImages(shipped=tmp_path)

    served = images.of_user("mpioperator/tensorflow-benchmarks", UserImage("venv", "/opt/torch"))

    assert served.path_entries[0] == "/opt/torch/bin"
    assert served.layers == (str(layer_of(tmp_path, "mpioperator/tensorflow-benchmarks")),)
    assert served.config.working_dir == "/tensorflow/benchmarks"


def test_program_runs_by_a_path_far_from_gangline(tmp_path: Path) -> None:
    write_layers(tmp_path)
    program = layer_of(tmp_path, "mpioperator/tensorflow-benchmarks") / "tensorflow/benchmarks/scripts"
    program = program / "tf_cnn_benchmarks" / "tf_cnn_benchmarks.py"

    done = subprocess.run(
        [sys.executable, "-S", str(program), "--batch_sice=3"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert "unknown flag `--batch_sice`" in done.stderr
    assert "did you mean `--batch_size`?" in done.stderr
