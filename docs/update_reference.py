"""Write `docs/reference/cli.md` again from the commands themselves: `python docs/update_reference.py`."""

import inspect
from pathlib import Path

import click

from gangline.cli.commands import ALIASES, COMMANDS, SECTIONS
from gangline.cli.group import gangline

TARGET = Path(__file__).parent / "reference" / "cli.md"
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


if __name__ == "__main__":
    TARGET.write_text(reference())
