"""The ranks among this machine's processes, and how each is: read from /proc, and asked by a signal.

A rank is a process whose environment says so, and RANKS_OF says of which program. It answers where
`gangline.launch.rank_hook` was imported at its start: its open files then include one of that name, in
memory. The signal is SIGURG, which a process that does not expect it ignores. Linux only.
"""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gangline.train.waiting import Frame, ObservedRank, RankStack

RANKS_OF = "GANGLINE_RANKS_OF"
"""Variable of a rank's environment: ``PROGRAM/PLACE``, set by who starts the program."""
CHANNEL = "/memfd:gangline-rank"
"""What the link of a rank's file of answers begins with."""
OWN_WATCH = "gangline-stack-"
"""Part of the name of the file in which a rank that uses `gangline.train` answers."""
ANSWER_BYTES_MAX = 1 << 20
SOURCE_BYTES_MAX = 1 << 22
_HEAD = "Stack (most recent call first):"
# a line of faulthandler: `  File "train.py", line 7 in step`
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
# a line of /proc/PID/maps ends in `/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so`; torch
# that was built for CUDA has `libcudart.so` everywhere, the driver's `libcuda.so.1` where there are GPUs
_LIBRARY = re.compile(rb"/lib(torch|mpi|cuda)(?:_\w+)?\.so")
_NAMES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """What /proc/PID/stat says: state, parent, time of start in ticks, processor time in seconds."""

    pid: int
    state: str
    parent: int
    started: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank and its processes.

    Attributes:
        program: which one it is a rank of.
        place: where, as a pod's name; ``""`` unknown.
        rank: its number.
        size: of its world.
        pid: the process that answers, else the first one.
        pids: all, those that it has started included.
        channel: where it answers, ``""`` where it does not.
        tells_itself: it uses `gangline.train`.
    """

    program: str
    place: str
    rank: int
    size: int
    pid: int
    pids: tuple[int, ...]
    channel: str = ""
    tells_itself: bool = False


def read_process(path: Path) -> Process | None:
    """Return a process or thread by its ``stat`` file, None when it is gone."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return Process(
        int(text.split(b" ", 1)[0]), fields[0].decode(), int(fields[1]), int(fields[19]), ticks / _TICKS_PER_S
    )


def place_of(variables: Mapping[str, str]) -> tuple[int, int] | None:
    """Return rank and number of ranks as a launcher told them, None for no rank."""
    for name, size in _NAMES:
        if variables.get(name, "").isdigit() and variables.get(size, "").isdigit():
            return int(variables[name]), int(variables[size])
    return None


def find_ranks(program: str = "") -> list[Rank]:
    """Return the ranks that run on this machine, each once.

    Args:
        program: the only one whose ranks count, ``""`` for any.

    Cost: 20 µs for each process of the machine.
    """
    members: dict[tuple[str, str, int, int], list[Process]] = {}
    for folder in _processes():
        environment = _environment(folder)
        own, _, where = environment.get(RANKS_OF, "").partition("/")
        if not own or (program and own != program) or (place := place_of(environment)) is None:
            continue
        if (process := read_process(folder / "stat")) is not None and process.state not in "ZX":
            members.setdefault((own, where, *place), []).append(process)
    return [_rank(*key, processes) for key, processes in sorted(members.items())]


