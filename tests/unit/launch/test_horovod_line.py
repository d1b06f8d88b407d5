"""The mpirun line of horovodrun, word for word, written down from what Horovod documents and tests."""

from __future__ import annotations

import shlex

import pytest

from gangline.errors import UserError
from gangline.launch.horovod_line import MpirunOptions, horovod_mpirun, is_exported
from gangline.launch.hosts import parse_hosts

FULL = MpirunOptions(
    count=3,
    hosts=parse_hosts("a:2,b:2"),
    interfaces=("eth0", "eth1"),
    ssh_port=1022,
    ssh_identity="/key",
    extra="--mca x 1",
    output_filename="/logs",
    timestamps=True,
)


def test_open_mpi_minimal() -> None:
    line = horovod_mpirun("openmpi", MpirunOptions(2, parse_hosts("localhost:2")), {}, ["cmd"])

    assert line == shlex.split(
        "mpirun --allow-run-as-root --tag-output -np 2 -H localhost:2 -bind-to none -map-by slot "
        "-mca pml ob1 -mca btl ^openib cmd"
    )


def test_open_mpi_full() -> None:
    line = horovod_mpirun("openmpi", FULL, {"env2": "", "env1": ""}, ["cmd", "arg 1"])

    assert line == shlex.split(
        "mpirun --allow-run-as-root --tag-output -np 3 -H a:2,b:2 -bind-to none -map-by slot "
        "-mca pml ob1 -mca btl ^openib --timestamp-output "
        '-mca plm_rsh_args "-p 1022 -i /key" '
        "-mca btl_tcp_if_include eth0,eth1 -x NCCL_SOCKET_IFNAME=eth0,eth1 "
        "--output-filename /logs -x env1 -x env2 --mca x 1 cmd 'arg 1'"
    )


def test_binding_arguments_replace_the_words_about_binding() -> None:
    options = MpirunOptions(1, parse_hosts("h:1"), binding="--bind-to core -cpus-per-rank 4")

    line = horovod_mpirun("openmpi", options, {}, ["cmd"])

    assert line == shlex.split(
        "mpirun --allow-run-as-root --tag-output -np 1 -H h:1 --bind-to core -cpus-per-rank 4 "
        "-mca pml ob1 -mca btl ^openib cmd"
    )


@pytest.mark.parametrize(("count", "large"), [(63, False), (64, True)])
def test_from_64_hosts_on_open_mpi_reaches_all_of_them_itself(count: int, large: bool) -> None:
    hosts = parse_hosts(",".join(f"h{number}:1" for number in range(count)))

    line = " ".join(horovod_mpirun("openmpi", MpirunOptions(2, hosts), {}, ["cmd"]))

    assert (f"-mca plm_rsh_no_tree_spawn true -mca plm_rsh_num_concurrent {count} cmd" in line) is large


@pytest.mark.parametrize(("tcp", "words"), [(False, ""), (True, "-tcp ")])
def test_spectrum_mpi_binds_to_sockets(tcp: bool, words: str) -> None:
    line = horovod_mpirun("spectrum", MpirunOptions(2, parse_hosts("a:2"), tcp=tcp), {}, ["cmd"])

    assert " ".join(line) == (
        "mpirun --allow-run-as-root --tag-output -np 2 -H a:2 "
        f"-bind-to socket -map-by socket -rank-by core {words}cmd"
    )


@pytest.mark.parametrize(("flavour", "binding"), [("mpich", "-bind-to none -map-by slot "), ("intel", "")])
def test_mpich_and_intel(flavour: str, binding: str) -> None:
    options = MpirunOptions(
        4, parse_hosts("a:2,b:2"), interfaces=("eth0",), ssh_port=1022, output_filename="/logs/%r"
    )

    line = horovod_mpirun(flavour, options, {"env1": ""}, ["cmd"])  # type: ignore[arg-type]

    assert line == shlex.split(
        f"mpirun -l -np 4 -ppn 2 -hosts a,b {binding}"
        '-bootstrap=ssh -bootstrap-exec-args "-p 1022" -iface eth0 -genv NCCL_SOCKET_IFNAME=eth0 '
        "-outfile-pattern /logs/%r cmd"
    )


@pytest.mark.parametrize("flavour", ["mpich", "intel"])
def test_hydra_takes_neither_unequal_hosts_nor_two_interfaces(flavour: str) -> None:
    unequal = MpirunOptions(3, parse_hosts("a:2,b:1"))
    two = MpirunOptions(2, parse_hosts("a:1,b:1"), interfaces=("eth0", "eth1"))

    for options in (unequal, two):
        with pytest.raises(UserError):
            horovod_mpirun(flavour, options, {}, ["cmd"])  # type: ignore[arg-type]


def test_functions_gpu_choice_and_secrets_stay_here() -> None:
    names = ["PATH", "BASH_FUNC_module%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", "HIP_CUDA_VISIBLE_DEVICES"]
    names += ["OLDPWD_BEFORE", "CUDA_VISIBLE_DEVICES_BEFORE"]

    assert [name for name in [*names, "_HOROVOD_SECRET_KEY"] if is_exported(name)] == ["PATH"]
