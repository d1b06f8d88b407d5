"""What a user's program needs inside a pod: its interpreter, its code, the files named on its line.

Reads the file system only; runs the interpreter once where its folder does not say which Python it is.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from gangline.errors import UserError

PROBE_TIMEOUT_S = 10.0
ARGUMENTS_MAX = 4096

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys")
"""Folders that every pod of the one-machine cluster sees as the host does, and in which no user writes."""


class HostFolder(NamedTuple):
    """A folder or file of this machine that the ranks see at the same path."""

    path: str
    read_only: bool


class Program(NamedTuple):
    """A command line that is ready to start inside a pod.

    Attributes:
        line: program and arguments, paths as the pod sees them.
        working_dir: folder in which it starts.
        folders: what has to be mounted, parents before what lies in them.
        environment: variables that the program needs.
    """

    line: tuple[str, ...]
    working_dir: str
    folders: tuple[HostFolder, ...]
    environment: dict[str, str]


def resolve_program(
    line: Sequence[str], *, cwd: Path, code: Path | None, environment: Mapping[str, str]
) -> Program:
    """Return the program as ranks can start it.

    Args:
        line: as the user typed it.
        cwd: the user's folder; relative arguments mean files in it.
        code: folder that the ranks may read and write, and start in; ``cwd`` by default.
        environment: the user's; PATH and VIRTUAL_ENV are read.

    Raises:
        UserError: the program cannot be found, or cannot be read by this user.
    """
    working_dir = code_folder(code or cwd)
    if working_dir == Path("/"):
        raise UserError(
            "the code folder may not be `/`", hint="change into your project, or use --code FOLDER"
        )
    program = find_program(line[0], cwd, environment)
    _check_script(line, cwd, working_dir)
    program, interpreter, found_environment = _interpreter_folders(program, environment)
    arguments, named = _named_files(line[1 : ARGUMENTS_MAX + 1], cwd, working_dir)
    writable = [str(working_dir), *named]
    if _needs_mount(program) and not any(_within(program, folder) for folder in [*interpreter, *writable]):
        interpreter.append(str(program.parent))
    folders = [HostFolder(path, read_only=False) for path in writable]
    folders += [HostFolder(path, read_only=True) for path in interpreter]
    return Program(
        line=(str(program), *arguments),
        working_dir=str(working_dir),
        folders=tuple(_without_nested(folders)),
        environment=found_environment | {"PATH": _rank_path(environment)},
    )


def program_as_typed(
    line: Sequence[str], *, cwd: Path, code: Path | None, environment: Mapping[str, str]
) -> Program:
    """Return the program for ranks that see this machine's files as they are; arguments as above.

    Raises:
        UserError: the program cannot be found, or cannot be read by this user.
    """
    working_dir = code_folder(code or cwd)
    program = find_program(line[0], cwd, environment)
    _check_script(line, cwd, working_dir)
    arguments, _ = _named_files(line[1 : ARGUMENTS_MAX + 1], cwd, working_dir)
    path = {"PATH": environment["PATH"]} if "PATH" in environment else {}
    return Program((str(program), *arguments), str(working_dir), (), path)


def code_folder(folder: Path) -> Path:
    """Return a folder that ranks start in, absolute.

    Raises:
        UserError: it is none.
    """
    path = Path(os.path.abspath(folder))  # noqa: PTH100 - links are kept: users mean the path they typed
    if not path.is_dir():
        raise UserError(f"the code folder `{path}` does not exist", hint="name a folder with --code")
    return path


def with_folder(program: Program, folder: Path) -> Program:
    """Return the program with one more folder that its pods can read, where they do not see it anyway."""
    if not _needs_mount(folder):
        return program
    folders = _without_nested([*program.folders, HostFolder(str(folder), read_only=True)])
    return program._replace(folders=tuple(folders))


def find_program(name: str, cwd: Path, environment: Mapping[str, str]) -> Path:
    """Return the absolute path of a program without following links.

    Raises:
        UserError: it is not there, or this user may not run it; the message says which folder is in the way.
    """
    path = environment.get("PATH", os.defpath)
    if "/" in name:
        candidate = Path(os.path.abspath(cwd / name))  # noqa: PTH100
        candidates = [candidate]
    else:
        candidates = [Path(folder) / name for folder in path.split(os.pathsep) if folder]
    for candidate in candidates:
        if shutil.which(str(candidate)):
            _check_readable(candidate)
            return candidate
    for candidate in candidates:
        if os.path.lexists(candidate):
            raise _unreadable(candidate)
    where = f"`{candidates[0]}` does not exist" if "/" in name else "it is in no folder of your PATH"
    hint = "write `python FILE`" if name.endswith(".py") else "check the name, or activate its environment"
    raise UserError(f"cannot run `{name}`: {where}", hint=hint)


def _check_script(line: Sequence[str], cwd: Path, working_dir: Path) -> None:
    """Refuse a script of Python's that is not there, before every rank says so."""
    script = line[1] if len(line) > 1 else ""
    if not (Path(line[0]).name.startswith("python") and script.endswith(".py")):
        return
    if (cwd / script).exists() or (working_dir / script).exists():
        return
    near = get_close_matches(script, [path.name for path in cwd.glob("*.py")], 1)
    hint = f"did you mean `{near[0]}`?" if near else "name it from the folder in which you stand"
    raise UserError(f"cannot run `{line[0]} {script}`: `{cwd / script}` does not exist", hint=hint)


def _check_readable(program: Path) -> None:
    target = Path(os.path.realpath(program))
    if not (os.access(target, os.R_OK | os.X_OK) or _is_binary_only_executable(target)):
        raise _unreadable(program)


