"""What has become of a rank that says nothing: seen from its node.

Each node's first rank starts this file as a small process of its own. It sleeps until a watcher on another
node asks about a rank of this one, looks at that process from outside, and answers. It ends with its starter.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.train.stacks import process_state, stack_of

ASK_LIMIT_S = 6.0
"""For all ranks that are asked about at once."""
ASK_AGAIN_S = 1.0
MESSAGE_BYTES_MAX = 4096
START_LIMIT_S = 10.0
UNKNOWN = "its process says nothing"

ProcessState = tuple[str, str]
"""State of a process and its stack; the stack is empty where it is unknown or does not matter."""


def look_at(fact: Mapping[str, Any]) -> ProcessState:
    """Return the state and the stack of a mute rank of this node.

    Args:
        fact: what the rank said of itself at the start: ``pid``, ``process``, ``stack_file``.
    """
    from gangline.train.rendezvous import process_name

    pid = int(fact["pid"])
    if process_name(pid) != fact["process"]:
        return "its process has ended", ""
    if state := process_state(pid):
        return state, ""
    return "its interpreter is locked inside C code", stack_of(pid, str(fact["stack_file"]))


class ProcessInspector:
    """The process that looks, as its starter sees it.

    Args:
        key: that those who ask must know.
    """

    def __init__(self, key: str) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError, ValueError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(f"{key}\n".encode())
            self._process.stdin.flush()
            if select.select([self._process.stdout], [], [], START_LIMIT_S)[0]:
                self.port = int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(OSError):
                self._process.stdin.close()  # type: ignore[union-attr]
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ASK_LIMIT_S)
            self._process.stdout.close()  # type: ignore[union-attr]
            self._process = None


def ask(questions: Iterable[tuple[tuple[str, int], str, int, Mapping[str, Any]]]) -> dict[int, ProcessState]:
    """Return what inspectors on other nodes see, by rank; a rank is missing where nobody answered in time.

    Args:
        questions: place and key of an inspector, and a rank of its node with that rank's fact.
    """
    open_ = {
        rank: (place, json.dumps({"key": key, "rank": rank, **_asked(fact)}).encode())
        for place, key, rank, fact in questions
    }
    found: dict[int, ProcessState] = {}
    deadline = time.monotonic() + ASK_LIMIT_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        while open_ and (left := deadline - time.monotonic()) > 0:
            for place, data in open_.values():
                with suppress(OSError):
                    asking.sendto(data, place)
            asking.settimeout(min(left, ASK_AGAIN_S))
            with suppress(OSError, ValueError, KeyError, TypeError):
                while open_:
                    answer = json.loads(asking.recv(MESSAGE_BYTES_MAX))
                    if open_.pop(answer["rank"], None):
                        found[answer["rank"]] = (str(answer["state"]), str(answer["stack"]))
    return found


def _asked(fact: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact[name] for name in ("pid", "process", "stack_file")}


def main() -> None:
    """Say the port, then answer until the starter has ended; what is asked again is answered again."""
    key = sys.stdin.readline().strip()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as answering:
        answering.bind(("", 0))
        os.write(1, f"{answering.getsockname()[1]}\n".encode())
        while sys.stdin not in select.select([sys.stdin, answering], [], [])[0]:
            data, place = answering.recvfrom(MESSAGE_BYTES_MAX)
            with suppress(OSError, ValueError, KeyError, TypeError):
                question = json.loads(data)
                if question["key"] == key:
                    state, stack = look_at(question)
                    answer = {"rank": question["rank"], "state": state, "stack": stack}
                    answering.sendto(json.dumps(answer).encode(), place)


if __name__ == "__main__":
    main()
