"""Calls the function that a user sent to the ranks of a job, and writes what comes of it into the log.

Runs in every rank by the image's own Python, 3.8 or newer, from the standard library and cloudpickle:

    GANGLINE_FUNCTION=FILE python3 call_function.py [NAME]

The file has a line of JSON (``python``: the version that pickled it, ``path``: folders to import from,
``ranks``: how many call it, ``bytes_max``: how large a result may be) and, behind it, the pickled function
with its arguments. What it returns or raises goes back as records of kind ``result`` in the rank's output:
the log is the one way out of a pod on every cluster.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

FILE_VARIABLE = "GANGLINE_FUNCTION"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
PART_BYTES = 2250
"""Of one record: 3000 characters of base64, so that a line is below 4096 bytes, which a pipe takes whole."""
LINGER_S = 0.5
"""Between a rank's error and its end, with which a launcher ends the others: they may have one to tell."""
RETURNED, RAISED = "returned", "raised"


class NotSentError(Exception):
    """What a function returned cannot be sent back."""


def main() -> int:
    """Call the function; return the exit code of this rank."""
    out = os.dup(1)  # the function may close or redirect its own
    rank = next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)
    first, _, pickled = Path(os.environ[FILE_VARIABLE]).read_bytes().partition(b"\n")
    header = json.loads(first)
    try:
        data, code = call(header, pickled), 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
        if isinstance(error, SystemExit) and not error.code:
            data, code = pickle_of(None), 0
        else:
            data, code = describe(error, header["bytes_max"]), exit_code_of(error)
            print_error(error)
    flush()
    write_records(out, rank, data, ranks=header["ranks"], outcome=RAISED if code else RETURNED)
    if code:
        time.sleep(LINGER_S)
    return code


def call(header: dict[str, Any], pickled: bytes) -> bytes:
    """Return the pickled result of the function."""
    found = list(sys.version_info[:2])
    if header["python"] != found:
        sent, here = (".".join(map(str, one)) for one in (header["python"], found))
        raise RuntimeError(
            f"the function was sent by Python {sent}, and the ranks have Python {here}, which cannot read "
            f"it: use an image with Python {sent}"
        )
    dumps = pickle_of  # imports cloudpickle, which may lie beside this file
    dumps(None)
    sys.path[:] = ["", *[folder for folder in header["path"] if folder not in sys.path[1:]], *sys.path[1:]]
    import pickle

    function, args, kwargs = pickle.loads(pickled)
    result = function(*args, **kwargs)
    try:
        data = dumps(result)
    except Exception as error:
        raise NotSentError(
            f"the result cannot be pickled, of type `{type(result).__qualname__}`: {error}"
        ) from error
    if len(data) > header["bytes_max"]:
        raise NotSentError(
            f"the result has {len(data)} bytes, and a rank of this job may send {header['bytes_max']}: "
            "write it to a file that you can read, and return the path"
        )
    return data


def pickle_of(value: object) -> bytes:
    """Return a value as bytes."""
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def describe(error: BaseException, bytes_max: int) -> bytes:
    """Return an error as bytes: its words, its traceback, and itself where it can be pickled."""
    import pickle

    lines = traceback.format_exception(type(error), error, without_own_frames(error.__traceback__))
    text = "".join(lines)[-bytes_max // 2 :]
    try:
        itself = pickle_of(error)
        pickle.loads(itself)  # some can be written and not read
    except Exception:  # noqa: BLE001
        itself = b""
    if len(itself) > bytes_max // 4:
        itself = b""
    message = str(error)[: bytes_max // 8]
    return pickle.dumps((type(error).__qualname__, message, text, itself))


def without_own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the user's first frame on."""
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next:
        frames = frames.tb_next
    return frames


def print_error(error: BaseException) -> None:
    """Write the traceback to standard error, as Python does at the end of a program."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(type(error), error, without_own_frames(error.__traceback__))


def exit_code_of(error: BaseException) -> int:
    """Return the code with which a program ends after that error."""
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code & 255 or 1
    return 1


def flush() -> None:
    """Write what the function has printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or gone
            pass


def write_records(out: int, rank: int, data: bytes, *, ranks: int, outcome: str) -> None:
    """Write bytes in parts, each a record on a line of its own; the last says how many, and their digest."""
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    for index, part in enumerate(parts):
        write_record(out, rank=rank, part=index, data=base64.b64encode(part).decode())
    digest = hashlib.sha256(data).hexdigest()
    write_record(out, rank=rank, ranks=ranks, outcome=outcome, parts=len(parts), sha256=digest)


def write_record(out: int, **fields: object) -> None:
    """Write one record, as `gangline.train.records` reads it."""
    line = "@gangline " + json.dumps({"kind": "result", **fields}, separators=(",", ":")) + "\n"
    rest = line.encode()
    while rest:
        rest = rest[os.write(out, rest) :]


if __name__ == "__main__":
    code = main()
    flush()
    sys.exit(code)
