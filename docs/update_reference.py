"""Write the pages of the commands and of the Python client again: `python docs/update_reference.py`.

`docs/reference/cli.md` is made of the commands, `docs/reference/python-client.md` of the docstrings.
"""

import inspect
from pathlib import Path

import click

from gangline import client
from gangline.cli.commands import ALIASES, COMMANDS, SECTIONS
from gangline.cli.group import gangline

TARGET = Path(__file__).parent / "reference" / "cli.md"
CLIENT_TARGET = TARGET.with_name("python-client.md")
CLIENT_HEAD = """# The Python client

<!-- Written by docs/update_reference.py; do not edit. -->

What [Jobs from Python](../guides/python-client.md) shows, name by name: all are in `gangline.client`, some in
`gangline`. Errors besides those named here are in `gangline.errors`; each has a `hint`.
"""
HEAD = """# Command line

<!-- Written by docs/update_reference.py; do not edit. -->

Every command answers `--help`. Exit codes stand in [Exit codes](exit-codes.md).
"""


def option_row(option: click.Option) -> str:
    """Return one line of the table of options: names, value, help."""
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = ""
    if isinstance(option.type, click.Choice):
        value = " `" + "\\|".join(str(choice) for choice in option.type.choices) + "`"
    elif not option.is_flag and not option.count:
        value = f" `{option.metavar or option.type.name.upper()}`"
    words = (option.help or "").replace("|", "\\|").replace("\n", " ")
    return f"| {names}{value} | {words} |"


def prose(text: str) -> str:
    """Return a command's help in Markdown; paragraphs that click leaves as they are become code."""
    paragraphs = inspect.cleandoc(text).split("\f")[0].strip().split("\n\n")
    return "\n\n".join(
        "```\n" + part.removeprefix("\b\n") + "\n```" if part.startswith("\b\n") else part
        for part in paragraphs
    )


def command_text(name: str, command: click.Command) -> str:
    """Return the section of one command: usage, its words, its options."""
    context = click.Context(command, info_name=f"gangline {name}")
    usage = " ".join([context.info_name or "", *command.collect_usage_pieces(context)])
    lines = [f"### gangline {name}", "", "```", usage, "```", ""]
    if aliases := [f"`{alias}`" for alias, target in ALIASES.items() if target == name]:
        lines += [f"Short: {', '.join(aliases)}.", ""]
    lines += [prose(command.help or ""), ""]
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        lines += ["| option | |", "|---|---|", *(option_row(option) for option in options), ""]
    return "\n".join(lines)


def reference() -> str:
    """Return the whole page."""
    context = click.Context(gangline)
    parts = [HEAD]
    for section in SECTIONS:
        parts.append(f"## {section}\n")
        for name, entry in COMMANDS.items():
            if entry.section == section:
                command = gangline.get_command(context, name)
                assert command is not None
                parts.append(command_text(name, command))
                if isinstance(command, click.Group):
                    parts += [
                        command_text(f"{name} {sub}", command.commands[sub]) for sub in command.commands
                    ]
    return "\n".join(parts).rstrip() + "\n"


def described(text: str) -> str:
    """Return a docstring in Markdown: its sections as lists, the rest as it is."""
    lines, is_item = [], False
    for line in inspect.cleandoc(text).splitlines():
        section = line in ("Args:", "Attributes:", "Raises:", "Returns:")
        if section:
            lines += [f"*{line}*", ""]
            is_item = True
        elif not line.strip():
            lines.append("")
            is_item = False
        elif is_item and line.startswith("    ") and not line.startswith("     "):
            lines.append(f"- {line.strip()}")
        else:
            lines.append(f"  {line.strip()}" if is_item else line)
    return "\n".join(lines)


def signature_of(name: str, function: object) -> str:
    """Return how a function is called; what it belongs to is left out."""
    found = inspect.signature(function)  # type: ignore[arg-type]
    kept = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    kept = [one for one in kept if one.name != "self"]
    defaults = {"on_standard_output", "on_standard_error"}
    kept = [
        one.replace(default=...) if getattr(one.default, "__name__", "") in defaults else one for one in kept
    ]
    words = str(found.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return f"{name}{words.replace('Ellipsis', '...')}"


def returns_coroutine(function: object) -> bool:
    """Whether a plain function is to be awaited."""
    found = inspect.signature(function)  # type: ignore[arg-type]
    return str(found.return_annotation).startswith("Awaited[")


def class_text(name: str, found: type) -> str:
    """Return the section of one class: what it is, and its public methods."""
    parts = [f"## {name}", "", described(found.__doc__ or ""), ""]
    ours = [one for one in reversed(found.__mro__) if one.__module__.startswith(client.__name__)]
    members = {key: value for one in ours for key, value in vars(one).items()}
    for method, value in members.items():
        if method.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
            continue
        is_property = isinstance(value, property)
        title = method if is_property else signature_of(method, value)
        if inspect.iscoroutinefunction(value) or (not is_property and returns_coroutine(value)):
            title = f"await {title}"
        parts += [f"### {name}.{method}", "", f"```python\n{title}\n```", ""]
        parts += [described(value.__doc__ or ""), ""]
    return "\n".join(parts)


def client_reference() -> str:
    """Return the page of the Python client."""
    first = ["Client", "JobHandle"]
    names = [*first, *(name for name in client.__all__ if name not in first)]
    parts = [CLIENT_HEAD, *(class_text(name, getattr(client, name)) for name in names)]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
    CLIENT_TARGET.write_text(client_reference())
