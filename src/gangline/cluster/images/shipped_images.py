"""Local images with Gangline's own programs, named like the images of published manifests.

The programs lie at the paths that those manifests name, over the machine's own files, and are run by the
first ``python`` on the PATH: Gangline's, or that of a virtual environment which the user has serve the image
(``--image mpioperator/tensorflow-benchmarks=~/torch-env``). Every version of an image is the same here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.cluster.images.image import ImageConfig
from gangline.devices.inventory import PLUGIN_FOLDER

PYTHON_FOLDER = "/opt/gangline/python"
"""In an image: modules for a Python that lacks them, behind its own on the search path."""

BENCH_LIMITS_VARIABLE = "GANGLINE_BENCH_LIMITS"
"""Read by ``gangline.bench.limits``."""

_TF_CNN = "tf_cnn_benchmarks.py"
_SYNTHETIC = "pytorch_synthetic_benchmark.py"


class ShippedImage(msgspec.Struct, frozen=True):
    """One image of the table.

    Attributes:
        programs: path in the image -> file in ``gangline/bench``. One that does not end in ``.py`` can be
            run without naming Python.
        working_dir: where its containers start.
        entrypoint, command: what it runs by itself; arguments follow the entrypoint.
        mount_points: empty folders, for volumes of the published manifests.
        needs: modules that its programs import.
    """

    programs: Mapping[str, str]
    working_dir: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    mount_points: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("torch",)


_OPERATOR = (sys.executable, "-I", "-m", "gangline", "operator", "--leader-elect", "--remote-shell")
_DEVICE_PLUGIN = (sys.executable, "-I", "-m", "gangline", "device-plugin", "--folder", PLUGIN_FOLDER)
_VECTOR_ADD = "/usr/local/cuda/samples/0_Simple/vectorAdd/vectorAdd"

SHIPPED: dict[str, ShippedImage] = {
    "mpioperator/tensorflow-benchmarks": ShippedImage(
        {f"/tensorflow/benchmarks/scripts/tf_cnn_benchmarks/{_TF_CNN}": _TF_CNN}, "/tensorflow/benchmarks"
    ),
    "mpioperator/mpi-pi": ShippedImage(
        {"/home/mpiuser/pi": "mpi_pi.py"},
        "/home/mpiuser",
        mount_points=("/home/mpiuser/.ssh",),
        needs=("mpi4py",),
    ),
    "kubernetes-image-hub/tensorflow-benchmark": ShippedImage(
        {f"/tensorflow/benchmarks/scripts/tf_cnn_benchmarks/{_TF_CNN}": _TF_CNN}, "/tensorflow/benchmarks"
    ),
    "horovod/horovod": ShippedImage(
        {
            f"/examples/{_SYNTHETIC}": _SYNTHETIC,
            f"/examples/pytorch/{_SYNTHETIC}": _SYNTHETIC,
            "/examples/elastic/tensorflow2_mnist_elastic.py": "mnist_elastic.py",
        },
        "/examples",
    ),
    "nvidia/tensorflow": ShippedImage(
        {
            "/workspace/nvidia-examples/resnet50v1.5/main.py": "nvidia_main.py",
            f"/opt/benchmarks/{_TF_CNN}": _TF_CNN,
        },
        "/workspace",
    ),
    "netapp/tensorflow-py2": ShippedImage(
        {
            f"/netapp/tensorflow/benchmarks_190205/scripts/tf_cnn_benchmarks/{_TF_CNN}": _TF_CNN,
            "/netapp/scripts/run.py": "netapp_run.py",
            "/netapp/scripts/start-slave-multi.sh": "netapp_worker.py",
        },
        "/netapp",
    ),
    "gangline": ShippedImage({}, needs=()),
    "gangline-scheduler": ShippedImage({}, needs=()),
    "gangline-page": ShippedImage({}, needs=()),
    "gangline-device-plugin": ShippedImage({}, mount_points=(PLUGIN_FOLDER,), needs=()),
    "mpioperator/mpi-operator": ShippedImage(
        {}, entrypoint=(*_OPERATOR, f"--gang-scheduling={GANGLINE_SCHEDULER}"), needs=()
    ),
    "nvidia/k8s-device-plugin": ShippedImage(
        {}, entrypoint=_DEVICE_PLUGIN, mount_points=(PLUGIN_FOLDER,), needs=()
    ),
    "mirrorgooglecontainers/cuda-vector-add": ShippedImage(
        {_VECTOR_ADD: "cuda_vector_add.py"},
        _VECTOR_ADD.rpartition("/")[0],
        command=("./vectorAdd",),
        needs=(),
    ),
}
"""By name without registry and tag."""

SHIPPED["cuda-vector-add"] = SHIPPED["mirrorgooglecontainers/cuda-vector-add"]  # under k8s.gcr.io


def config_of(name: str) -> ImageConfig:
    """Return what a container of an image runs unless told otherwise, and where."""
    image = SHIPPED[name]
    return ImageConfig(image.entrypoint, image.command, image.working_dir)


def own_programs(name: str, reference: str) -> str:
    """Return in words what serves an image, and what it lacks here.

    Args:
        name: in ``SHIPPED``.
        reference: as the manifest has it, without tag: the name that ``--image`` takes.
    """
    missing = [module for module in SHIPPED[name].needs if importlib.util.find_spec(module) is None]
    if not missing:
        return "Gangline's own programs"
    return (
        f"Gangline's own programs, which need {' and '.join(missing)}: this Python has none; "
        f"--image {reference}=FOLDER lends them a virtual environment that does"
    )


def tops_of(name: str) -> tuple[str, ...]:
    """Return the folders of an image with its programs, and where it starts, for pods without mounts."""
    folders = {PYTHON_FOLDER, *(str(Path(path).parent) for path in SHIPPED[name].programs)}
    return tuple(sorted(folders | set(filter(None, [SHIPPED[name].working_dir]))))


def layer_of(folder: Path, name: str) -> Path:
    """Return where the files of an image lie."""
    return folder / name.replace("/", "_")


def write_layers(folder: Path) -> None:
    """Write the files of all images; programs are links into this Gangline.

    What is as it should be stays untouched, for running pods may lie over it.
    """
    bench = Path(__file__).resolve().parents[2] / "bench"
    spec = importlib.util.find_spec("mpi4py")
    for name, image in SHIPPED.items():
        layer = layer_of(folder, name)
        for path, program in image.programs.items():
            target = layer / path.lstrip("/")
            if path.endswith(".py"):
                _link(target, bench / program)
            else:
                _write(target, f'#!/bin/sh\nexec python "{bench / program}" "$@"\n')
        for path in image.mount_points:
            (layer / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        if spec is not None and spec.origin is not None:
            # Lent to a virtual environment without one: ranks in several pods meet through it.
            _link(layer / PYTHON_FOLDER.lstrip("/") / "mpi4py", Path(spec.origin).resolve().parent)


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _write(path: Path, text: str) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
