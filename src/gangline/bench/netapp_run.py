"""``run.py`` of NetApp's article: a synchronous ResNet-50 run on several nodes, from one of them.

Clears the page caches, prints and runs the ``mpirun`` line around ``tf_cnn_benchmarks`` with one rank for
each GPU, writes the output into a results file, and prints ``Total images/sec = …``. Every other node runs
``start-slave-multi.sh PORT`` (``netapp_worker``), which serves the remote shell.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry, limits
from gangline.bench.entry import say
from gangline.bench.log_figures import read_figures
from gangline.errors import JobFailedError, UserError
from gangline.launch.hosts import Host, host_list, plan_ranks
from gangline.launch.mpi import find_mpi
from gangline.launch.mpi_start import wrapped_line
from gangline.launch.plain_hosts import ask, preflight_error, wanted_of
from gangline.launch.preflight.findings import judge
from gangline.launch.remote_host import RemoteShell, is_this_host
from gangline.launch.shell_server import KEY_VARIABLE
from gangline.train.rendezvous import interface_towards

PODS_VARIABLE = "GANGLINE_NAMES"
"""Set in pods of the one-machine cluster, which reach each other through ``gangline-rsh``."""
ALLOW_VARIABLE = "GANGLINE_ALLOW_DROP_CACHES"
GPUS_PER_NODE = {"dgx1": 8, "dgx2": 16, "dgxa100": 8}
PORT = 22122
RESULTS_FOLDER = Path("/tmp")
BENCHMARK = "/netapp/tensorflow/benchmarks_190205/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
DROP_CACHES = "sync; echo 1 > /proc/sys/vm/drop_caches"
_REMOTE_SHELL = Path(__file__).resolve().parents[1] / "launch" / "remote_shell.py"
_TAIL_LINES = 15
ASKED_PRECISION = "fp16"
"""By the benchmark's options, which are those of the article."""
_PRECISION = re.compile(r"Precision: \w+ is emulated on a CPU; computed in (\w+)$")
"""What ``tf_cnn_benchmarks`` says where it computes in another precision than it was asked for."""
_FIRST_MOUNT = re.compile(r"(.*/mount_)0(/.*|$)")


@dataclass(frozen=True, slots=True)
class NetappRun:
    """What is to be run.

    Attributes:
        hosts: with the ranks of each.
        port: of the remote shell.
        dataset_dir: on every node.
        interface: for MPI's own traffic; empty lets it choose.
        mounts: how many mounts of the data set there are.
        batch_size, num_batches: of each rank.
        model: as ``tf_cnn_benchmarks`` calls it.
        device: ``gpu`` or ``cpu``.
        benchmark: path of ``tf_cnn_benchmarks.py``.
        results: folder of the results file.
    """

    hosts: Sequence[Host]
    port: int
    dataset_dir: str
    interface: str = ""
    mounts: int = 1
    batch_size: int = 256
    num_batches: int = 500
    model: str = "resnet50"
    device: str = "gpu"
    benchmark: str = BENCHMARK
    results: Path = RESULTS_FOLDER

    @property
    def devices(self) -> int:
        """Ranks in all."""
        return sum(host.slots for host in self.hosts)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"run.py: {message}", hint="run.py --help lists the options")


