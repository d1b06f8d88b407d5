"""``gangline-rsh``: run a command in another pod of the one-machine cluster, as ssh would.

Called by MPI launchers as ``gangline-rsh [ssh options] HOST COMMAND...``. Standard library only, run with
``python -I -S``. It finds HOST in the folder of names (``$GANGLINE_NAMES``), connects to that pod's shim and
hands over its standard streams; the command runs there with that container's environment. The exit code comes
back; when this process dies, the shim kills the command. It works while the node agent is down.

With ``-p PORT`` and a secret in ``$GANGLINE_SHELL_KEY`` a host that is in no such folder is reached over TCP,
where ``gangline.launch.shell_server`` listens with the same secret.

A host that is not up yet is waited for, at most ``$GANGLINE_RSH_WAIT_S`` seconds (30).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shlex
import socket
import sys
import time

WAIT_S = 30.0
_RETRY_S = 0.02
_EXIT_UNREACHABLE = 255
_OPTIONS_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")


def split_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """Return host and command of an ssh-like command line; options are passed over, see ``port_of``.

    Raises:
        ValueError: there is no host or no command.

    Example:
        >>> split_arguments(["-x", "-o", "BatchMode=yes", "user@a-worker-0", "prted", "--tree"])
        ('a-worker-0', ['prted', '--tree'])
    """
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if len(option) == 2 and option[1] in _OPTIONS_WITH_VALUE and rest:
            rest.pop(0)
    if len(rest) < 2:
        raise ValueError("usage: gangline-rsh [OPTIONS] HOST COMMAND...")
    return rest[0].rpartition("@")[2], rest[1:]


def port_of(arguments: list[str]) -> int:
    """Return the value of ``-p``, 0 without one."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-") or word == "--":
            return 0
        if len(word) == 2 and word[1] in _OPTIONS_WITH_VALUE:
            value = next(words, "")
            if word == "-p" and value.isdigit():
                return int(value)
    return 0


def aliases(host: str, namespace: str) -> list[str]:
    """Return the names under which a host may be listed, longest first.

    ``h.s.NAMESPACE.svc.cluster.local`` and ``h.s.NAMESPACE.svc`` are listed as ``h.s``.
    """
    name = host.rstrip(".")
    found = [name]
    for suffix in (f".{namespace}.svc.cluster.local", f".{namespace}.svc", f".{namespace}"):
        if name.endswith(suffix):
            found.append(name.removesuffix(suffix))
    parts = name.split(".")
    if "svc" in parts[3:]:
        found.append(".".join(parts[:2]))
    return list(dict.fromkeys(found))


def shell_command(command: list[str]) -> list[str]:
    """Return what to execute: as ssh, the words joined by blanks are a line for the shell."""
    return ["/bin/sh", "-c", " ".join(command)]


def _connect(names: str, host: str, namespace: str, deadline: float) -> socket.socket:
    candidates = [os.path.join(names, alias) for alias in aliases(host, namespace)]  # noqa: PTH118 - starts fast
    while True:
        for path in candidates:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(path)
                return connection
            except OSError:
                connection.close()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no pod answers to `{host}` in namespace `{namespace}`")
        time.sleep(_RETRY_S)


def _run(connection: socket.socket, command: list[str]) -> int | None:
    """Return the exit code; None when the pod is there but no container of it runs yet."""
    folder = os.environ.get("GANGLINE_RSH_CWD", "")
    request = {"id": 1, "op": "exec", "argv": shell_command(command), "cwd": folder}
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
    buffer = b""
    while chunk := connection.recv(65536):
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("retry"):
                return None
            if "error" in message:
                sys.stderr.write(f"gangline-rsh: {message['error']}\n")
            if "exit" in message:
                return int(message["exit"])
    raise ConnectionError("the pod has ended")


def _run_over_tcp(host: str, port: int, key: str, command: list[str], deadline: float) -> int:
    """Run a command at a shell server; return its exit code."""
    while True:
        try:
            connection = socket.create_connection((host, port), 3)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S * 10)
    with connection, connection.makefile("rb") as stream:
        challenge = stream.read(32)
        folder = os.environ.get("GANGLINE_RSH_CWD", "")
        request = json.dumps({"command": " ".join(command), "cwd": folder}).encode()
        proof = hmac.new(key.encode(), challenge + request, hashlib.sha256).hexdigest()
        connection.sendall(proof.encode() + b" " + request + b"\n")
        connection.settimeout(None)
        while head := stream.readline().split():
            payload = stream.read(int(head[2]))
            if head[0] == b"exit":
                return int(payload)
            if head[0] == b"failed":
                raise ConnectionError(payload.decode(errors="replace"))
            if head[0] in (b"out", b"err"):
                _write_all(1 if head[0] == b"out" else 2, payload)
    raise ConnectionError("the server has ended the connection; do both sides have the same secret?")


def _write_all(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]


def main() -> int:
    """Run; return the command's exit code, 255 when the host cannot be reached (as ssh does)."""
    try:
        host, command = split_arguments(sys.argv[1:])
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return _EXIT_UNREACHABLE
    names = os.environ.get("GANGLINE_NAMES", "")
    key, port = os.environ.get("GANGLINE_SHELL_KEY", ""), port_of(sys.argv[1:])
    namespace = os.environ.get("GANGLINE_POD_NAMESPACE", "default")
    is_listed = any(os.path.exists(os.path.join(names, one)) for one in aliases(host, namespace))  # noqa: PTH110,PTH118
    over_tcp = bool(key and port and not (names and is_listed))
    if not names and not over_tcp:
        sys.stderr.write("gangline-rsh: GANGLINE_NAMES is not set: this is no pod of a Gangline cluster\n")
        return _EXIT_UNREACHABLE
    wait_s = float(os.environ.get("GANGLINE_RSH_WAIT_S") or WAIT_S)
    deadline = time.monotonic() + wait_s
    try:
        if over_tcp:
            return _run_over_tcp(host, port, key, command, deadline)
        while True:
            with _connect(names, host, namespace, deadline) as connection:
                code = _run(connection, command)
            if code is not None:
                return code
            if time.monotonic() > deadline:
                raise TimeoutError(f"no container of `{host}` runs")
            time.sleep(_RETRY_S)
    except (OSError, ValueError) as error:
        line = shlex.join(command)[:200]
        waited = f" within {wait_s:.0f} s" if isinstance(error, TimeoutError) else ""
        sys.stderr.write(f"gangline-rsh: cannot run on {host}{waited}: {error} ({line})\n")
        return _EXIT_UNREACHABLE


if __name__ == "__main__":
    sys.exit(main())
