"""An environment of the user's that serves an image brings its own MPI."""

from pathlib import Path

from gangline.cluster.images.image_map import UserImage
from gangline.cluster.images.local_images import LocalImages
from gangline.launch.mpi import MpiInstallation

MACHINE = MpiInstallation("openmpi", "5.0.11", Path("/m/bin"), Path("/m/lib"), Path("/m"))


def environment(folder: Path, *, package: str = "") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/python3.11/site-packages").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("")
    if package:
        (folder / "bin" / "mpirun").write_text("")
        (folder / "lib/libmpi.so.12").write_text("")
        (folder / f"lib/python3.11/site-packages/{package}.dist-info").mkdir()
    return folder


def test_an_environment_with_an_mpi_replaces_the_machines(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", package="impi_rt-2021.18.1")

    image = LocalImages(MACHINE).of_user("you/image", UserImage("venv", str(folder)))

    assert image.path_entries[0] == f"{folder}/bin"
    assert image.env["MPI4PY_LIBMPI"] == f"{folder}/lib/libmpi.so.12"
    assert "OMPI_MCA_btl" not in image.env
    assert image.env["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"


def test_an_environment_without_one_keeps_the_machines(tmp_path: Path) -> None:
    images = LocalImages(MACHINE)
    image = images.of_user("you/image", UserImage("venv", str(environment(tmp_path / "env"))))

    assert image.env["OMPI_MCA_plm_rsh_agent"] == images.base.env["OMPI_MCA_plm_rsh_agent"]
    assert image.env.get("OMPI_MCA_btl") == images.base.env.get("OMPI_MCA_btl")