def parse(words: Sequence[str]) -> NetappRun:
    """Return what a command line asks for.

    Raises:
        UserError: an option is malformed, or devices and nodes do not fit.
    """
    parser = _Parser("run.py", allow_abbrev=False, description="Train on several nodes, from this one.")
    add = parser.add_argument
    add("--dataset_dir", required=True, help="on every node")
    add("--port", type=int, default=PORT, help="of the workers' remote shell")
    add("--num_devices", type=int, required=True, help="ranks in all")
    add("--dgx_version", choices=sorted(GPUS_PER_NODE), default="dgx1", help="GPUs of each node: 8, 16 or 8")
    add("--nodes", required=True, help="names or addresses, divided by commas; this one among them")
    add("--interface", default="", help="of MPI's own traffic (the one that leads to the other nodes)")
    add("--model", default="resnet50")
    add("--batch_size", type=int, default=256)
    add("--num_batches", type=int, default=500)
    add("--benchmark", default="", help="path of tf_cnn_benchmarks.py")
    add("--results_dir", default=str(RESULTS_FOLDER))
    given = parser.parse_args(words)
    nodes = [name.strip() for name in given.nodes.split(",") if name.strip()]
    if not nodes:
        raise UserError("run.py: --nodes names no node")
    hosts = spread(nodes, given.num_devices, GPUS_PER_NODE[given.dgx_version])
    own = str(Path(__file__).with_name("tf_cnn_benchmarks.py"))
    return NetappRun(
        hosts=hosts,
        port=given.port,
        dataset_dir=given.dataset_dir,
        interface=given.interface,
        mounts=count_mounts(given.dataset_dir),
        batch_size=given.batch_size,
        num_batches=given.num_batches,
        model=given.model,
        device="gpu" if Path("/proc/driver/nvidia/gpus").is_dir() else "cpu",
        benchmark=given.benchmark or (BENCHMARK if Path(BENCHMARK).exists() else own),
        results=Path(given.results_dir),
    )


def spread(nodes: Sequence[str], devices: int, per_node: int) -> list[Host]:
    """Return nodes with their ranks, the same number on each.

    Raises:
        UserError: devices cannot be divided among the nodes, or are more than these have.
    """
    each, rest = divmod(devices, len(nodes))
    if devices < 1 or rest:
        raise UserError(f"run.py: --num_devices={devices} cannot be divided among {len(nodes)} nodes")
    if each > per_node:
        raise UserError(
            f"run.py: --num_devices={devices} on {len(nodes)} nodes is {each} each, but each has {per_node}",
            hint="ask for fewer devices, or name more nodes",
        )
    hosts: dict[str, int] = {}
    for name in nodes:  # two pods on the network of one machine have one address
        hosts[name] = hosts.get(name, 0) + each
    return [Host(name, slots) for name, slots in hosts.items()]


def interface_to(hosts: Sequence[Host]) -> str:
    """Return the interface through which this node reaches the first other one; empty for MPI's choice."""
    for host in hosts:
        if not is_this_host(host.name):
            with suppress(OSError):
                name = interface_towards(socket.gethostbyname(host.name))
                return "" if name == "lo" else name
    return ""


def count_mounts(dataset_dir: str) -> int:
    """Return how many mounts ``…/mount_0``, ``…/mount_1``, … hold the data set; at least 1."""
    match = _FIRST_MOUNT.match(dataset_dir)
    count = 0
    while match and Path(f"{match.group(1)}{count}{match.group(2)}").is_dir():
        count += 1
    return max(1, count)


def mount_prefix(dataset_dir: str) -> str:
    """Return the mounts' path with ``%d`` for their number, as the benchmark takes it."""
    match = _FIRST_MOUNT.match(dataset_dir)
    return f"{match.group(1)}%d" if match else ""


def mpi_words(run: NetappRun, agent: str) -> list[str]:
    """Return the words about transport and remote shell that both lines share."""
    words = ["-mca", "pml", "ob1", "-mca", "btl", "^openib"]
    if run.interface:
        words += ["-mca", "btl_tcp_if_include", run.interface]
    return [*words, "-mca", "plm_rsh_agent", agent, "-mca", "plm_rsh_args", f"-p {run.port}"]


def clean_line(run: NetappRun, agent: str) -> list[str]:
    """Return the line that clears the page cache of every node."""
    once = host_list([Host(host.name, 1) for host in run.hosts])
    line = ["mpirun", "-allow-run-as-root", "-np", str(len(run.hosts)), "-H", once]
    return [*line, *mpi_words(run, agent), "bash", "-c", DROP_CACHES]


def training_line(run: NetappRun, agent: str, environment: Mapping[str, str]) -> list[str]:
    """Return the line of the training: its form and its options are those of the article."""
    line = ["mpirun", "-allow-run-as-root", "-np", str(run.devices), "-H", host_list(run.hosts)]
    line += ["-bind-to", "none", "-map-by", "slot", "-x", "NCCL_DEBUG=INFO"]
    for name in ("LD_LIBRARY_PATH", "PATH", *sorted(_EXTRA & set(environment))):
        if name in environment:
            line += ["-x", name]
    line += ["-x", "NCCL_IB_HCA=mlx5", "-x", "NCCL_NET_GDR_READ=1", "-x", "NCCL_IB_SL=3"]
    line += ["-x", "NCCL_IB_GID_INDEX=3"]
    if run.interface:
        line += ["-x", f"NCCL_SOCKET_IFNAME={run.interface}"]
    line += ["-x", "NCCL_IB_CUDA_SUPPORT=1", "-mca", "orte_base_help_aggregate", "0"]
    return [*line, *mpi_words(run, agent), "python", run.benchmark, *benchmark_options(run)]


