r"""Tells what a host has, and which of its peers it reaches. Standard library only, Python 3.7 on.

It is sent to each host over the remote shell. It reads one line of JSON, writes ``facts``, reads a second
line with its peers, connects to each of them, and writes ``reached``; it ends when standard input ends.
Events are those of ``rank_supervisor``: ``EVENT 0 LENGTH\n`` and LENGTH bytes of JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CONNECT_S = 1.5


def send(event: str, value: Any) -> None:
    """Write one event."""
    payload = json.dumps(value).encode()
    data = b"%s 0 %d\n" % (event.encode(), len(payload)) + payload
    while data:
        data = data[os.write(1, data) :]


def interfaces() -> dict[str, list[Any]]:
    """Return {interface: [is up, IPv4 address]}; Linux only, else empty."""
    found: dict[str, list[Any]] = {}
    if not sys.platform.startswith("linux"):
        return found
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            packed = struct.pack("256s", name.encode()[:15])
            address, is_up = "", False
            try:
                is_up = bool(struct.unpack("H", fcntl.ioctl(probe.fileno(), 0x8913, packed)[16:18])[0] & 1)
                address = socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, packed)[20:24])
            except OSError:
                pass
            found[name] = [is_up, address]
    return found


def mpi(wanted: str) -> list[str]:
    """Return [path, what its --version prints] of the mpirun of this host; empty when there is none.

    The launcher starts its daemons at its own path where that exists, else at the first of the PATH.
    """
    path = wanted if wanted and os.access(wanted, os.X_OK) else shutil.which("mpirun")
    if not path:
        return []
    try:
        done = subprocess.run(
            [path, "--version"],
            env={
                **os.environ,
                "PATH": f"{Path(path).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=3,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [path, str(error)]
    return [path, done.stdout.decode(errors="replace")[:2000]]


def gpus(folder: Path = Path("/proc/driver/nvidia")) -> tuple[int, str]:
    """Return (number of NVIDIA GPUs, driver version), from /proc: no tool has to be installed."""
    try:
        count = len(list((folder / "gpus").iterdir()))
        match = re.search(r"Module +(?:for \S+ +)?(\d+(?:\.\d+)+)", (folder / "version").read_text())
    except OSError:
        return 0, ""
    return count, match.group(1) if match else ""


def listen(port: int) -> tuple[socket.socket | None, str]:
    """Return a listening socket, or None and why there is none."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        return None, str(error)
    return listener, ""


def find_program(name: str, cwd: str, search: str) -> str:
    """Return the path of a program on this host, empty when it has none.

    Args:
        name: as the user typed it.
        cwd: where ranks start.
        search: the PATH that ranks will have, empty for this host's own.
    """
    if "/" in name:
        path = str(Path(cwd, name))
        return path if os.access(path, os.X_OK) else ""
    return shutil.which(name, path=search or None) or ""


def facts(question: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
    """Return what this host has, and the socket at which its peers may try."""
    listener, why = listen(question.get("port", 0))
    count, driver = gpus()
    answer = {
        "host": socket.gethostname(),
        "python": list(sys.version_info[:3]),
        "interfaces": interfaces(),
        "mpi": mpi(question.get("mpi", "")) if question.get("want_mpi") else None,
        "gpus": count,
        "driver": driver,
        "port": listener.getsockname()[1] if listener else 0,
        "port_error": why,
        "folder": not question.get("cwd") or Path(question["cwd"]).is_dir(),
        "program": not question.get("program")
        or bool(find_program(question["program"], question.get("cwd", ""), question.get("path", ""))),
    }
    return answer, listener


def reach(peer: dict[str, Any], answers: dict[str, list[str]]) -> None:
    """Try to connect to one peer; note the class of what went wrong, empty when nothing did."""
    try:
        address = str(socket.getaddrinfo(peer["name"], None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        answers[peer["name"]] = ["name", str(error)]
        return
    try:
        socket.create_connection((address, peer["port"]), CONNECT_S).close()
        answers[peer["name"]] = ["", address]
    except OSError as error:
        answers[peer["name"]] = ["port", f"{address} port {peer['port']}: {error}"]


def main() -> None:
    """Answer both questions, then wait until the others have asked too."""
    answer, listener = facts(json.loads(sys.stdin.readline()))
    send("facts", answer)
    line = sys.stdin.readline()
    send("clock", {"time": time.time()})
    answers: dict[str, list[str]] = {}
    threads = [threading.Thread(target=reach, args=(peer, answers)) for peer in json.loads(line or "[]")]
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join(CONNECT_S + 1)
    send("reached", dict(answers))
    sys.stdin.readline()
    if listener:
        listener.close()


if __name__ == "__main__":
    main()
