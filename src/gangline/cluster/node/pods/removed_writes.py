"""Tells what a pod wrote to places that go with it: found by its shim, or in what a dead shim has left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gangline.cluster.node.shim.removed_writes import EndedContainer, look
from gangline.cluster.node.shim_client import ShimError
from gangline.units import format_bytes

if TYPE_CHECKING:
    from gangline.cluster.node.pods.sandbox import Sandbox

FOLDERS_SHOWN_MAX = 3


async def describe_writes(
    sandbox: Sandbox, containers: Sequence[str] = (), *, goes_with: str = "the pod"
) -> str:
    """Return what to say of what ended containers wrote; empty when it is not worth a word.

    Args:
        sandbox: of the pod; it is still there.
        containers: their names, none for all.
        goes_with: in words, with what it goes.
    """
    found: dict[str, Any] = {}
    try:
        if sandbox.shim is not None:
            found = await sandbox.shim.call("writes", containers=list(containers))
    except ShimError:
        pass  # it has died: only what lies on the disk is left
    if not found:
        known = sandbox.folder / "containers"
        names = containers or [path.name for path in known.iterdir()] if known.is_dir() else []
        ended = [EndedContainer(name, None, None) for name in names]
        found = await asyncio.to_thread(look, str(sandbox.folder), ended)
    return words(found["folders"], is_cut=found["is_cut"], goes_with=goes_with)


def words(folders: Sequence[dict[str, Any]], *, is_cut: bool, goes_with: str) -> str:
    """Return the sentence for folders with their bytes, the largest first; empty for none. Pure.

    Example:
        >>> words([{"path": "/results", "bytes": 1_200_000_000}], is_cut=False, goes_with="the pod")
        'wrote 1.1 GiB to /results, which is removed with the pod: mount a volume'
    """
    if not folders:
        return ""
    least = "at least " if is_cut else ""
    parts = [f"{least}{format_bytes(one['bytes'])} to {one['path']}" for one in folders[:FOLDERS_SHOWN_MAX]]
    if (more := len(folders) - len(parts)) > 0:
        parts.append(f"to {more} more folder{'' if more == 1 else 's'}")
    text = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return (
        f"wrote {text}, which {'is' if len(folders) == 1 else 'are'} removed with {goes_with}: mount a volume"
    )