_EXTRA = {
    "GANGLINE_BENCH_LIMITS",
    "GANGLINE_IMAGE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "VIRTUAL_ENV",
}
"""Variables of this process that the ranks on other nodes need too."""


def benchmark_options(run: NetappRun) -> list[str]:
    """Return the options of ``tf_cnn_benchmarks``, in the order of the article."""
    options = [
        *(f"--model={run.model}", f"--batch_size={run.batch_size}", f"--device={run.device}"),
        *("--force_gpu_compatible=True", "--num_intra_threads=1", "--num_inter_threads=48"),
        *("--variable_update=horovod", "--batch_group_size=20", f"--num_batches={run.num_batches}"),
        *("--nodistortions", "--num_gpus=1", "--data_format=NCHW"),
        *("--use_fp16=True", "--use_tf_layers=False", "--data_name=imagenet", "--use_datasets=True"),
        *(f"--data_dir={run.dataset_dir}", "--datasets_parallel_interleave_cycle_length=10"),
        "--datasets_sloppy_parallel_interleave=False",
    ]
    if run.mounts > 1:
        options += [f"--num_mounts={run.mounts}", f"--mount_prefix={mount_prefix(run.dataset_dir)}"]
    options += ["--datasets_prefetch_buffer_size=2000", "--datasets_use_prefetch=True"]
    return [*options, "--datasets_num_private_threads=4", f"--horovod_device={run.device}"]


def results_name(run: NetappRun, moment: time.struct_time, precision: str) -> str:
    """Return the name of the results file: date, framework, model, devices, batch, precision and more.

    Args:
        run: as it was computed, limits included.
        moment: of its start.
        precision: in which it was computed.
    """
    parts = [
        time.strftime("%Y%m%d_%H%M%S", moment),
        *("torch", "gangline", run.model, run.device, str(run.devices), str(run.batch_size)),
        *(f"b{run.num_batches}", "imagenet", "nodistort", precision, "r10", f"m{run.mounts}", "nockpt"),
    ]
    return "_".join(parts) + ".txt"


def limited(run: NetappRun, environment: Mapping[str, str]) -> NetappRun:
    """Return the run as the benchmark will limit it on a small machine."""
    bounds = limits.Limits(limits.parse(environment.get(limits.VARIABLE, "")))
    return replace(
        run,
        model=bounds.model(run.model),
        batch_size=bounds.count("batch_size", run.batch_size),
        num_batches=bounds.count("num_batches", run.num_batches),
    )


def computed(run: NetappRun, lines: Sequence[str]) -> str:
    """Return the precision in which a run computes: what it said, else what its device makes of fp16."""
    said = next((match[1] for line in lines if (match := _PRECISION.search(line))), "")
    return said or ("bf16" if run.device == "cpu" else ASKED_PRECISION)


def remote_shell(environment: Mapping[str, str]) -> str:
    """Return the program that reaches the workers: Gangline's own in its pods, or where there is a secret."""
    if not environment.get(KEY_VARIABLE) and not environment.get(PODS_VARIABLE):
        return "ssh"
    return (
        "gangline-rsh"
        if _which("gangline-rsh", environment)
        else shlex.join([sys.executable, "-I", "-S", str(_REMOTE_SHELL)])
    )


def _which(program: str, environment: Mapping[str, str]) -> bool:
    folders = environment.get("PATH", "").split(os.pathsep)
    return any(os.access(Path(folder, program), os.X_OK) for folder in folders if folder)


