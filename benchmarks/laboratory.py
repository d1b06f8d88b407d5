"""A one-machine cluster of the benchmarks' own, and the bare tools beside it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
COMMAND_TIMEOUT_S = 300

# What Gangline sets for its own pods, given to the bare mpirun as well: the comparison is about Gangline, not
# about how Open MPI chooses its transports.
SAME_TRANSPORTS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


@dataclass
class Laboratory:
    """One scenario's workplace; leaving it stops its cluster, and removes its files unless it failed.

    Attributes:
        rounds: samples that a scenario takes for each figure, unless it says otherwise.
        jobs: jobs that a scenario about many jobs runs one after another.
        train_python: a Python with torch, or None.
    """

    rounds: int
    jobs: int = 200
    train_python: str | None = None
    home: Path = field(init=False)

    def __enter__(self) -> Laboratory:
        self.home = Path(tempfile.mkdtemp(prefix="gangline-bench-"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *unused: object) -> None:
        self.gangline("down", check=False)
        if kind is None:
            shutil.rmtree(self.home, ignore_errors=True)
        else:
            print(f"the logs of the cluster are kept: {self.home}", file=sys.stderr)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every command: this cluster, no other kubeconfig."""
        kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        return kept | {"GANGLINE_HOME": str(self.home)}

    @property
    def program(self) -> str:
        """The installed `gangline` command."""
        return str(Path(sys.executable).with_name("gangline"))

    @property
    def mpirun(self) -> str:
        """The `mpirun` that Gangline finds too: PATH first, then the wheel."""
        beside = Path(sys.executable).with_name("mpirun")
        return shutil.which("mpirun") or str(beside)

    @property
    def bare_environment(self) -> dict[str, str]:
        """Environment of a bare mpirun."""
        return self.environment | SAME_TRANSPORTS

    def gangline(self, *words: str, check: bool = True, cwd: Path | None = None) -> str:
        """Run one command and return both of its outputs; with `check` a failure ends the benchmark."""
        done = subprocess.run(
            [self.program, *words],
            env=self.environment,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if check and done.returncode != 0:
            raise SystemExit(
                f"gangline {' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}"
            )
        return done.stdout

    def first_line_s(
        self, command: list[str], marker: str, *, bare: bool = False, cwd: Path | None = None
    ) -> float:
        """Return the time from a command's start to its first line with `marker`; it then runs to its end."""
        environment = self.bare_environment if bare else self.environment
        started = time.perf_counter()
        with subprocess.Popen(
            command,
            env=environment,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout
            seen, lines = None, []
            for line in process.stdout:
                lines.append(line)
                if seen is None and marker in line:
                    seen = time.perf_counter() - started
        if seen is None or process.returncode != 0:
            raise SystemExit(
                f"{' '.join(command)} ended with {process.returncode}:\n{''.join(lines)[-2000:]}"
            )
        return seen

    def get(self, path: str) -> dict[str, Any]:
        """Return one answer of the cluster's API server, through its Unix socket."""
        from gangline.cluster.paths import ClusterPaths

        paths = ClusterPaths(name="default", state=self.home / "default")
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(paths.api_socket))
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert isinstance(answer, dict)
        return answer


def processes_of(home: Path) -> list[int]:
    """Return the process ids that belong to the cluster below `home`, without our own.

    A process belongs to it when its environment, command line or working folder names that folder, or when it
    lives in a mount namespace of its own that has mounts from there. The last finds programs in pods.
    """
    own_mounts = Path("/proc/self/ns/mnt").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            texts = [(entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()]
            texts.append(str((entry / "cwd").readlink()).encode())
            if (entry / "ns" / "mnt").readlink() != own_mounts:
                texts.append((entry / "mountinfo").read_bytes())
        except OSError:
            continue
        if any(str(home).encode() in text for text in texts):
            found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    """Return the command line of a process, or nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def proportional_memory_mb(pid: int) -> float:
    """Return a process's proportional set size: its own pages, and its share of shared ones. Unit: MB."""
    return memory_mb(pid, "Pss")


def memory_mb(pid: int, name: str) -> float:
    """Return one of the sums that the kernel keeps of a process's pages, such as ``Pss_Anon``. Unit: MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used so far. Unit: s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
