"""The ``mpirun`` line that ``horovodrun`` makes, word for word, for each MPI. Pure.

Source: the behaviour of Horovod 0.28.1 (``mpirun --allow-run-as-root --tag-output -np N -H a:4,b:4 …``),
pinned by its own tests of the launcher; ``-iface`` came after that release. Words that are one argument to
``mpirun`` are one word here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gangline.errors import UserError
from gangline.launch.hosts import Host, host_list

HorovodFlavour = Literal["openmpi", "spectrum", "mpich", "intel"]

LARGE_CLUSTER_HOSTS = 64
_NO_BINDING = ("-bind-to", "none", "-map-by", "slot")
_BINDING: dict[HorovodFlavour, tuple[str, ...]] = {
    "openmpi": _NO_BINDING,
    "spectrum": ("-bind-to", "socket", "-map-by", "socket", "-rank-by", "core"),
    "mpich": _NO_BINDING,
    "intel": (),
}
_NOT_EXPORTED = re.compile(r"BASH_FUNC_.*|OLDPWD|.*CUDA_VISIBLE_DEVICES|_HOROVOD_SECRET_KEY")


@dataclass(frozen=True, slots=True)
class MpirunOptions:
    """What `horovodrun` was asked for, as far as the line depends on it.

    Attributes:
        count: ranks.
        hosts: in the order of the ranks.
        interfaces: network interfaces; empty lets the MPI choose.
        ssh_port, ssh_identity: for the remote shell; 0 and empty for its own defaults.
        binding: replaces the words about binding.
        extra: the user's own words for ``mpirun``.
        output_filename: where it writes the ranks' output.
        timestamps: whether lines of output carry the time.
        tcp: use TCP (Spectrum MPI only).
    """

    count: int
    hosts: Sequence[Host]
    interfaces: Sequence[str] = ()
    ssh_port: int = 0
    ssh_identity: str = ""
    binding: str = ""
    extra: str = ""
    output_filename: str = ""
    timestamps: bool = False
    tcp: bool = False


def is_exported(name: str) -> bool:
    """Tell whether a variable travels to the ranks: no shell function, no GPUs of this host, no secret."""
    return _NOT_EXPORTED.match(name) is None  # as there: what a name begins with decides


def horovod_mpirun(
    flavour: HorovodFlavour, options: MpirunOptions, environment: Iterable[str], command: Sequence[str]
) -> list[str]:
    """Return the words of the line.

    Args:
        flavour: the MPI that ``mpirun`` belongs to.
        options: ranks, hosts and how to reach them.
        environment: names of this process's variables; Hydra forwards them by itself.
        command: the program and its arguments.

    Raises:
        UserError: hosts with different slots, or several interfaces: MPICH and Intel MPI take neither.
    """
    if flavour in ("mpich", "intel"):
        return _hydra(flavour, options, command)
    line = ["mpirun", "--allow-run-as-root", "--tag-output", "-np", str(options.count)]
    line += ["-H", host_list(options.hosts)]
    line += shlex.split(options.binding) or _BINDING[flavour]
    line += _modules(flavour, options)
    if shell := _shell_arguments(options):
        line += ["-mca", "plm_rsh_args", shell]
    if options.interfaces:
        names = ",".join(options.interfaces)
        line += ["-mca", "btl_tcp_if_include", names, "-x", f"NCCL_SOCKET_IFNAME={names}"]
    if options.output_filename:
        line += ["--output-filename", options.output_filename]
    for name in sorted(filter(is_exported, environment)):
        line += ["-x", name]
    return [*line, *shlex.split(options.extra), *command]


def _modules(flavour: HorovodFlavour, options: MpirunOptions) -> list[str]:
    words: list[str] = []
    if flavour == "openmpi":
        words += ["-mca", "pml", "ob1", "-mca", "btl", "^openib"]
    elif options.tcp:
        words += ["-tcp"]
    hosts = len(options.hosts)
    if hosts >= LARGE_CLUSTER_HOSTS:
        words += ["-mca", "plm_rsh_no_tree_spawn", "true", "-mca", "plm_rsh_num_concurrent", str(hosts)]
    if options.timestamps:
        words += ["--timestamp-output"]
    return words


def _shell_arguments(options: MpirunOptions) -> str:
    words = [f"-p {options.ssh_port}"] if options.ssh_port else []
    words += [f"-i {options.ssh_identity}"] if options.ssh_identity else []
    return " ".join(words)


def _hydra(flavour: HorovodFlavour, options: MpirunOptions, command: Sequence[str]) -> list[str]:
    slots = {host.slots for host in options.hosts}
    if len(slots) > 1:
        raise UserError(
            f"hosts with different slots ({host_list(options.hosts)}) cannot be given to MPICH and Intel MPI "
            "this way",
            hint='write them into a file and use --mpi-args="-machinefile FILE", or use --gloo',
        )
    if len(options.interfaces) > 1:
        raise UserError(
            f"MPICH and Intel MPI take one network interface, not {','.join(options.interfaces)}",
            hint="name one with --network-interfaces",
        )
    line = ["mpirun", "-l", "-np", str(options.count), "-ppn", str(slots.pop())]
    line += ["-hosts", ",".join(host.name for host in options.hosts), *_BINDING[flavour]]
    if shell := _shell_arguments(options):
        line += ["-bootstrap=ssh", "-bootstrap-exec-args", shell]
    if options.interfaces:
        name = options.interfaces[0]
        line += ["-iface", name, "-genv", f"NCCL_SOCKET_IFNAME={name}"]
    if options.output_filename:
        line += ["-outfile-pattern", options.output_filename]
    return [*line, *shlex.split(options.extra), *command]