def execute(run: NetappRun, environment: dict[str, str]) -> float:
    """Run the whole flow; return images/s of all ranks.

    Raises:
        UserError: results cannot be written.
        JobFailedError: the training failed; the message has its last lines.
    """
    if not os.access(run.results, os.W_OK):
        raise UserError(
            f"run.py: cannot write results into `{run.results}`", hint="name another --results_dir"
        )
    plan_ranks(run.hosts, run.devices)
    agent = remote_shell(environment)
    environment = environment | {
        # What the line says in Open MPI 4's words, in those of version 5.
        "PRTE_MCA_plm_ssh_agent": f"{agent} -p {run.port}",
        **{
            f"{family}_ALLOW_RUN_AS_ROOT{more}": "1"
            for family in ("OMPI", "PRTE")
            for more in ("", "_CONFIRM")
        },
    }
    environment.setdefault("MASTER_ADDR", run.hosts[0].name)
    environment.setdefault("MASTER_PORT", "29500")
    mpi = find_mpi(environment.get("PATH"))
    clean_caches(run, agent, environment)
    line = training_line(run, agent, environment)
    named, moment = limited(run, environment), time.localtime()
    results = run.results / results_name(named, moment, computed(run, []))
    say(f"{shlex.join(line)} > {shlex.quote(str(results))} 2>&1")
    with results.open("wb") as file:
        done = subprocess.run(
            wrapped_line(mpi, line), env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    lines = results.read_text(encoding="utf-8", errors="replace").splitlines()
    figures = read_figures(lines)
    if done.returncode or figures.images_per_s is None:
        tail = "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
        what = f"ended with code {done.returncode}" if done.returncode else "printed no total"
        raise JobFailedError(
            f"run.py: the training {what}; the end of `{results}`:\n\n{tail}", exit_code=done.returncode or 1
        )
    for text in lines:
        if text.startswith("Limited by "):
            say(text)
            break
    _note_precision(results, results_name(named, moment, computed(run, lines)), computed(run, lines))
    return figures.images_per_s


def _note_precision(results: Path, name: str, precision: str) -> None:
    """Say in which precision was computed, in the results file too, which is named by it."""
    note = f"Precision: computed in {precision}"
    if precision != ASKED_PRECISION:
        note += f"; asked for {ASKED_PRECISION}, which a CPU only emulates"
        say(note)
    with results.open("a", encoding="utf-8") as file:
        file.write(f"{note}\n")
    if results.name != name:
        results.rename(results.with_name(name))
        say(f"the results are in {results.with_name(name)}")


def clean_caches(run: NetappRun, agent: str, environment: dict[str, str]) -> None:
    """Clear the page cache of every node, where that was allowed; else say that it was not."""
    say("================ Clean Cache !!! ==================")
    line = clean_line(run, agent)
    if environment.get(ALLOW_VARIABLE) != "1":
        say("skipped: page caches are shared with all programs of a node. To allow it on one machine:")
        say(f"gangline up --allow-drop-caches; elsewhere: {ALLOW_VARIABLE}=1. It would have been:")
        say(shlex.join(line))
    else:
        say(shlex.join(line))
        done = subprocess.run(
            wrapped_line(find_mpi(environment.get("PATH")), line), env=environment, check=False
        )
        if done.returncode:
            say(
                f"the caches could not be cleared (code {done.returncode}): the first epoch may be a warm one"
            )
    say("=" * 51)


def check_nodes(run: NetappRun) -> None:
    """Ask the other nodes before the start, where ssh reaches them.

    Raises:
        PreflightError: one is not fit; the message has the fault and its fix.
    """
    others = [host for host in run.hosts if not is_this_host(host.name)]
    if not others or remote_shell(os.environ) != "ssh":
        return
    shell = RemoteShell(port=run.port, check_host_keys=False)
    wanted = wanted_of(find_mpi(), shell, is_start=True)
    faults = [one for one in judge(ask(others, shell, wanted), wanted) if one.severity == "fault"]
    if faults:
        raise preflight_error(faults, len(run.hosts), hint="start the worker on every other node")


def main(words: Sequence[str]) -> None:
    """Run one command line."""
    run = parse(words)
    run = replace(run, interface=run.interface or interface_to(run.hosts))
    check_nodes(run)
    total = execute(run, dict(os.environ))
    say(f"Total images/sec = {total:.10g}")


if __name__ == "__main__":
    entry.run(main)
