"""The wheel runs from an empty environment: what it needs is declared, and everything it needs is inside."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
INSTALL_TIMEOUT_S = 240


def pip(python: Path | str, *words: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S, cwd=REPOSITORY)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), ".")
    (found,) = folder.glob("gangline-*.whl")
    return found


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=True, symlinks=True)
    pip(environment / "bin" / "python", "install", "--only-binary=:all:", str(wheel))
    return environment / "bin" / "gangline"


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[0] for name in names}

    assert "gangline" in folders
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"gangline"}
    assert "gangline/py.typed" in names
    assert {
        f"gangline/page/static/{name}" for name in ("index.html", "app.js", "app.css", "terminal.js")
    } <= {*names}
    assert any(name.endswith("LICENSE") for name in names)


@pytest.mark.timeout(INSTALL_TIMEOUT_S)
def test_wheel_runs_from_an_empty_environment(program: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "state")}

    for words, expected in (
        (["--version"], "gangline 0."),
        (["--help"], "run manifests"),
        (["crds"], "mpijobs"),
    ):
        done = subprocess.run(
            [program, *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


@pytest.mark.timeout(INSTALL_TIMEOUT_S)
def test_wheel_without_an_mpi_says_how_to_get_one(program: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "state")}
    if any((Path(folder) / "mpirun").exists() for folder in os.defpath.split(os.pathsep)):
        pytest.skip("the system has an mpirun")

    command = [program, "run", "-n", "2", "--dry-run", "-o", "yaml", "--", "sh", "-c", "true"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 2
    assert "pip install 'gangline[mpi]'" in done.stderr
