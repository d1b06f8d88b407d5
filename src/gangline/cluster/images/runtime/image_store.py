"""What a container runtime offers: images by name, as folders. And how its commands are run."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gangline.cluster.images.image import Image, find_homes, find_user, read_config

ASK_TIMEOUT_S = 20.0
PULL_TIMEOUT_S = 3600.0
"""Images for training have 10 GB and more."""

OCI_RUNTIMES = ("runc", "crun")
_MESSAGE_CHARS_MAX = 1000


class RuntimeFailedError(Exception):
    """A runtime could not do what it was asked for; the message is its own, in one line."""


class ImageStore(Protocol):
    """The images of one runtime. Methods may run at the same time for different images."""

    name: str

    async def open(self) -> None:
        """Start what it needs; the other methods do so by themselves.

        Raises:
            RuntimeFailedError: it does not start.
        """

    async def find(self, reference: str) -> Image | None:
        """Return an image that is here already, None when it is not.

        Raises:
            RuntimeFailedError: the runtime does not answer, or has no folders for the image.
        """

    async def pull(self, reference: str) -> None:
        """Fetch an image from its registry, or what is new of it; takes up to ``PULL_TIMEOUT_S``.

        Raises:
            RuntimeFailedError: it cannot be had.
        """

    async def close(self) -> None:
        """End what was started for it; running containers stay."""


async def run_command(
    words: Sequence[str], *, timeout_s: float = ASK_TIMEOUT_S, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program and return its standard output. Cancelling ends it.

    Raises:
        RuntimeFailedError: it is not here, takes too long or fails; with the last line that it wrote.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
    except OSError as error:
        raise RuntimeFailedError(f"{words[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        raise RuntimeFailedError(f"`{words[0]}` did not end within {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeFailedError(last_line(err.decode(errors="replace")) or f"exit code {process.returncode}")
    return out.decode(errors="replace")


def last_line(text: str) -> str:
    """Return the last line with something in it: where the programs of runtimes say what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MESSAGE_CHARS_MAX] if lines else ""


def find_oci_runtime() -> str:
    """Return the program that runs containers, empty when there is none."""
    return next((path for name in OCI_RUNTIMES if (path := shutil.which(name))), "")


def make_image(reference: str, layers: Sequence[str], config: Mapping[str, Any]) -> Image:
    """Return an image from its folders, the top one first, and its configuration.

    Raises:
        RuntimeFailedError: its user has no entry in its own /etc/passwd.
    """
    settings, env = read_config(config)
    passwd = _read(layers, "etc/passwd")
    user = find_user(settings.user, passwd, _read(layers, "etc/group"))
    if user is None:
        raise RuntimeFailedError(f'no user "{settings.user}" in the /etc/passwd of image "{reference}"')
    return Image(
        reference,
        env=env,
        layers=tuple(layers),
        is_whole=True,
        config=settings,
        user=user,
        homes=find_homes(passwd),
        oci_runtime=find_oci_runtime(),
    )


def _read(layers: Sequence[str], name: str) -> str:
    for layer in layers:
        path = Path(layer, name)
        try:
            if path.is_file() and not path.is_symlink():
                return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return ""
