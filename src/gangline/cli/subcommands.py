"""A command with commands below it, which names the nearest when one is not there."""

from __future__ import annotations

from difflib import get_close_matches

import click

from gangline.errors import UserError


class Subcommands(click.Group):
    """Shows its help without a command, and says of an unknown one which is near, else which there are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help where nothing is asked for."""
        if not (args or ctx.resilient_parsing or self.invoke_without_command):
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; an unknown one is an error with a hint."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
            raise UserError(f"`{ctx.command_path}` has no command `{name}`", hint=hint)
        return super().resolve_command(ctx, args)
