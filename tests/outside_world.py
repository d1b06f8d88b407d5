"""A machine with an outside, as two network namespaces: what pods reach there is served on the other side.

Linux and root only. The *machine* is where a node agent is started: it has an uplink (198.51.100.1), a
default route, a ``/etc/resolv.conf`` and a ``/etc/hosts`` of its own. The *outside* (198.51.100.2) serves
HTTP.
Addresses are of TEST-NET-2, RFC 5737.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

MACHINE, OUTSIDE = "198.51.100.1", "198.51.100.2"
STUB = "127.0.0.53"
"""Where systemd-resolved listens: no pod can reach it by itself."""
LIMIT_S = 60.0

HTTP = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(bytes(5_000_000) if self.path == "/large" else self.client_address[0].encode())
    def do_PUT(self):
        self.answer(str(len(self.rfile.read(int(self.headers["Content-Length"])))).encode())
    def log_message(self, *_):
        pass

ThreadingHTTPServer((sys.argv[1], 80), Handler).serve_forever()
"""

DNS = """
# Answers A of service.example with 198.51.100.2, of many.example with 60 addresses (over TCP only, as it is
# too long for a datagram), everything else with NXDOMAIN; PORTS names the sockets that it has.
import socket, struct, sys, threading

def answer(message, stream):
    end = message.index(0, 12) + 5
    name, (kind,) = message[12:end - 5], struct.unpack("!H", message[end - 4:end - 2])
    known = {b"\\x07service\\x07example": 1, b"\\x04many\\x07example": 60}.get(name.lower(), 0)
    if known > 20 and not stream:
        return message[:2] + struct.pack("!HHHHH", 0x8380, 1, 0, 0, 0) + message[12:end]
    count = known if kind == 1 else 0
    flags = 0x8180 | (0 if known else 3)
    body = b"".join(
        b"\\xc0\\x0c" + struct.pack("!HHIH4s", 1, 1, 60, 4, socket.inet_aton(f"198.51.100.{2 + n}"))
        for n in range(count)
    )
    return message[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + message[12:end] + body

def serve_stream(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            head = connection.recv(2, socket.MSG_WAITALL)
            if len(head) < 2:
                continue
            (length,) = struct.unpack("!H", head)
            reply = answer(connection.recv(length, socket.MSG_WAITALL), True)
            connection.sendall(struct.pack("!H", len(reply)) + reply)

place = (sys.argv[1], 53)
listener = socket.create_server(place)
threading.Thread(target=serve_stream, args=(listener,), daemon=True).start()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(place)
while True:
    message, source = datagrams.recvfrom(4096)
    datagrams.sendto(answer(message, False), source)
"""


def why_not() -> str:
    """Return what this machine lacks for it, empty when nothing."""
    import os

    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else ""


class OutsideWorld:
    """See the module's text; ``folder`` is for its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._holders: dict[str, int] = {}

    def start(self) -> None:
        (self.folder / "resolv.conf").write_text(f"search example\nnameserver {STUB}\n")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{OUTSIDE} storage.corp\n")
        binds = [f"mount --bind {self.folder}/{name} /etc/{name}" for name in ("resolv.conf", "hosts")]
        self._hold("machine", binds)
        self.join("outside", "up0", MACHINE, OUTSIDE)
        self.run("machine", *f"ip route add default via {OUTSIDE}".split())
        self._serve("machine", DNS, STUB, 53)

    def join(self, name: str, device: str, machine: str, other: str) -> None:
        """Join a further network to the machine, with one host in it that serves HTTP at port 80.

        Args:
            name: of the host.
            device: of the link, on both sides.
            machine: the machine's address there.
            other: the host's.
        """
        self._hold(name, [])
        pids = self._holders
        words = (
            f"ip link add {device} netns {pids['machine']} type veth peer name {device} netns {pids[name]}"
        )
        subprocess.run(words.split(), check=True, timeout=LIMIT_S)
        for side, address in (("machine", machine), (name, other)):
            self.run(side, *f"ip address add {address}/24 dev {device}".split())
            for one in ("lo", device):
                self.run(side, *f"ip link set {one} up".split())
        self._serve(name, HTTP, other, 80)

    def command(self, name: str) -> list[str]:
        """Return the words that, before a command, run it on the machine or outside."""
        return ["nsenter", f"--target={self._holders[name]}", "--net", "--mount", "--"]

    def run(self, name: str, *words: str, check: bool = True) -> str:
        """Run a command; return what it writes to both outputs."""
        done = subprocess.run(
            [*self.command(name), *words],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        assert not check or done.returncode == 0, done.stdout
        return done.stdout

    def can_connect(self, name: str, address: str, port: int, limit_s: float = 5.0) -> bool:
        """Return whether a TCP connection can be opened from there."""
        script = f"import socket; socket.create_connection(('{address}', {port}), {limit_s}); print('yes')"
        return "yes" in self.run(name, sys.executable, "-c", script, check=False)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait(LIMIT_S)

    def _hold(self, name: str, steps: list[str]) -> None:
        script = " && ".join([*steps, "echo ready", "exec sleep 1000"])
        holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", script], stdout=subprocess.PIPE)
        self._processes.append(holder)
        self._holders[name] = holder.pid
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"

    def _serve(self, name: str, script: str, address: str, port: int) -> None:
        self._processes.append(subprocess.Popen([*self.command(name), sys.executable, "-c", script, address]))
        deadline = time.monotonic() + LIMIT_S
        while not self.can_connect(name, address, port):
            assert time.monotonic() < deadline, f"nobody listens at {address}, port {port}"