def _is_binary_only_executable(target: Path) -> bool:
    return os.access(target, os.X_OK) and not target.name.startswith("python")


def _unreadable(program: Path) -> UserError:
    """Return the error that names the first file or folder on the way that this user may not pass."""
    user = _user_name()
    for step in _steps(program):
        if not os.path.lexists(step):
            return UserError(
                f"cannot run `{program}`: its link target `{step}` is missing or hidden from user `{user}`",
                hint="make the virtual environment again with an interpreter that this user can read",
            )
        if not step.is_symlink() and not os.access(step, os.X_OK):
            if step.is_file():
                return _without_execute_bit(step)
            what = "entered" if step.is_dir() else "executed"
            return UserError(
                f"cannot run `{program}`: `{step}` cannot be {what} by user `{user}`, who runs the pods",
                hint="use an interpreter outside that folder, for example a virtual environment made with "
                "/usr/bin/python3",
            )
    return UserError(f"cannot run `{program}`: it cannot be executed by user `{user}`")


def _without_execute_bit(program: Path) -> UserError:
    """Return the error for a file that is there and may not be executed."""
    shown = os.path.relpath(program)
    shown = str(program) if shown.startswith("..") else f"./{shown}"
    hint = f"chmod +x {shown}"
    if program.suffix == ".py":
        hint += f", or run it with an interpreter: python {shown}"
    return UserError(f"cannot run `{program}`: it has no permission to be executed", hint=hint)


def _steps(program: Path) -> list[Path]:
    """Return every folder on the way to a program and its link targets, in order."""
    steps: list[Path] = []
    current = program
    for _ in range(16):
        steps += [*reversed(current.parents), current]
        try:
            target = current.readlink()
        except OSError:
            break
        current = Path(os.path.normpath(current.parent / target))
    return steps


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _interpreter_folders(
    program: Path, environment: Mapping[str, str]
) -> tuple[Path, list[str], dict[str, str]]:
    """Return a program's own path, the folders of its Python, and the variables that name them.

    A ``python`` that only finds another one, as version managers install it, is replaced by that one.
    """
    if not program.name.startswith("python"):
        python = program.parent / "python"
        if (program.parent.parent / "pyvenv.cfg").is_file() and python.exists():
            return program, *_interpreter_folders(python, environment)[1:]
        return program, [], {}
    program, prefix, base = _interpreter(program)
    folders = [path for path in dict.fromkeys((prefix, base)) if path and _needs_mount(Path(path))]
    variables: dict[str, str] = {}
    if prefix != base:
        variables["VIRTUAL_ENV"] = prefix
    else:
        user_base = Path(environment.get("PYTHONUSERBASE") or Path.home() / ".local")
        if any(user_base.glob("lib/python3*/site-packages")):
            folders.append(str(user_base / "lib"))
            variables["PYTHONUSERBASE"] = str(user_base)
    return program, folders, variables


def _interpreter(program: Path) -> tuple[Path, str, str]:
    """Return an interpreter with its prefix and base prefix, read from ``pyvenv.cfg`` or asked for."""
    settings = program.parent.parent / "pyvenv.cfg"
    if settings.is_file():
        target = Path(os.path.realpath(program))
        return program, str(settings.parent), str(target.parent.parent)
    question = "import sys; print(sys.executable); print(sys.prefix); print(sys.base_prefix)"
    try:
        answer = subprocess.run(
            [str(program), "-I", "-c", question],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stdout.splitlines()
        return Path(answer[0]), answer[1], answer[2]
    except (OSError, IndexError, subprocess.SubprocessError) as error:
        raise UserError(f"cannot run `{program}`: it does not answer as a Python ({error})") from error


def _named_files(arguments: Sequence[str], cwd: Path, working_dir: Path) -> tuple[list[str], list[str]]:
    """Return the arguments as the ranks understand them, and the existing files outside the code folder.

    A relative argument that names a file for the user but not from the ranks' folder is made absolute.
    """
    resolved, named = [], []
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if not (argument.startswith("-") and equals):
            option, equals, value = "", "", argument
        path = _existing(value, cwd)
        if path is None:
            resolved.append(argument)
            continue
        if not Path(value).is_absolute() and working_dir != cwd and not (working_dir / value).exists():
            argument = f"{option}{equals}{path}"
        resolved.append(argument)
        is_script = position == 0 and path.suffix == ".py"
        target = path.parent if is_script else path
        if _needs_mount(target) and not _within(target, str(working_dir)):
            named.append(str(target))
    return resolved, named


def _existing(value: str, cwd: Path) -> Path | None:
    """Return the absolute path that an argument names, ``None`` when it names no file."""
    if not value or value.startswith("-") or len(value) > 1024 or value in (".", ".."):
        return None
    try:
        path = Path(os.path.abspath(cwd / value))  # noqa: PTH100
        return path if path.exists() and path != Path("/") else None
    except (OSError, ValueError):
        return None


def _needs_mount(path: Path) -> bool:
    return _within(path, str(Path.home())) or not any(_within(path, folder) for folder in _SYSTEM)


def _within(path: Path, folder: str) -> bool:
    return path == Path(folder) or Path(folder) in path.parents


def _without_nested(folders: list[HostFolder]) -> list[HostFolder]:
    """Drop what lies in a folder that is mounted anyway, and sort parents first."""
    kept: list[HostFolder] = []
    for folder in sorted(folders, key=lambda one: (len(Path(one.path).parts), one.read_only)):
        if not any(_within(Path(folder.path), other.path) for other in kept):
            kept.append(folder)
    return kept


def _rank_path(environment: Mapping[str, str]) -> str:
    """Return the user's PATH with the system's folders at its end, each once."""
    own = [folder for folder in environment.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return os.pathsep.join(dict.fromkeys([*own, *system]))
