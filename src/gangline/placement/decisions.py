"""What a scheduling pass decides: values that can be printed, compared and replayed."""

from __future__ import annotations

import msgspec


class Binding(msgspec.Struct, frozen=True):
    """One pod goes to one node."""

    pod: str
    uid: str
    node: str


class Unschedulable(msgspec.Struct, frozen=True):
    """One pod fits nowhere; ``message`` says why, in the wording of Kubernetes."""

    pod: str
    uid: str
    message: str


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one pass, in the order in which the pods were considered."""

    bindings: tuple[Binding, ...] = ()
    unschedulable: tuple[Unschedulable, ...] = ()
