"""What an error shows, on the command line and in a traceback of a user's program."""

from __future__ import annotations

from traceback import format_exception_only

from gangline.errors import UserError


def test_a_traceback_shows_the_next_step() -> None:
    error = UserError("`RANK=1` is set, but not `WORLD_SIZE`", hint="unset both to train alone")

    assert "".join(format_exception_only(error)) == (
        "gangline.errors.UserError: `RANK=1` is set, but not `WORLD_SIZE`\nhint: unset both to train alone\n"
    )
    assert str(error) == error.message


def test_an_error_without_a_hint_has_no_note() -> None:
    assert not hasattr(UserError("no"), "__notes__")
