"""Start ranks of this machine from Python: ``horovod.run(function, num_proc=4)``."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

_CALL = (
    "import sys, cloudpickle; f, a, k = cloudpickle.load(open(sys.argv[1], 'rb')); "
    "cloudpickle.dump(f(*a, **k), open(sys.argv[2], 'wb'))"
)
_LOOK_EVERY_S = 0.02
_END_TIMEOUT_S = 10.0


def run(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    hosts: str | None = None,
    env: dict[str, str] | None = None,
    np: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    verbose: int | None = None,
) -> list[Any]:
    """Call a function in every rank and return what each returned, in their order.

    Args:
        func: pickled with what it refers to; it calls ``hvd.init()`` itself.
        num_proc: number of ranks; ``np`` is its older form.
        hosts: nothing, or ``localhost:N``; ranks on several hosts are started by `horovodrun`.
        env: variables of the ranks, this process's unless given.
        use_gloo: taken and not needed, as are ``use_mpi`` and ``verbose``.

    Raises:
        ValueError: other hosts are named, or no number of ranks.
        RuntimeError: a rank failed; the others are ended. The message names it and its exit code.
    """
    count = num_proc if num_proc is not None else np
    if not count or count < 1:
        raise ValueError(f"horovod.run() wants a number of ranks (num_proc), not {count}")
    if hosts and {one.partition(":")[0] for one in hosts.split(",")} - {"localhost", "127.0.0.1"}:
        raise ValueError(
            f"horovod.run() starts ranks on this machine, not on {hosts}: use `horovodrun -H "
            f"{hosts} python SCRIPT`"
        )
    with tempfile.TemporaryDirectory() as folder:
        call = Path(folder) / "call"
        call.write_bytes(cloudpickle.dumps((func, args, kwargs or {})))
        results = [Path(folder) / f"result-{rank}" for rank in range(count)]
        _run_all(call, results, dict(os.environ if env is None else env))
        return [cloudpickle.loads(result.read_bytes()) for result in results]


def _run_all(call: Path, results: list[Path], variables: dict[str, str]) -> None:
    variables.setdefault("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    size = len(results)
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "TORCHELASTIC_RUN_ID": secrets.token_hex(8)}
    shared |= {"HOROVOD_SIZE": size, "HOROVOD_LOCAL_SIZE": size, "HOROVOD_HOSTNAME": socket.gethostname()}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, result in enumerate(results):
            own = {"RANK": rank, "LOCAL_RANK": rank, "HOROVOD_RANK": rank, "HOROVOD_LOCAL_RANK": rank}
            words = [sys.executable, "-c", _CALL, str(call), str(result)]
            values = {name: str(value) for name, value in {**shared, **own}.items()}
            processes.append(subprocess.Popen(words, env=variables | values))
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            time.sleep(_LOOK_EVERY_S)
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None:
            raise RuntimeError(f"rank {failed} of {size} ended with exit code {codes[failed]}")
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
