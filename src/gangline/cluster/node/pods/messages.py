"""The files of one container on the machine: prepared before it starts, read when it has ended."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.api.core import Container

if TYPE_CHECKING:
    from gangline.cluster.node.pods.sandbox import Sandbox

MESSAGE_LIMIT_BYTES = 4096
LOG_TAIL_LINES = 80
LOG_TAIL_BYTES = 2048


def prepare_container(spec: dict[str, Any], pod_folder: Path) -> None:
    """Make the folders of one attempt: a fresh writable layer, a termination log, a place for its log."""
    folder = Path(spec["folder"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "termination-log").touch(mode=0o666)
    (folder / "termination-log").chmod(0o666)
    log = Path(spec["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    if spec["root"] is None:
        (pod_folder / "home").mkdir(exist_ok=True)


def termination_message(container: Container, report: dict[str, Any], sandbox: Sandbox) -> str:
    """Return what a container left as its termination message, at most 4096 bytes.

    With policy ``FallbackToLogsOnError`` and nothing written, the end of its log when it failed.
    """
    place = sandbox.place()
    path = place.container_folder(container.name) / "termination-log"
    try:
        with path.open("rb") as opened:
            text = opened.read(MESSAGE_LIMIT_BYTES)
    except OSError:
        text = b""
    falls_back = container.termination_message_policy == "FallbackToLogsOnError" and report["exit_code"] != 0
    if not text and falls_back:
        text = _log_tail(place.logs / container.name / f"{report['attempt']}.log")
    # A NUL byte in a message ends it on many a terminal and in many a reader.
    return text.decode("utf-8", "replace").replace("\0", "")


def _log_tail(path: Path) -> bytes:
    try:
        # Only a line feed ends a record: binary output may hold any other end of a line.
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")[-LOG_TAIL_LINES:]
    except OSError:
        return b""
    return b"\n".join(line.split(b" ", 3)[-1] for line in lines)[-LOG_TAIL_BYTES:]