def _processes() -> list[Path]:
    try:
        return [Path("/proc", name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - faster
    except OSError:
        return []


def _environment(folder: Path) -> dict[str, str]:
    try:
        text = (folder / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return {name: value for name, _, value in (item.partition("=") for item in text.split("\0"))}


def _rank(program: str, place: str, rank: int, size: int, processes: list[Process]) -> Rank:
    """Return a rank of processes with one and the same place: the first that answers stands for it."""
    processes = sorted(processes, key=lambda process: (process.started, process.pid))
    channel, tells_itself, first = "", False, processes[0].pid
    for process in processes:
        links = _links(process.pid)
        tells_itself = tells_itself or any(OWN_WATCH in link for link in links.values())
        if found := [path for path, link in links.items() if link.startswith(CHANNEL)]:
            channel, first = found[0], process.pid
            break
    return Rank(program, place, rank, size, first, tuple(one.pid for one in processes), channel, tells_itself)


def _links(pid: int) -> dict[str, str]:
    """Return where the open files of a process lead, empty where it is not ours to see."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found[entry.path] = _target(entry.path)
    return found


@dataclass(slots=True)
class RankReader:
    """Looks at one rank again and again, and asks it.

    Attributes:
        rank: which one.
    """

    rank: Rank
    _read_to: int = 0
    _libraries: frozenset[str] = field(default_factory=frozenset)
    _unanswered: RankStack | None = None
    _is_repeated: bool = False

    def look(self) -> ObservedRank | None:
        """Return how the rank is now, None when it has ended."""
        folder = Path("/proc", str(self.rank.pid))
        process, main = read_process(folder / "stat"), read_process(folder / f"task/{self.rank.pid}/stat")
        if process is None or main is None or process.state in "ZX":
            return None
        members = [process, *(read_process(Path("/proc", str(pid), "stat")) for pid in self.rank.pids[1:])]
        ran_since, answers = self._answers()
        if not self._libraries and self.rank.channel:
            self._libraries = _libraries(folder / "maps")
        return ObservedRank(
            rank=self.rank.rank,
            pid=self.rank.pid,
            place=self.rank.place,
            cpu_s=process.cpu_s,
            main_cpu_s=main.cpu_s,
            stopped=tuple(dict.fromkeys(one.pid for one in members if one is not None and one.state == "T")),
            can_answer=bool(self.rank.channel),
            libraries=self._libraries,
            answers=answers,
            ran_since=ran_since,
            tells_itself=self.rank.tells_itself,
        )

    def ask(self) -> None:
        """Ask for an answer, which is there at the next look; a process that does not expect it is let be.

        A rank that has not run Python since its last answer is where it was, and gets no signal: the hook's
        handler restarts a system call once, until Python runs again.
        """
        if self._unanswered is not None:
            self._is_repeated = True
            return
        number = signal.SIGURG
        with suppress(OSError, ValueError):
            status = Path("/proc", str(self.rank.pid), "status").read_text(encoding="utf-8", errors="replace")
            # for example `SigCgt:	0000000000400002`
            caught = int(status.partition("SigCgt:")[2].split("\n", 1)[0], 16)
            if caught >> (number - 1) & 1:
                self._empty()
                os.kill(self.rank.pid, number)

    def _empty(self) -> None:
        """Empty the file of answers that have been read: it lies in memory."""
        with suppress(OSError), _channel(self.rank.channel, os.O_RDWR) as channel:
            if os.fstat(channel).st_size <= self._read_to:
                os.ftruncate(channel, 0)
                self._read_to = 0

    def _answers(self) -> tuple[bool, tuple[RankStack, ...]]:
        """Return whether the rank has run Python since its earlier answers, and the new ones."""
        data = b""
        if self.rank.channel:
            with suppress(OSError), _channel(self.rank.channel, os.O_RDONLY) as channel:
                data = os.pread(channel, ANSWER_BYTES_MAX, self._read_to)
        self._read_to += len(data)
        before, *texts = data.decode(errors="replace").split(_HEAD)
        ran_since, answers = "=" in before.split(), [self._answer(text) for text in texts]
        if self._unanswered is not None and self._is_repeated:
            answers.insert(0, replace(self._unanswered, is_alive=ran_since))
        last = answers[-1] if answers else None if ran_since else self._unanswered
        self._unanswered = None if last is None or last.is_alive else last
        self._is_repeated = False
        return ran_since, tuple(answers)

    def _answer(self, text: str) -> RankStack:
        frames: tuple[Frame, ...] = tuple(
            (file, int(line), name) for file, line, name in _FRAME.findall(text)
        )
        line = _source_line(self.rank.pid, frames[0]) if frames else ""
        return RankStack(frames, line, "=" in text.split("\n"))


def _libraries(maps: Path) -> frozenset[str]:
    try:
        return frozenset(name.decode() for name in _LIBRARY.findall(maps.read_bytes()))
    except OSError:
        return frozenset()


def _source_line(pid: int, frame: Frame) -> str:
    """Return the text of a line as the process sees that file, ``""`` where it cannot be read."""
    file, number, _ = frame
    path = f"/proc/{pid}/root{file}" if file.startswith("/") else f"/proc/{pid}/cwd/{file}"
    with suppress(OSError), _opened(path, os.O_PATH) as named:
        # Opened only once it is known to be a file: opening a device may do something.
        if stat.S_ISREG(os.fstat(named).st_mode):
            with _opened(f"/proc/self/fd/{named}", os.O_RDONLY) as source:
                lines = os.read(source, SOURCE_BYTES_MAX).splitlines()
                return b"".join(lines[number - 1 : number]).decode(errors="replace").strip()
    return ""


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _channel(path: str, flags: int) -> Iterator[int]:
    """Open a rank's file of answers.

    Raises:
        OSError: it is gone, or another file meanwhile: the link is the rank's, the rights may be root's.
    """
    with _opened(path, flags) as descriptor:
        if not _target(f"/proc/self/fd/{descriptor}").startswith(CHANNEL):
            raise FileNotFoundError(path)
        yield descriptor


def _target(link: str) -> str:
    return os.readlink(link)  # noqa: PTH115 - `Path` would make a path of a name that is none
