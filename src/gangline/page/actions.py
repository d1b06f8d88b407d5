"""What the page does with jobs, and what it answers; each is what a command line does too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gangline.api.codec import Document, load_documents
from gangline.client.manifests import KNOWN, check_manifests, in_order, with_namespace
from gangline.errors import FieldError, GanglineError, InvalidObjectError, ManifestError, UserError
from gangline.jobs.job_changes import WORKERS_MAX, Change, scaling, suspension
from gangline.kube.discovery import resource_for
from gangline.page.live import listed_kinds
from gangline.page.rows import job_key

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient
    from gangline.page.program import Programs
    from gangline.page.sessions import Surroundings

Obj = dict[str, Any]

MANIFEST_CHARS_MAX: Final = 1_000_000
restart_timeout_s: Final = 120.0
restart_look_s: Final = 0.2


class Actions:
    """Does what a user asks of the page.

    Args:
        client: with the user's own rights.
        is_local: whether it is the one-machine cluster, whose kinds are known.
        programs: starts programs; None where there are no files of the user.
    """

    def __init__(self, client: ObjectClient, *, is_local: bool, programs: Programs | None = None) -> None:
        self._client, self._is_local, self._programs = client, is_local, programs
        self._known: dict[str, Callable[[Obj], Awaitable[Obj]]] = {
            "check": self._check,
            "create": self._create,
            "delete": self._delete,
            "suspend": self._suspend,
            "resume": self._resume,
            "scale": self._scale,
            "restart": self._restart,
        }

    async def do(self, name: str, body: Obj, around: Surroundings) -> Obj:
        """Do one thing; return whether it was done, and the sentence that the page shows."""
        action = self._known.get(name)
        if name == "start" and self._programs is not None:
            action = partial(self._programs.start, around=around)
        if action is None:
            return {"ok": False, "message": f"the page knows no action `{name}`"}
        try:
            return await action(body)
        except InvalidObjectError as error:
            return {"ok": False, "message": error.message, "errors": [_error(one) for one in error.errors]}
        except ManifestError as error:
            line = _line_of(error.where)
            return {
                "ok": False,
                "message": error.message,
                "errors": [{"line": line, "path": "", "message": error.hint}],
            }
        except GanglineError as error:
            hint = f" ({error.hint})" if error.hint else ""
            return {"ok": False, "message": f"{error.message}{hint}"}

    def _read(self, body: Obj) -> list[Document]:
        text = _text(body, "manifest")
        if len(text) > MANIFEST_CHARS_MAX:
            raise UserError(f"the manifest has {len(text)} characters, the page takes {MANIFEST_CHARS_MAX}")
        documents = load_documents(text, file="manifest")
        if not documents:
            raise UserError("there is no object in it", hint="a manifest has `apiVersion:` and `kind:`")
        documents = with_namespace(documents, self._client.connection.namespace)
        check_manifests(documents, is_local=self._is_local)
        return in_order(documents)

    async def _each(self, documents: list[Document], *, dry_run: bool) -> None:
        for document in documents:
            resource = KNOWN.get((document.api_version, document.kind))
            if resource is None:
                resource = await resource_for(self._client, document.api_version, document.kind)
            await self._client.create(resource, document.value, dry_run=dry_run)

    async def _check(self, body: Obj) -> Obj:
        documents = self._read(body)
        await self._each(documents, dry_run=True)
        names = ", ".join(f"{one.kind} {one.name}" for one in documents)
        return {"ok": True, "message": f"The server would take {names}."}

    async def _create(self, body: Obj) -> Obj:
        documents = self._read(body)
        await self._each(documents, dry_run=True)  # all of them or none
        await self._each(documents, dry_run=False)
        jobs = [one for one in documents if one.kind in {kind.name for kind in listed_kinds()}]
        key = ""
        if jobs:
            last = jobs[-1]
            key = job_key(last.kind, last.value["metadata"]["namespace"], last.name)
        return {"ok": True, "message": f"Created {', '.join(one.name for one in documents)}.", "key": key}

    async def _find(self, body: Obj) -> tuple[Any, Obj]:
        kind, _, rest = _text(body, "key").partition("/")
        namespace, _, name = rest.partition("/")
        resource = next((one.resource for one in listed_kinds() if one.name.lower() == kind), None)
        if resource is None:
            raise UserError(f"no kind of jobs is called `{kind}`")
        found = await self._client.get(resource, name, namespace)
        return resource, {**found, "kind": resource.kind}

    async def _delete(self, body: Obj) -> Obj:
        resource, job = await self._find(body)
        metadata = job["metadata"]
        await self._client.delete(resource, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        return {"ok": True, "message": f"Deleted {metadata['name']}."}

    async def _patch(self, body: Obj, patch_of: Change, what: str) -> Obj:
        resource, job = await self._find(body)
        metadata, patch = job["metadata"], patch_of(job)
        if patch is None:
            raise UserError(f"a {job['kind']} cannot be {what}")
        await self._client.patch(resource, metadata["name"], patch, metadata["namespace"])
        return {"ok": True, "message": f"{metadata['name']} is {what}."}

    async def _suspend(self, body: Obj) -> Obj:
        return await self._patch(body, lambda job: suspension(job, is_wanted=True), "suspended")

    async def _resume(self, body: Obj) -> Obj:
        return await self._patch(body, lambda job: suspension(job, is_wanted=False), "resumed")

    async def _scale(self, body: Obj) -> Obj:
        replicas = body.get("replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool) or not 0 <= replicas <= WORKERS_MAX:
            raise UserError(f"the number of pods must be 0 to {WORKERS_MAX} (found `{replicas}`)")
        return await self._patch(body, lambda job: scaling(job, replicas), f"scaled to {replicas}")

    async def _restart(self, body: Obj) -> Obj:
        """Suspend a job, wait until its pods are gone, and let it go on: they start whole again."""
        from gangline.client.jobs.job_lookup import pods_of

        await self._suspend(body)
        try:
            async with asyncio.timeout(restart_timeout_s):
                while True:
                    _, job = await self._find(body)
                    phases = [
                        (pod.get("status") or {}).get("phase") for pod in await pods_of(self._client, job)
                    ]
                    if all(phase in ("Succeeded", "Failed") for phase in phases):
                        break
                    await asyncio.sleep(restart_look_s)
        except TimeoutError:
            raise UserError(
                f"its pods did not end within {restart_timeout_s:g} s: the job is suspended",
                hint="Resume lets it go on",
            ) from None
        await self._resume(body)
        return {"ok": True, "message": "Its pods start again."}


def _text(body: Obj, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise UserError(f"`{name}` must be a text")
    return value


def _error(error: FieldError) -> Obj:
    found = f" (found `{error.value}`)" if error.value else ""
    return {"line": _line_of(error.where), "path": error.path, "message": f"{error.message}{found}"}


def _line_of(where: str) -> int:
    """Return the line of a place such as ``manifest:7:3``; 0 where none is known."""
    parts = where.rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
