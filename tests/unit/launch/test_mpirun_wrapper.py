"""The wrapper of mpirun: old options made new, a lost host and a wrong MPI told, streams and signals kept.

A shell script stands in for the real launcher; `tests/e2e` run the real one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.launch.wrapper import mpirun_wrapper
from gangline.launch.wrapper.mpirun_wrapper import (
    NO_PMI,
    NO_PML,
    ErrorStream,
    find_launcher,
    hosts_meant_for,
    modern_options,
)

WRAPPER = mpirun_wrapper.__file__
GUARD = f"-x PMI_PORT={NO_PMI} -x PMI_ID=0 "
ATTACHED = "--leave-session-attached "


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (
            "-np 2 -bind-to none -map-by slot -x A=1 -mca pml ob1 prog -bind-to x",
            "-np 2 --bind-to none --map-by slot -x A=1 -mca pml ob1 prog -bind-to x",
        ),
        ("--mca btl -bind-to prog -map-by", "--mca btl -bind-to prog -map-by"),
        ("-n 1 a -map-by : -n 1 -map-by node b", "-n 1 a -map-by : -n 1 --map-by node b"),
        ("--tag-output -H a:2,b:2 prog", "--tag-output -H a:2,b:2 prog"),
        ("", ""),
    ],
)
def test_only_options_before_the_program_change(line: str, want: str) -> None:
    assert modern_options(line.split()) == want.split()


def test_a_lost_host_is_seen_also_in_pieces() -> None:
    stream = ErrorStream("launcher")
    text = b"PRTE has lost communication with a remote daemon.\n"

    shown = b"".join(stream.feed(text[i : i + 7]) for i in range(0, len(text), 7)) + stream.flush()

    assert stream.host_was_lost
    assert shown == text


def program(path: Path, script: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path.parent


def mpi(folder: Path, family: str, script: str = "") -> Path:
    """Make the `bin` folder of an MPI: its mpirun, and what stands beside it."""
    beside = {
        "open mpi 5": ["prterun"],
        "open mpi 4": ["orterun"],
        "mpich": ["hydra_pmi_proxy"],
        "intel": ["hydra_pmi_proxy", "hydra_bstrap_proxy"],
    }
    for name in beside[family]:
        program(folder / "bin" / name)
    return program(folder / "bin" / "mpirun", script)


def wrapped(
    tmp_path: Path, script: str, family: str = "open mpi 5", environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    own = program(tmp_path / "own" / "mpirun", "echo the wrapper itself; exit 99")
    real = mpi(tmp_path / "real", family, script)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", WRAPPER, f"{own}/mpirun", "-np", "2", "prog"],
        env={"PATH": f"{own}:{real}:{os.environ['PATH']}"} | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("code", [0, 3, 127])
def test_streams_and_exit_code_are_the_launchers(tmp_path: Path, code: int) -> None:
    process = wrapped(tmp_path, f'echo "out $*"; echo err >&2; exit {code}')

    assert process.communicate(timeout=60) == (f"out {GUARD}{ATTACHED}-np 2 prog\n", "err\n")
    assert process.returncode == code


def test_a_lost_host_ends_with_code_1(tmp_path: Path) -> None:
    process = wrapped(tmp_path, 'echo "PRTE has lost communication with a remote daemon." >&2')
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "a host was lost" in errors


def test_the_harmless_warning_is_left_out(tmp_path: Path) -> None:
    host = os.uname().nodename
    warning = f"[{host}:12] plm:ssh: Warning: setpgid(7,7) failed in parent with errno=x"
    process = wrapped(tmp_path, f'echo "{warning}" >&2; echo kept >&2')

    assert process.communicate(timeout=60)[1] == "kept\n"


def test_a_signal_reaches_the_launcher(tmp_path: Path) -> None:
    process = wrapped(tmp_path, "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.02; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=60)[0] == "got it\n"
    assert process.returncode == 9


def test_the_named_folder_comes_before_the_path_and_the_front_is_never_its_own_launcher(
    tmp_path: Path,
) -> None:
    own = program(tmp_path / "own" / "mpirun")
    first, second = mpi(tmp_path / "a", "open mpi 5"), mpi(tmp_path / "b", "mpich")
    path = f"{own}:{first}:{second}"

    found = find_launcher(str(own), "mpirun", {"PATH": path})
    named = find_launcher(str(own), "mpirun", {"PATH": path, "GANGLINE_MPI_BIN": str(second)})

    assert (found.program, found.family, found.is_modern) == (first / "mpirun", "Open MPI", True)
    assert (named.program, named.family, named.is_modern) == (second / "mpirun", "MPICH", False)
    assert find_launcher(str(own), "mpirun", {"PATH": str(own)}) is None


def test_options_are_changed_for_open_mpi_5_alone(tmp_path: Path) -> None:
    script = 'echo "$OMPI_MCA_pml $*"'

    assert wrapped(tmp_path, script, "mpich").communicate(timeout=60)[0].startswith(f"{NO_PML} -genvlist ")
    assert wrapped(tmp_path / "4", script, "open mpi 4").communicate(timeout=60)[0] == f" {GUARD}-np 2 prog\n"


def test_ranks_under_hydra_keep_the_variables_of_their_own_pod(tmp_path: Path) -> None:
    environment = {"HOSTNAME": "l", "CUDA_VISIBLE_DEVICES": "", "GANGLINE_POD_NAME": "l", "MINE": "1"}
    out, _ = wrapped(tmp_path, 'echo "$2"', "intel", environment).communicate(timeout=60)

    assert set(out.strip().split(",")) - {"LC_CTYPE"} == {"PATH", "MINE", "OMPI_MCA_pml"}


def test_programs_beside_the_launcher_are_on_its_path(tmp_path: Path) -> None:
    process = wrapped(tmp_path, "command -v hydra_pmi_proxy", "mpich")

    assert process.communicate(timeout=60)[0] == f"{tmp_path}/real/bin/hydra_pmi_proxy\n"


@pytest.mark.parametrize(
    ("family", "said", "built_for"),
    [
        ("open mpi 5", "Unable to get host entry for mpirun-is-open-mpi.invalid", "MPICH or Intel MPI"),
        (
            "open mpi 5",
            "Runtime environment uses unsupported PMI version PMIx. Aborting.",
            "MPICH or Intel MPI",
        ),
        ("mpich", f"component {NO_PML} was not found", "Open MPI"),
    ],
)
def test_a_program_of_another_mpi_ends_with_78_and_both_names(
    tmp_path: Path, family: str, said: str, built_for: str
) -> None:
    process = wrapped(tmp_path, f'echo "{said}" >&2; exit 16', family)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 78
    assert f"the program was built for {built_for}, but" in errors
    assert f"is of {'MPICH' if built_for == 'Open MPI' else 'Open MPI'}" in errors
    assert "hint: " in errors


@pytest.mark.parametrize(
    ("family", "variable", "written"),
    [
        ("open mpi 5", "HYDRA_HOST_FILE", "OpenMPI"),
        ("mpich", "PRTE_MCA_prte_default_hostfile", "MPICH"),
        ("mpich", "I_MPI_HYDRA_HOST_FILE", "MPICH"),
        ("intel", "HYDRA_HOST_FILE", "Intel"),
    ],
)
def test_an_image_of_another_mpi_than_the_job_names_does_not_run_all_ranks_on_the_launcher(
    tmp_path: Path, family: str, variable: str, written: str
) -> None:
    process = wrapped(tmp_path, "echo started", family, {variable: "/etc/mpi/hostfile"})
    out, errors = process.communicate(timeout=60)

    assert (process.returncode, out) == (78, "")
    assert f"hint: write `mpiImplementation: {written}`" in errors


def test_hosts_that_the_command_names_itself_are_the_commands_affair(tmp_path: Path) -> None:
    launcher = find_launcher("/own", "mpirun", {"PATH": str(mpi(tmp_path, "mpich"))})
    assert launcher is not None
    environment = {"I_MPI_HYDRA_HOST_FILE": "x"}

    assert hosts_meant_for(launcher, ["-f", "mine", "-n", "2", "prog"], environment) == ""
    assert hosts_meant_for(launcher, ["-n", "2", "prog"], environment) == "Intel MPI"
    assert hosts_meant_for(launcher, ["-n", "2", "prog"], environment | {"HYDRA_HOST_FILE": "x"}) == ""
    assert hosts_meant_for(launcher, ["-n", "2", "prog"], {}) == ""


def test_an_image_without_an_mpi_says_so(tmp_path: Path) -> None:
    own = program(tmp_path / "own" / "mpirun")
    line = [sys.executable, "-I", "-S", WRAPPER, f"{own}/mpirun", "-n", "2", "prog"]
    done = subprocess.run(
        line, env={"PATH": str(own)}, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 127
    assert "no `mpirun` on its PATH" in done.stderr


CRASH = """cat >&2 <<E
A daemon failed to report back after being spawned. This could
be due to several factors
  Remote host:   pi-worker-0
  Daemon exit status: {status}
