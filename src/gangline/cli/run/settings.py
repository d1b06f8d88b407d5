"""Options of ``gangline run --context`` that a folder keeps, in ``gangline.toml`` or ``pyproject.toml``.

    image = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
    claim = ["data:/data:ro"]

    [context.my-cluster]
    queue = "team"

In pyproject.toml they stand in ``[tool.gangline]``. The keys are the names of options. Those of the context
come before the others, the command line before both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from gangline.errors import UserError

FILES = ("gangline.toml", "pyproject.toml")
"""The first that says something is used; they do not add up."""
NOT_KEPT = ("help", "context", "kubeconfig", "cluster", "dry-run", "output", "name", "try", "yes")

Value = str | int | bool | list[str]


def kept_options(folder: Path, context: str, parameters: Sequence[click.Parameter]) -> dict[str, Value]:
    """Return what a folder says of options, by the name of the parameter; empty where it says nothing.

    Args:
        folder: where the files are looked for.
        context: of the kubeconfig; empty for its current one.
        parameters: of the command.

    Raises:
        UserError: a file cannot be read, has keys that are no options, or values of another kind.
    """
    for name in FILES:
        file = folder / name
        if file.is_file() and (table := _table(file)):
            return _read(file, table, context, parameters)
    return {}


def context_of(line: Sequence[str]) -> str:
    """Return the value of ``--context`` of a line that is not parsed yet; empty without one."""
    for word, following in zip(line, [*line[1:], ""], strict=True):
        if word == "--context":
            return following
        if word.startswith("--context="):
            return word.partition("=")[2]
    return ""


def _table(file: Path) -> Mapping[str, object]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        if file.name == FILES[1]:
            return {}  # it belongs to other tools, which say so
        raise UserError(f"cannot read {file}: {error}") from None
    return found if file.name == FILES[0] else found.get("tool", {}).get("gangline", {})


def _read(
    file: Path, table: Mapping[str, object], context: str, parameters: Sequence[click.Parameter]
) -> dict[str, Value]:
    known = {
        option.removeprefix("--"): parameter
        for parameter in parameters
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--") and option.removeprefix("--") not in NOT_KEPT
    }
    contexts = table.get("context", {})
    own = contexts.get(context, {}) if isinstance(contexts, dict) else {}
    said = {key: value for key, value in table.items() if key != "context"} | own
    values: dict[str, Value] = {}
    problems: list[str] = []
    for key, value in said.items():
        parameter = known.get(key)
        if parameter is None:
            near = get_close_matches(key, known, 1)
            problems.append(
                f"{key}: no option of `gangline run`" + (f", is --{near[0]} meant?" if near else "")
            )
        elif problem := _problem(parameter, value):
            problems.append(f"{key}: {problem} (found `{value}`)")
        elif parameter.name:
            values[parameter.name] = [value] if parameter.multiple and isinstance(value, str) else value
    if problems:
        raise UserError(f"cannot use {file}:\n" + "\n".join(f"  {problem}" for problem in problems))
    return values


def _problem(option: click.Option, value: object) -> str:
    """Return what a value should be, where it is something else."""
    if option.multiple:
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return "" if is_list or isinstance(value, str) else "write a string, or a list of them"
    if option.is_flag:
        return "" if isinstance(value, bool) else "write true or false"
    return (
        "" if isinstance(value, str | int) and not isinstance(value, bool) else "write a string or a number"
    )
