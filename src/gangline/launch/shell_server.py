"""Serve a remote shell at a TCP port, for hosts and pods that have no ssh server.

``python -m gangline.launch.shell_server PORT`` takes commands from ``gangline-rsh -p PORT HOST COMMAND…``.
Both sides need the same secret, ``$GANGLINE_SHELL_KEY``: the server sends a random challenge, and runs only
what comes with the HMAC-SHA256 of challenge and command under that key. Output is not encrypted: it is
meant for the pods of one machine and for networks of one's own. A command ends with its connection.

Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import sys

from gangline.launch.rank_supervisor import RankSupervisor

KEY_VARIABLE = "GANGLINE_SHELL_KEY"
ADDRESS_VARIABLE = "GANGLINE_SHELL_ADDRESS"
"""Where to listen; every address of the host without it."""
KEY_CHARACTERS_MIN = 32
CHALLENGE_BYTES = 32
REQUEST_BYTES_MAX = 1 << 20
REQUEST_LIMIT_S = 10.0


def sign(key: str, challenge: bytes, request: bytes) -> str:
    """Return what proves that a request was made for this challenge by somebody who has the key."""
    return hmac.new(key.encode(), challenge + request, hashlib.sha256).hexdigest()


def take_request(connection: socket.socket, key: str) -> dict[str, str] | None:
    """Return the request of a connection, None when it proves nothing."""
    connection.settimeout(REQUEST_LIMIT_S)
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    connection.sendall(challenge)
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece or len(data) > REQUEST_BYTES_MAX:
            return None
        data += piece
    proof, _, request = data[:-1].partition(b" ")
    if not hmac.compare_digest(proof.decode("ascii", "replace"), sign(key, challenge, request)):
        return None
    connection.settimeout(None)
    answer: dict[str, str] = json.loads(request)
    return answer


def serve_one(connection: socket.socket, key: str) -> None:
    """Run one connection's command: this process becomes a supervisor that talks over the connection."""
    try:
        request = take_request(connection, key)
    except (OSError, ValueError):
        return
    if request is None:
        return
    for stream in (0, 1):
        os.dup2(connection.fileno(), stream)
    connection.close()
    start = {"rank": 0, "argv": ["/bin/sh", "-c", request["command"]], "env": {}}
    RankSupervisor().run(json.dumps({"start": [start], "cwd": request.get("cwd", "")}).encode() + b"\n")


def serve(port: int, key: str, address: str = "") -> None:
    """Serve until the process is ended; each connection has a process of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
        while True:
            connection, _ = listener.accept()
            reap()
            if os.fork() == 0:
                listener.close()
                try:
                    serve_one(connection, key)
                finally:
                    os._exit(0)
            connection.close()


def reap() -> None:
    """Collect the processes of connections that have ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def main() -> int:
    """Entry: PORT; returns 2 for wrong use."""
    words = sys.argv[1:]
    if len(words) != 1 or not words[0].isdigit() or not 0 < int(words[0]) < 65536:
        sys.stderr.write("usage: python -m gangline.launch.shell_server PORT\n")
        return 2
    key = os.environ.get(KEY_VARIABLE, "")
    if len(key) < KEY_CHARACTERS_MIN:
        sys.stderr.write(
            f"error[no-key]: cannot serve a remote shell without a secret: {KEY_VARIABLE} has {len(key)} "
            f"characters, at least {KEY_CHARACTERS_MIN} are needed\n\n"
            "hint: give all hosts the same one, or install openssh-server\n"
        )
        return 2
    try:
        serve(int(words[0]), key, os.environ.get(ADDRESS_VARIABLE, ""))
    except OSError as error:
        sys.stderr.write(f"error[port]: cannot listen at port {words[0]}: {error.strerror}\n")
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
