"""The form of the page that starts a program, as `gangline run -n N -- PROGRAM` does."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.client.async_client import AsyncClient
from gangline.client.run.call import Call, RunOptions
from gangline.errors import UserError
from gangline.launch.program import code_folder, find_program
from gangline.page.rows import job_key

if TYPE_CHECKING:
    from gangline.client.target import ClusterTarget
    from gangline.page.sessions import Surroundings

Obj = dict[str, Any]

WORDS_CHARS_MAX: Final = 100_000


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in the form; what is empty is left to the client.

    Attributes:
        program: as one types it behind `--`; quotes are a shell's, and nothing is put in for variables.
        folder: in which the ranks start.
    """

    program: str
    ranks: int = 1
    folder: str = ""
    name: str = ""
    nodes: int = 0
    gpus_per_rank: int = 0
    image: str = ""


class Programs:
    """Starts programs on a cluster through the Python client.

    Args:
        target: the cluster.
    """

    def __init__(self, target: ClusterTarget) -> None:
        self._target = target

    async def start(self, body: Obj, around: Surroundings) -> Obj:
        """Start what a form asks for, in the terminal's surroundings; the job goes on by itself.

        Returns:
            Whether it was done, the sentence that the page shows, errors by their fields, the job's key.
        """
        try:
            form = msgspec.convert(body, Form)
        except msgspec.ValidationError as error:
            raise UserError(f"the form cannot be read: {error}") from None
        words, errors = self._check(form, around)
        if errors:
            return {"ok": False, "message": "It cannot be started so.", "errors": errors}
        said: list[str] = []
        target = self._target
        client = AsyncClient(
            cluster=target.cluster if target.is_local else "",
            context=target.context or "",
            kubeconfig=target.kubeconfig or "",
            namespace=target.namespace,
            say=said.append,
        )
        options: RunOptions = {"cwd": self._folder(form, around), "gpus_per_rank": form.gpus_per_rank}
        if target.is_local:
            options["env"] = around.environment
        for name in ("name", "nodes", "image"):
            if value := getattr(form, name):
                options[name] = value
        job = await client.start(words, form.ranks, **options)
        sentence = " ".join([f"Started {job.name}.", *said])
        return {"ok": True, "message": sentence, "key": job_key(job.kind, job.namespace, job.name)}

    def _folder(self, form: Form, around: Surroundings) -> Path:
        return Path(around.folder or "~").expanduser() / Path(form.folder).expanduser()

    def _check(self, form: Form, around: Surroundings) -> tuple[list[str], list[Obj]]:
        """Return the words of the program, and every error that is known before anything is started."""
        errors = []

        def note(field: str, error: UserError) -> None:
            hint = f" ({error.hint})" if error.hint else ""
            errors.append({"line": 0, "path": field, "message": f"{error.message}{hint}"})

        folder = self._folder(form, around)
        try:
            folder = code_folder(folder)
        except UserError as error:
            note("folder", error)
        words: list[str] = []
        try:
            words = _words(form.program)
            if self._target.is_local:
                find_program(words[0], folder, {**os.environ, **around.environment})
        except UserError as error:
            note("program", error)
        asked = Call(ranks=form.ranks, nodes=form.nodes, name=form.name, gpus_per_rank=form.gpus_per_rank)
        for field, problem in asked.problems():
            note(field, problem)
        return words, errors


def _words(text: str) -> list[str]:
    if len(text) > WORDS_CHARS_MAX:
        raise UserError(f"a program has at most {WORDS_CHARS_MAX} characters (found {len(text)})")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"the words cannot be told apart: {error}") from None
    if not words:
        raise UserError("no program is named", hint="python train.py")
    return words
