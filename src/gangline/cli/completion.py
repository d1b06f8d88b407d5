"""``gangline completion``: the script that a shell reads to complete commands and options."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: `source <(gangline completion bash)`; put the line into ~/.bashrc to keep it.
    """
    from click.shell_completion import get_completion_class

    from gangline.cli.group import gangline

    found = get_completion_class(shell)
    assert found is not None, "click completes bash, zsh and fish"
    # The class's own source() runs the shell to ask for its version; the script is the same for all of them.
    script = found(gangline, {}, "gangline", "_GANGLINE_COMPLETE")
    print(script.source_template % script.source_vars())
