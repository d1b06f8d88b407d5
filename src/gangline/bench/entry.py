"""How a benchmark program begins and ends: errors in Gangline's form, results as JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError, UserError

EXIT_INTERRUPTED = 130
IMAGE_VARIABLE = "GANGLINE_IMAGE"
"""Name of the local image in which a program runs."""


class TorchMissingError(UserError):
    """The Python that runs a benchmark has no torch."""

    code = "no-torch"


def require(module: str) -> None:
    """Check that this Python has torch, or another module that a program cannot do without.

    Open MPI puts the folder of its own programs first on a rank's PATH, and with it the Python that may lie
    there. Where a virtual environment is active in spite of that, the program starts again with its Python.

    Raises:
        TorchMissingError: it has not; the hint says how to get it.
    """
    if importlib.util.find_spec(module) is None:
        _start_again_in_environment()
        package = {"PIL": "pillow"}.get(module, module)
        hint = f"install it: {sys.executable} -m pip install {package}"
        if image := os.environ.get(IMAGE_VARIABLE):
            hint += f"; or lend the image an environment that has it: gangline up --image {image}=FOLDER"
        raise TorchMissingError(
            f"this benchmark needs {package}, and {sys.executable} does not have it", hint=hint
        )


def _start_again_in_environment() -> None:
    folder = os.environ.get("VIRTUAL_ENV", "")
    python = Path(folder, "bin", "python")
    if folder and python.exists() and Path(sys.prefix) != Path(folder):
        sys.stdout.flush()
        os.execv(python, [str(python), *sys.orig_argv[1:]])


def run(program: Callable[[Sequence[str]], None]) -> None:
    """Run a program on this process's arguments and end the process.

    Exit codes: 0 done; 2 wrong use, or no torch; 3 the ranks did not meet; 130 interrupted.
    """
    code = 0
    try:
        program(sys.argv[1:])
        sys.stdout.flush()
    except GanglineError as error:
        sys.stdout.flush()
        print(error.render(), file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


def write_result(path: str, result: dict[str, Any]) -> None:
    """Write one rank's figures as JSON, whole or not at all; an empty path writes nothing.

    Raises:
        UserError: the file cannot be written.
    """
    if not path:
        return
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        raise UserError(f"cannot write the result to {path}: {error.strerror}") from error


def check_writable(path: str) -> None:
    """Check before a long run that its result can be written; an empty path passes.

    Raises:
        UserError: the folder does not exist, or is not ours to write.
    """
    if path and not os.access(Path(path).parent, os.W_OK):
        raise UserError(
            f"cannot write the result to {path}: {Path(path).parent} is no folder that we may write"
        )


def machine() -> dict[str, Any]:
    """Return what a figure depends on: host, processors, Python, torch, GPU, time of day."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {
        "host": os.environ.get("HOSTNAME") or platform.node(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "threads_per_rank": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": gpu,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    """Return the model of the processor; empty where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def say(line: str) -> None:
    """Print a line at once: ranks are followed while they run."""
    print(line, flush=True)
