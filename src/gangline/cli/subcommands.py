"""A command with commands below it, which names the nearest when one is not there."""

from __future__ import annotations

from difflib import get_close_matches

import click


class Subcommands(click.Group):
    """Says of an unknown command which one is near, else which there are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; an unknown one is an error with a hint."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
            ctx.fail(f"`{ctx.command_path}` has no command `{name}`\n\nhint: {hint}")
        return super().resolve_command(ctx, args)
