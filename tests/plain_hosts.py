"""Hosts as network namespaces on a bridge, each with a name, an address, and an OpenSSH server.

Linux and root only. A host is a process in namespaces of its own (network, mounts, host name); its
``/etc/hosts`` and ssh's settings are bind mounts that it alone sees. All share the machine's files, as
hosts with a shared folder do.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LIMIT_S = 60.0
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def why_not() -> str:
    """Return what this machine lacks for such hosts, empty when they can be made."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "unshare", "nsenter", "ssh", "ssh-keygen") if not shutil.which(name)]
    if SSHD is None:
        missing.append("sshd (package openssh-server)")
    return f"not installed: {', '.join(missing)}" if missing else ""


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=LIMIT_S)


class PlainHosts:
    """Some hosts, ``h1`` to ``hN``, at 10.99.0.1 to 10.99.0.N."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self.holders: dict[str, subprocess.Popen[bytes]] = {}
        self.servers: list[subprocess.Popen[bytes]] = []

    def start(self, port: int = 22) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        for key in ("host_key", "user_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        lines = [f"10.99.0.{number} {name}\n" for number, name in enumerate(self.names, start=1)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        (self.folder / "ssh_config").write_text(
            f"Host *\n  IdentityFile {self.folder}/user_key\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        )
        switch = self._hold("switch")
        self._inside("switch", "ip", "link", "add", "br0", "type", "bridge")
        self._inside("switch", "ip", "link", "set", "br0", "up")
        for number, name in enumerate(self.names, start=1):
            pid = self._hold(name)
            end = f"v{os.getpid() % 100000}n{number}"
            call(*f"ip link add {end} netns {switch} type veth peer name eth0 netns {pid}".split())
            self._inside("switch", *f"ip link set {end} master br0 up".split())
            self._inside(name, *f"ip address add 10.99.0.{number}/24 dev eth0".split())
            for device in ("eth0", "lo"):
                self._inside(name, "ip", "link", "set", device, "up")
            self.serve(name, port)

    def _hold(self, name: str) -> int:
        """Start the process whose namespaces are the host; return its id."""
        script = f"hostname {name}"
        if name != "switch":
            for source, target in (("hosts", "/etc/hosts"), ("ssh_config", "/etc/ssh/ssh_config")):
                script += f" && mount --bind {self.folder}/{source} {target}"
        holder = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--mount",
                "--uts",
                "sh",
                "-c",
                f"{script} && echo ready && exec sleep 1000",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert holder.stdout is not None
        self.holders[name] = holder
        assert holder.stdout.readline() == b"ready\n"
        return holder.pid

    def command(self, name: str, *words: str) -> list[str]:
        """Return the line that runs a command on a host."""
        return ["nsenter", f"--target={self.holders[name].pid}", "--net", "--mount", "--uts", "--", *words]

    def _inside(self, name: str, *words: str) -> None:
        call(*self.command(name, *words))

    def serve(self, name: str, port: int, **more: object) -> None:
        """Start an ssh server on a host, with more settings, and wait until it answers."""
        settings = {
            "Port": port,
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "PasswordAuthentication": "no",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "MaxStartups": "100",
            **more,
        }
        words = [f"-o{key}={value}" for key, value in settings.items()]
        with (self.folder / f"sshd-{name}.log").open("ab") as log:
            server = subprocess.Popen(
                self.command(name, str(SSHD), "-D", "-e", "-f", "/dev/null", *words), stderr=log
            )
        self.servers.append(server)
        deadline = time.monotonic() + LIMIT_S
        while subprocess.run(
            self.command(
                name, sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"
            ),
            capture_output=True,
            check=False,
        ).returncode:
            assert time.monotonic() < deadline, (self.folder / f"sshd-{name}.log").read_text()

    def run(
        self, name: str, words: Sequence[str], *, limit_s: float = 120.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        return subprocess.run(
            self.command(name, *words),
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=dict(os.environ) | variables,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def processes(self, mark: str) -> list[str]:
        """Return the processes of this machine whose command line holds a mark."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line and int(path.parent.name) != os.getpid():
                found.append(line)
        return found

    def end_sessions(self, name: str) -> None:
        """Kill everything that runs on a host except its ssh server, as a crash of the host would."""
        for pid in self.sessions(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def sessions(self, name: str) -> dict[int, str]:
        """Return what runs on a host except its ssh servers: process id -> command line."""
        own = Path(f"/proc/{self.holders[name].pid}/ns/net").readlink()
        kept = {self.holders[name].pid, *(server.pid for server in self.servers)}
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                if (folder / "ns" / "net").readlink() == own and int(folder.name) not in kept:
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(folder.name)] = line
        return found

    def close(self) -> None:
        """End servers and hosts; their devices go with the namespaces."""
        for process in [*self.servers, *self.holders.values()]:
            process.terminate()
        for process in [*self.servers, *self.holders.values()]:
            process.wait(LIMIT_S)
