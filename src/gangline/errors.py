"""Every error that Gangline raises on purpose, in one tree.

::

    GanglineError                 code, exit_code, hint
    ├── UserError                 exit 2   bad input: nothing was created
    │   ├── ManifestError         exit 2   a file cannot be read as a manifest (file, line, column)
    │   └── InvalidObjectError    exit 2   an object breaks rules; carries every field error at once
    ├── ClusterError              exit 3   the API server said no, or cannot be reached
    ├── UnschedulableError        exit 4   the machine or cluster can never hold what was asked for
    └── JobFailedError            exit 1   the job ran and failed; carries the exit code to pass on

A message says what was being done to which object and which rule failed with the value found;
``where`` says the field path or ``file:line:column``; ``hint`` names the next step.
Anything else that escapes is a bug and ends with exit code 70.
"""

from __future__ import annotations

from dataclasses import dataclass, field

EXIT_BUG = 70
EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 and the signal's number."""
EXIT_RESUME = 75
"""EX_TEMPFAIL of sysexits.h, of ranks that saved when they were asked to stop: start it again."""


class GanglineError(Exception):
    """Base of the tree; ``str()`` is the one-line message without the hint, a traceback shows both."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # for programs of users, who see the traceback

    def render(self) -> str:
        """Return the text that the command line prints: message, what belongs to it, place, hint."""
        lines = [f"error[{self.code}]: {self.message}", *self._details()]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)

    def _details(self) -> list[str]:
        return []


class UserError(GanglineError):
    """The input breaks a rule; nothing was created."""

    code = "bad-input"
    exit_code = 2


class ManifestError(UserError):
    """A manifest cannot be read; ``where`` is ``file:line:column``."""

    code = "bad-manifest"


class DuplicateKeyError(ManifestError):
    """A key stands twice in one object.

    Attributes:
        key: the key.
        line: where it stands for the second time, from 1.
    """

    def __init__(self, key: str, line: int, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"the key `{key}` appears twice in one object", where=where, hint=hint)
        self.key = key
        self.line = line


@dataclass(frozen=True, slots=True)
class FieldError:
    """One broken rule of one field, in the words of the Kubernetes API.

    Attributes:
        reason: ``Required``, ``Invalid``, ``NotSupported``, ``Forbidden``, ``Duplicate`` or ``TypeInvalid``.
        path: field path, for example ``spec.mpiReplicaSpecs[Worker].replicas``.
        message: the rule, for people.
        value: the value found, already formatted; empty when there is none.
        where: ``file:line:column`` for a manifest, else empty.
        is_unknown: whether the kind has no such field.
    """

    reason: str
    path: str
    message: str
    value: str = ""
    where: str = ""
    is_unknown: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        found = f" (found `{self.value}`)" if self.value else ""
        place = f" at {self.where}" if self.where else ""
        return f"{self.path}: {self.reason}: {self.message}{found}{place}"


class InvalidObjectError(UserError):
    """An object breaks one or more rules; ``errors`` has all of them, in the order of the fields."""

    code = "invalid-object"

    def __init__(self, subject: str, errors: list[FieldError], *, where: str = "", hint: str = "") -> None:
        count = len(errors)
        noun = "rule" if count == 1 else "rules"
        verb = "break" if " and " in subject else "breaks"
        super().__init__(f"{subject} {verb} {count} {noun}", where=where, hint=hint)
        self.errors = errors

    def _details(self) -> list[str]:
        return [f"  - {error}" for error in self.errors]


class ClusterError(GanglineError):
    """The API server refused a request or could not be reached."""

    code = "cluster"
    exit_code = 3


class UnschedulableError(GanglineError):
    """What was asked for can never fit."""

    code = "unschedulable"
    exit_code = 4


class JobFailedError(GanglineError):
    """The job ran and failed; ``exit_code`` is what the caller's shell should see."""

    code = "job-failed"

    def __init__(self, message: str, *, exit_code: int = 1, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.exit_code = exit_code if 0 < exit_code < 256 else 1
