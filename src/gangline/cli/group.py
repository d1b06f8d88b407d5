"""The group of all commands, and how an error becomes text and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any

import click

from gangline import __version__
from gangline.cli.commands import ALIASES, ARENAS, COMMANDS, ELSEWHERE, SECTIONS
from gangline.cli.output import is_arena
from gangline.errors import EXIT_BUG, EXIT_INTERRUPTED, GanglineError, UserError

EXIT_BROKEN_PIPE = 141
EXIT_MACHINE = 3
NAME_SHOWN_MAX = 60

_OTHER_FOLDER = "set GANGLINE_HOME to a folder that you can write to, if it is one of Gangline's own"
_FREE_SPACE = "free some space there, or set GANGLINE_HOME to a folder on another disk"
_SURROUNDINGS = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EROFS: _OTHER_FOLDER,
    errno.EACCES: _OTHER_FOLDER,
    errno.EPERM: _OTHER_FOLDER,
    errno.ENOTDIR: _OTHER_FOLDER,
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
    errno.ENFILE: "the whole machine has too many files open",
    errno.ENOMEM: "the machine is out of memory",
}
"""What a machine may refuse to any program, and the way on."""


_WHOLE = (
    "`pip install gangline` brings all that it needs; of the images of services each has what its own needs"
)


class OutputClosedError(Exception):
    """Whoever read standard output went away, as ``head`` does."""


class LazyGroup(click.Group):
    """A group whose commands are imported when called, with help lines from a static table."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed output leaves as our own error, for click would make it exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosedError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every visible command in the order of the table."""
        shown = ARENAS if is_arena() else COMMANDS
        return [name for name in shown if COMMANDS[name].section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name, or ``None``."""
        name = ALIASES.get(cmd_name, cmd_name)
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        module = import_module(f"gangline.cli.{entry.module}")
        command = getattr(module, name.replace("-", "_"), None) or module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; an unknown one is an error that names the nearest."""
        name = args[0]
        if ALIASES.get(name, name) not in (ARENAS if is_arena() else COMMANDS) and not name.startswith("-"):
            raise UserError(f"no such command `{name}`", hint=_instead_of(name, args[1:]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for section in SECTIONS:
            names = [name for name in self.list_commands(ctx) if COMMANDS[name].section == section]
            if names:
                with formatter.section(section):
                    formatter.write_dl([(name, COMMANDS[name].summary) for name in names], col_max=14)


def _instead_of(name: str, words: list[str]) -> str:
    """Return what to do instead of a command that is not there: which does it, else the nearest."""
    from difflib import get_close_matches

    if name in COMMANDS:
        return f"it is one of Gangline's own: {' '.join(['gangline', name, *words])}"
    if line := ELSEWHERE.get(name):
        job = next((word for word in reversed(words) if not word.startswith("-")), "NAME")
        return line.replace("NAME", job)
    known = [known for known, entry in COMMANDS.items() if entry.section]
    near = get_close_matches(name, known, n=1)
    return f"did you mean `{near[0]}`?" if near else "see `gangline --help`"


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with: gangline run -n 2 -- python train.py",
)
@click.version_option(__version__, "-V", "--version", message="gangline %(version)s")
def gangline() -> None:
    """Run synchronous distributed training from one file, on this machine or any Kubernetes."""


def invoke(argv: list[str], program: str = "gangline") -> int:
    """Run one command line and return its exit code; every error is printed on standard error."""
    if not argv or argv[0] == "help":  # `gangline help run` reads as in other tools
        argv = [*argv[1:2], "--help"]
    try:
        outcome: Any = gangline.main(args=argv, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except GanglineError as error:
        error.hint = error.hint or _hint_for(error)
        print(error.render(), file=sys.stderr)
        return error.exit_code
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as error:
        return _show_usage(error)
    except click.ClickException as error:
        print(f"error[bad-input]: {error.format_message()}", file=sys.stderr)
        return 2
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (BrokenPipeError, OutputClosedError):
        _close_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno == errno.ENOENT and _is_folder_gone():
            print(
                "error[machine]: the current folder is gone\n\nhint: go to another one: cd", file=sys.stderr
            )
            return EXIT_MACHINE
        if error.errno == errno.ENAMETOOLONG and error.filename:
            name = os.fsdecode(error.filename)[:NAME_SHOWN_MAX]
            print(f"error[bad-input]: `{name}…` is too long for the name of a file", file=sys.stderr)
            return 2
        if error.errno not in _SURROUNDINGS:
            return _show_bug()
        return _show_surroundings(error)
    except ModuleNotFoundError as error:
        if (error.name or "gangline").partition(".")[0] == "gangline":
            return _show_bug()
        print(
            f"error[missing]: this needs the Python module {error.name}, which is not installed\n\n"
            f"hint: {_WHOLE}",
            file=sys.stderr,
        )
        return EXIT_MACHINE
    except Exception:  # noqa: BLE001 - the outermost boundary: whatever escapes is a bug and is said to be one
        return _show_bug()


def _hint_for(error: GanglineError) -> str:
    """Return the way on from what any command may hear of the API server."""
    details: dict[str, Any] = getattr(error, "details", {})  # of a Status; its class is not loaded for this
    if details.get("kind") == "namespaces" and getattr(error, "reason", "") == "NotFound":
        name = details.get("name")
        return f"make it with `kubectl create namespace {name}`, or with a Namespace object in your manifest"
    return ""


def _show_usage(error: click.UsageError) -> int:
    message = error.format_message().replace("\n\t", " ")  # click puts each choice on a line of its own
    print(f"error[bad-input]: {message}", file=sys.stderr)
    if error.ctx is not None:
        path = error.ctx.command_path
        print(f"\nhint: see `{path} --help`", file=sys.stderr)
    return 2


def _close_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush is quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_folder_gone() -> bool:
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _show_surroundings(error: OSError) -> int:
    """Say what the machine refused; that is no bug of ours, and no traceback helps."""
    place = f"use `{error.filename}`" if error.filename else "write the output, or a file"
    hint = _SURROUNDINGS[error.errno or 0]
    print(f"error[machine]: cannot {place}: {error.strerror}\n\nhint: {hint}", file=sys.stderr)
    _close_output_that_cannot_be_written()
    return EXIT_MACHINE


def _close_output_that_cannot_be_written() -> None:
    """Drop what standard output still holds, or the interpreter's last flush changes the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        _close_output()


def _show_bug() -> int:
    import traceback

    traceback.print_exc()
    print(
        "error[bug]: gangline met an error that it does not know\n\n"
        "hint: report it with the text above and the output of `gangline version`",
        file=sys.stderr,
    )
    return EXIT_BUG
