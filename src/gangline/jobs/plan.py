"""What a job controller wants done, as values that can be printed, compared and replayed.

A plan is carried out stage by stage; the actions of one stage are independent and run at the same time. The
status goes out beside the first stage: it says what was observed, not what the actions will bring. The first
one goes out behind the last stage, and behind the children of jobs that have none yet: who reads ``Created``
finds the PodGroup and all else, as with upstream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.api.resources import Resource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """An event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Telling:
    """What is told of an action.

    Attributes:
        done: once it is done.
        refused: reason of the warning when the server refuses it.
    """

    done: Emit
    refused: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; that it exists already is fine only if the job owns it."""

    resource: Resource
    object: Object
    telling: Telling | None = None


@dataclass(frozen=True, slots=True)
class EnsureKeyPair:
    """Give a Secret a fresh ssh key pair.

    Attributes:
        secret: the Secret in wire form; its ``data`` lacks the pair.
        exists: whether it is there already and only its data is wrong.
        has_certificate: whether a certificate of the key belongs to it.
        private_key: of the pair that is to stay, base64, where its certificate alone is missing.
    """

    secret: Object
    exists: bool = False
    has_certificate: bool = False
    private_key: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge a patch into an object or one of its subresources."""

    resource: Resource
    namespace: str
    name: str
    body: Object
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one object, by uid, so that never a successor of the same name is meant."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    telling: Telling | None = None


Action = Create | EnsureKeyPair | Patch | Delete


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one look at a job leads to.

    Attributes:
        stages: actions; a stage starts after the one before has succeeded.
        status: the whole new status in wire form; None when it stays as it is.
        status_patch: merge patch from the old status to the new one.
        events: sent after the status is written.
        warnings: sent at once, and again only after they have ceased.
        counts: which counters grow once the status is written: ``created``, ``successful``, ``failed``.
        requeue_after_s: look again after so many seconds; None waits for a change.
    """

    stages: tuple[tuple[Action, ...], ...] = ()
    status: Object | None = None
    status_patch: Object = field(default_factory=dict)
    events: tuple[Emit, ...] = ()
    warnings: tuple[Emit, ...] = ()
    counts: tuple[str, ...] = ()
    requeue_after_s: float | None = None

    @property
    def is_first(self) -> bool:
        """Whether the job is seen for the first time."""
        return "created" in self.counts

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions in order."""
        return tuple(action for stage in self.stages for action in stage)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.stages or self.status is not None or self.events or self.warnings)


def merge_patch_between(old: Object, new: Object) -> Object:
    """Return the JSON merge patch (RFC 7386) that turns ``old`` into ``new``; empty when they are equal."""
    patch: Object = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch_between(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