E
"""


DEAF = 'echo "The PMIx server\'s listener thread failed to start. We cannot\ncontinue." >&2\n'

LEFT_FOLDER = """cat >&2 <<E
PMIx detected a call to mkdir was unable to create the desired directory:

  Directory: /tmp/ompi.17755/0
  Error:     Permission denied
E
"""


@pytest.mark.parametrize("words", [CRASH.format(status=139), DEAF, LEFT_FOLDER])
def test_a_daemon_that_died_before_any_rank_is_tried_once_more(tmp_path: Path, words: str) -> None:
    once = f"[ -e {tmp_path}/again ] && echo ran && exit 0; touch {tmp_path}/again\n"
    process = wrapped(tmp_path, once + words + "exit 1")
    out, errors = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "ran\n")
    assert "crashed before any rank started; trying once more" in errors


@pytest.mark.parametrize("status", [139, 255])
def test_a_daemon_that_crashes_again_or_cannot_be_reached_fails_the_run(tmp_path: Path, status: int) -> None:
    process = wrapped(tmp_path, f"echo x >> {tmp_path}/starts\n" + CRASH.format(status=status) + "exit 1")
    process.communicate(timeout=60)

    assert process.returncode == 1
    assert (tmp_path / "starts").read_text().count("x") == (2 if status == 139 else 1)
