"""Which containers would fail in every try: programs of ours without torch, a launcher of another MPI."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gangline.api.core import Container
from gangline.client.run.images import image_check
from gangline.cluster.images.image import Image
from gangline.cluster.images.image_map import ImageMap
from gangline.cluster.images.program_check import needs_of, why_not
from gangline.cluster.images.shipped_images import SHIPPED, config_of
from gangline.cluster.node.pods.pod_images import ImageUnavailableError, PodImages

PUBLISHED = Path(__file__).resolve().parents[3] / "examples" / "published"
TF_CNN = "/tensorflow/benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
TENSORFLOW = "mpioperator/tensorflow-benchmarks:latest"


def launcher_words(name: str) -> tuple[str, list[str]]:
    spec = yaml.safe_load((PUBLISHED / name).read_text())["spec"]
    template = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"] if "mpiReplicaSpecs" in spec else spec
    container = template["containers"][0]
    words = [*container.get("command", []), *container.get("args", [])]
    return container["image"], [str(word) for word in words]


@pytest.mark.parametrize(
    ("file", "name", "want"),
    [
        ("v2beta1-benchmarks.yaml", "mpioperator/tensorflow-benchmarks", ("torch",)),
        ("pods/horovod.yaml", "horovod/horovod", ("torch",)),
        ("v2beta1-pi-intel.yaml", "mpioperator/mpi-pi", ("mpi4py",)),
        ("v1-elastic.yaml", "horovod/horovod", ("torch",)),
    ],
)
def test_published_launchers_need_what_their_programs_import(file: str, name: str, want: object) -> None:
    image, words = launcher_words(file)

    assert needs_of(image, words, config_of(name).working_dir) == want


@pytest.mark.parametrize(
    ("words", "folder", "is_ours"),
    [
        (["mpirun", "-n", "2", "python", TF_CNN], "", True),
        (["bash", "-c", f"mpirun python {TF_CNN}; true"], "", True),
        (["python", "tf_cnn_benchmarks.py"], "/tensorflow/benchmarks/scripts/tf_cnn_benchmarks", True),
        (["sh", "-c", "cd /tensorflow/benchmarks/scripts/tf_cnn_benchmarks && python tf_cnn_benchmarks.py"],
         "/", True),
        (["python", "/code/tf_cnn_benchmarks.py"], "/code", False),
        (["/usr/sbin/sshd", "-De"], "/tensorflow/benchmarks", False),
        (["/opt/mine/bin/python", TF_CNN], "", False),
        (["mpirun", "-np", "2", "/usr/bin/python3.11", TF_CNN], "", False),
        (["sh", "-c", f"pip install torch && python {TF_CNN}"], "", False),
        (["sh", "-c", f". /env/bin/activate; python {TF_CNN}"], "", False),
        (["env", "PYTHONPATH=/modules", "python", TF_CNN], "", False),
        (["mpirun", "-x", "PATH", "-x", "LD_LIBRARY_PATH", "python", TF_CNN], "", True),
        ([], "/tensorflow/benchmarks", False),
    ],
)  # fmt: skip
def test_only_programs_of_the_image_need_anything(words: list[str], folder: str, is_ours: bool) -> None:
    assert bool(needs_of(TENSORFLOW, words, folder)) is is_ours


def test_image_without_needs_has_none() -> None:
    assert SHIPPED["cuda-vector-add"].needs == ()
    assert needs_of("k8s.gcr.io/cuda-vector-add:v0.1", ["./vectorAdd"], "") == ()


@pytest.fixture
def python_without_torch(tmp_path: Path) -> str:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 77\n")  # as `python -c …` does that finds no such module
    python.chmod(0o755)
    return str(tmp_path)


def test_missing_torch_is_told_with_the_python_and_both_ways_to_it(python_without_torch: str) -> None:
    refusal = why_not(TENSORFLOW, ["python", TF_CNN], "", python_without_torch, {})

    assert refusal is not None
    assert refusal[0] == (
        f"its programs here are Gangline's own, which need torch, and {python_without_torch}/python "
        "does not have it"
    )
    assert f"{python_without_torch}/python -m pip install torch" in refusal[1]
    assert "--image mpioperator/tensorflow-benchmarks=FOLDER" in refusal[1]


def test_python_with_torch_or_that_of_an_active_environment_is_fine(
    python_without_torch: str, tmp_path: Path
) -> None:
    python = tmp_path / "with" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    words = ["python", TF_CNN]

    assert why_not(TENSORFLOW, words, "", str(python.parent), {}) is None
    environment = {"VIRTUAL_ENV": str(tmp_path / "with")}
    assert why_not(TENSORFLOW, words, "", python_without_torch, environment) is None


def test_modules_that_the_container_brings_are_not_judged(python_without_torch: str) -> None:
    environment = {"PYTHONPATH": "/data/modules"}

    assert why_not(TENSORFLOW, ["python", TF_CNN], "", python_without_torch, environment) is None


def test_commands_look_for_the_python_on_the_path_that_the_container_sets(python_without_torch: str) -> None:
    container = {
        "image": TENSORFLOW,
        "command": ["python", TF_CNN],
        "env": [{"name": "PATH", "value": python_without_torch}],
    }

    assert f"{python_without_torch}/python does not have it" in image_check(ImageMap())(container)
    Path(python_without_torch, "python").write_text("#!/bin/sh\nexit 0\n")
    assert image_check(ImageMap())(container) == ""


@pytest.mark.parametrize(
    ("variable", "words", "is_refused"),
    [
        ("I_MPI_HYDRA_HOST_FILE", ["mpirun", "-n", "2", "pi"], True),
        ("OMPI_MCA_orte_default_hostfile", ["mpirun", "-n", "2", "pi"], False),
        ("I_MPI_HYDRA_HOST_FILE", ["mpirun", "-H", "a,b", "pi"], False),
        ("I_MPI_HYDRA_HOST_FILE", ["/opt/mine/mpirun", "-n", "2", "pi"], False),
    ],
    ids=["another MPI's hosts", "its own hosts", "hosts on the line", "a launcher of the user's"],
)
def test_launcher_of_another_mpi_than_the_jobs_is_refused(
    variable: str, words: list[str], is_refused: bool, tmp_path: Path
) -> None:
    for name in ("mpirun", "prterun"):
        (tmp_path / name).touch(mode=0o755)

    refusal = why_not("gangline/base", words, "", str(tmp_path), {variable: "/etc/mpi/hostfile"})

    assert (refusal is not None) is is_refused
    if refusal is not None:
        assert refusal[0].startswith("`mpiImplementation` of this job is `Intel`")
        assert refusal[1].startswith("write `mpiImplementation: OpenMPI`")


class OneImage:
    """Serves every image by the same one."""

    def __init__(self, image: Image) -> None:
        self.image = image

    async def serve(self, reference: str) -> Image:
        return self.image


async def test_container_that_would_fail_waits_for_its_image_instead(python_without_torch: str) -> None:
    name = "mpioperator/tensorflow-benchmarks"
    image = Image(name, path_entries=(python_without_torch,), env={"GANGLINE_IMAGE": name})
    images = PodImages(OneImage(image), lambda: None, lambda *_: None)  # type: ignore[arg-type]

    with pytest.raises(ImageUnavailableError, match="which need torch") as caught:
        await images.find(Container(name="launcher", image=TENSORFLOW, command=["python", TF_CNN]))
    assert caught.value.reason == "ErrImageNeverPull"
    worker = Container(name="worker", image=TENSORFLOW, command=["/usr/sbin/sshd", "-De"])
    assert await images.find(worker) is image


async def test_folder_of_the_users_that_serves_an_image_of_that_name_has_programs_of_its_own(
    python_without_torch: str,
) -> None:
    image = Image(TENSORFLOW, layers=("/opt/mine/tensorflow",), path_entries=(python_without_torch,))
    images = PodImages(OneImage(image), lambda: None, lambda *_: None)  # type: ignore[arg-type]

    assert await images.find(Container(name="m", image=TENSORFLOW, command=["python", TF_CNN])) is image
