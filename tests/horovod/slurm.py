"""A real Slurm with two nodes, both this machine; Debian's packages lie in the user's cache folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
from cached_environment import cached_path, made_once  # noqa: E402

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libmunge2", "libhwloc15")
LIMIT_S = 60.0
CONFIGURATION = """
ClusterName=here
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=node2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class NoSlurmError(Exception):
    """Slurm cannot be had here."""


def unpack(folder: Path) -> None:
    packages = folder / "packages"
    packages.mkdir(parents=True)
    subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=packages, check=True, capture_output=True)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def shown(command: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    return done.stdout


@contextmanager
def slurm(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Run one; give its ``srun``, and the variables that this needs.

    Raises:
        NoSlurmError: this is no Debian with its packages at hand, or not root.
    """
    if os.geteuid() or not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise NoSlurmError("a Slurm for the test needs root and Debian")
    try:
        root = made_once(cached_path("slurm", list(PACKAGES)), "4 MB", unpack)
    except subprocess.CalledProcessError as error:
        raise NoSlurmError(f"Debian's packages of Slurm: {error.stderr.decode()}") from error
    (library,) = root.glob("usr/lib/*-linux-gnu")
    plugins, configuration = library / "slurm-wlm", folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(ports=free_ports(3), plugins=plugins, folder=folder))
    (folder / "state").mkdir()
    own = {"LD_LIBRARY_PATH": f"{library}:{plugins}", "SLURM_CONF": str(configuration)}
    programs = root / "usr/sbin"
    lines = [[str(programs / "slurmctld-wlm"), "-D"]]
    for node in ("node1", "node2"):
        (folder / f"spool-{node}").mkdir()
        lines.append([str(programs / "slurmd-wlm"), "-D", "-N", node, "-d", str(programs / "slurmstepd-wlm")])
    with (folder / "slurm.log").open("wb") as log:
        processes = [subprocess.Popen(line, env=os.environ | own, stdout=log, stderr=log) for line in lines]
    try:
        deadline = time.monotonic() + LIMIT_S
        sinfo = [str(root / "usr/bin/sinfo"), "-h", "-o", "%D %t"]
        while shown(sinfo, own) != "2 idle\n":
            assert time.monotonic() < deadline, (folder / "slurm.log").read_text()
            time.sleep(0.2)
        yield root / "usr/bin/srun", own
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(LIMIT_S)
