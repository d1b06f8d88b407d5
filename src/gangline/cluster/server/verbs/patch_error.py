"""The one error of all kinds of patches."""

from __future__ import annotations


class PatchError(ValueError):
    """A patch cannot be read or applied.

    Attributes:
        status: HTTP status to answer: 400 for a patch that is none, 413 for one that makes too much, 422 for
            one that does not fit the object.
    """

    def __init__(self, message: str, *, status: int = 422) -> None:
        super().__init__(message)
        self.status = status
