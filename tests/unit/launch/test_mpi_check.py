"""The check of a script whose MPI is not the launcher's, with a made-up mpi4py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gangline.launch

MPI_CHECK = Path(gangline.launch.__file__).parent / "mpi_check"
FAKE = """
import os
SIZE = int(os.environ.get("WORLD", 1))
class COMM_WORLD:
    Get_size = staticmethod(lambda: SIZE)
    Get_rank = staticmethod(lambda: 1)
Is_initialized = lambda: True
Is_finalized = lambda: False
Get_library_version = lambda: "MPICH Version: 5.0"
"""


def run(tmp_path: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    package = tmp_path / "site" / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text(FAKE)
    (package / "run.py").write_text("def set_abort_status(status): print('abort with', status)")
    search = f"{MPI_CHECK}{os.pathsep}{tmp_path / 'site'}"
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import sitecustomize\n{script}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": search} | env,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )


IMPORT = "from mpi4py import MPI; print('rank 0 of', MPI.COMM_WORLD.Get_size())"


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_rank_whose_world_is_smaller_than_launched_ends_before_it_does_anything(tmp_path, variable):
    done = run(tmp_path, IMPORT, **{variable: "2"})

    assert done.returncode == 78
    assert done.stdout == ""
    assert "the launcher started 2 ranks, but this script's MPI sees 1" in done.stderr
    assert "MPICH Version: 5.0" in done.stderr
    assert f"mpirun of {'Open MPI' if variable.startswith('OMPI') else 'MPICH'}" in done.stderr


@pytest.mark.parametrize("env", [{}, {"OMPI_COMM_WORLD_SIZE": "1"}], ids=["no launcher", "one rank"])
def test_world_of_the_launched_size_goes_on(tmp_path, env):
    done = run(tmp_path, IMPORT, **env)

    assert (done.returncode, done.stdout) == (0, "rank 0 of 1\n")


@pytest.mark.parametrize(
    ("end", "size", "stdout"),
    [
        ("raise KeyError('x')", "2", "abort with 1\n"),
        ("sys.excepthook = lambda *_: None; raise KeyError('x')", "2", "abort with 1\n"),
        ("sys.exit(3)", "2", ""),
        ("pass", "2", ""),
        ("raise KeyError('x')", "1", ""),
    ],
    ids=["exception", "a hook of the program's own", "exit", "good end", "alone"],
)
def test_an_exception_that_ends_a_rank_ends_the_others(tmp_path, end, size, stdout):
    script = f"import sys\nfrom mpi4py import MPI\n{end}"

    done = run(tmp_path, script, OMPI_COMM_WORLD_SIZE=size, WORLD=size)

    assert done.stdout == stdout
    assert ("gangline: KeyError on rank 1: ending all ranks" in done.stderr) == bool(stdout)


def test_what_makes_other_mpis_fail_at_once_is_taken_away_so_that_the_guard_can_say_it(tmp_path):
    script = "import os; print(os.environ.get('PMI_PORT'), os.environ.get('OMPI_MCA_pml'))"
    marks = {"PMI_PORT": "mpirun-is-open-mpi.invalid:1", "OMPI_MCA_pml": "ob1"}

    assert run(tmp_path, script, OMPI_COMM_WORLD_SIZE="2", **marks).stdout == "None ob1\n"


def test_under_hydra_whole_lines_are_written_even_unbuffered(tmp_path):
    script = "import sys; print(sys.stdout.line_buffering, sys.stdout.write_through)"

    assert run(tmp_path, script, PMI_SIZE="2", PYTHONUNBUFFERED="1").stdout == "True False\n"


def test_sitecustomize_that_the_guard_hides_is_imported_too(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('theirs')")

    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sitecustomize"],
        env={"PYTHONPATH": f"{MPI_CHECK}{os.pathsep}{tmp_path / 'site'}", "OMPI_COMM_WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "theirs\n"


def test_python_without_gangline_finds_the_part_for_ranks(tmp_path):
    done = run(tmp_path, "import gangline.train; print(gangline.train.read_ranks({}).size)")

    assert done.stdout == "1\n", done.stderr


def test_python_with_a_gangline_of_its_own_keeps_it(tmp_path):
    package = tmp_path / "site" / "gangline"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("mine = 1")
    done = run(tmp_path, "import gangline; print(gangline.mine)")

    assert done.stdout == "1\n", done.stderr
