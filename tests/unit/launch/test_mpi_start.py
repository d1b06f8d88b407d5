"""The launcher's line for plain hosts, its variables, and the table of states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gangline.errors import UserError
from gangline.launch.hosts import parse_hosts, plan_ranks
from gangline.launch.mpi import Flavour, MpiInstallation
from gangline.launch.mpi_start import MpiPlan, launcher_variables, mpi_line
from gangline.launch.rank_places import forwarded_variables, master_address, place_variables
from gangline.launch.rank_start import RankState, StartOptions, state_table
from gangline.launch.remote_host import RemoteShell, find_remote_shell

PLACES = plan_ranks(parse_hosts("a:2,b:2"), 3)


def plan(flavour: Flavour, version: str = "5.0.11") -> MpiPlan:
    folder = Path("/opt/mpi")
    mpi = MpiInstallation(flavour, version, folder / "bin", folder / "lib", folder)
    environment = {"DATA": "/data", "CUDA_VISIBLE_DEVICES": "0", "HOSTNAME": "a", "PATH": "/bin"}
    options = StartOptions(RemoteShell(port=2222), ["python", "t.py"], environment, "/code", ("eth0",))
    return MpiPlan(mpi, PLACES, options, ("a", 20001))


def test_open_mpi_gets_hosts_with_as_many_slots_as_ranks() -> None:
    line = " ".join(mpi_line(plan("openmpi")))

    assert line.startswith(
        "mpirun -n 3 -H a:2,b:1 --bind-to none --map-by slot --mca btl_tcp_if_include eth0 --tag-output"
    )
    assert " -x PATH -x DATA " in line
    assert "-x MASTER_ADDR=a -x MASTER_PORT=20001" in line
    assert line.endswith("python t.py")


def test_what_belongs_to_this_machine_stays_here() -> None:
    assert forwarded_variables({"HOSTNAME": "a", "CUDA_VISIBLE_DEVICES": "1", "A": "b", "x y": "c"}) == {
        "A": "b"
    }


def test_the_remote_shell_and_its_port_are_told_to_both_generations_of_open_mpi() -> None:
    variables = launcher_variables(plan("openmpi").mpi, RemoteShell(port=2222, identity="/k"))

    assert variables["OMPI_MCA_plm_rsh_agent"] == "ssh -p 2222 -i /k"
    assert variables["PRTE_MCA_plm_ssh_agent"] == "ssh -p 2222 -i /k"


@pytest.mark.parametrize(
    ("flavour", "name"), [("mpich", "HYDRA_LAUNCHER_EXEC"), ("intel", "I_MPI_HYDRA_BOOTSTRAP_EXEC")]
)
def test_hydra_is_told_the_remote_shell_too(flavour: Flavour, name: str) -> None:
    assert launcher_variables(plan(flavour, "4.0").mpi, RemoteShell("rsh"))[name] == "rsh"


def test_hydra_fills_equal_hosts_and_refuses_others() -> None:
    assert " ".join(mpi_line(plan("mpich", "4.0"))).startswith("mpirun -n 3 -hosts a,b -iface eth0 -ppn 2 ")
    unequal = replace(plan("mpich", "4.0"), places=plan_ranks(parse_hosts("a:1,b:2"), 3))
    with pytest.raises(UserError, match="a:1,b:2"):
        mpi_line(unequal)


def test_a_rank_is_told_its_place_in_the_words_of_horovod_and_torch() -> None:
    told = place_variables(PLACES[2], ("10.0.0.1", 20001), ["ib0", "eth0"])

    assert told | {
        "RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001",
        "HOROVOD_RANK": "2", "HOROVOD_SIZE": "3", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2", "HOROVOD_HOSTNAME": "b",
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "PYTHONUNBUFFERED": "1",
        "HOROVOD_GLOO_IFACE": "ib0", "NCCL_SOCKET_IFNAME": "ib0,eth0",
    } == told  # fmt: skip


def test_rank_0_is_found_by_interface_by_name_and_never_by_loopback_from_elsewhere() -> None:
    addresses = {"lo": "127.0.0.1", "eth0": "10.0.0.1"}
    local = plan_ranks(parse_hosts("localhost:1,b:1"), 2)

    assert master_address(PLACES, addresses, "eth0") == "10.0.0.1"
    assert master_address(PLACES, addresses) == "a"
    assert master_address(local, addresses) == "10.0.0.1"
    assert master_address(local, addresses, all_local=True) == "127.0.0.1"


def test_alike_ranks_share_a_line_of_the_table() -> None:
    states = [RankState(place, since=0.0) for place in PLACES]
    states[2].state = "exited with code 1"

    assert state_table(states, 12.4).splitlines() == [
        "RANK   HOST   STATE                FOR",
        "0-1    a      waits for its host   12 s",
        "2      b      exited with code 1   12 s",
    ]


def test_the_mpis_own_agent_is_the_remote_shell_where_it_exists() -> None:
    assert find_remote_shell({"OMPI_MCA_plm_rsh_agent": "/bin/sh", "PATH": "/bin"}).program == "/bin/sh"
    assert find_remote_shell({"OMPI_MCA_plm_rsh_agent": "/no/agent", "PATH": "/bin"}).program == "ssh"
