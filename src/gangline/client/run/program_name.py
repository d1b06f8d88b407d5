"""The job of a program under the name of its run: the one given, else the first that no run has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec

from gangline.api.codec import Document
from gangline.client.run.gpus import COMMAND_LINE
from gangline.client.run.program_session import HandOver, no_handover
from gangline.cluster.runs.history import History
from gangline.cluster.runs.names import names_after
from gangline.cluster.runs.record import PROGRAM_ANNOTATION, program_text

Obj = dict[str, Any]


class ProgramJob(msgspec.Struct, frozen=True):
    """A job that is still to be named.

    Attributes:
        program: words behind ``--``.
        name: as the user gave it, None for one that Gangline finds.
        base: the script's name.
        build: the MPIJob of a name.
        hand_over: is called with the job that was created.
    """

    program: Sequence[str]
    name: str | None
    base: str
    build: Callable[[str], Obj]
    hand_over: HandOver = no_handover

    def document(self, name: str = "") -> Document:
        """Return the job under that name, or the one that it has while no cluster is asked."""
        job = self.build(name or self.name or self.base)
        annotations = job["metadata"].setdefault("annotations", {})
        annotations[PROGRAM_ANNOTATION] = program_text(tuple(self.program))
        return Document(job, file=COMMAND_LINE)

    def names(self, history: History, namespace: str) -> Iterator[str]:
        """Yield the names to try: the given one for ever, else those that no run of the history has."""
        if self.name:
            return repeat(self.name)
        taken = {file.name for file in history.files() if file.namespace == namespace}
        return names_after(self.base, taken)
