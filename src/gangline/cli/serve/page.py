"""``serve-page``: the process of a cluster's web page, and how a command finds or starts it.

One for each cluster of a user, whatever kubeconfig leads there. It writes where it listens, and a secret by
which a command may ask it for a link, into a file that only the user can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from gangline.cli.options.target import target_options
from gangline.client.target import ClusterTarget, open_client
from gangline.cluster.daemon.daemon import log_tail, spawn_daemon
from gangline.cluster.process_lock import ProcessLock, read_lock
from gangline.errors import ClusterError, UserError

if TYPE_CHECKING:
    from gangline.cluster.paths import ClusterPaths
    from gangline.page.server import PageServer


class PageFacts(msgspec.Struct, frozen=True):
    """Where a page listens, and by which secret a command asks it for a link."""

    port: int
    secret: str
    pid: int


PROCESS: Final = "page"
start_timeout_s: Final = 20.0
start_look_s: Final = 0.02
answer_timeout_s: Final = 5.0
idle_end_s: Final = 600.0
idle_look_s: Final = 5.0


def page_link(target: ClusterTarget, port: int) -> str:
    """Return a link that opens the page once; the page's process is started where it does not run.

    Raises:
        ClusterError: it does not start, or does not answer.
    """
    paths, name = target.kept, _process(target)
    paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ProcessLock(paths.lock(f"{name}-start")) as starting:
        if not starting.acquire(timeout_s=start_timeout_s):
            raise ClusterError(
                f"the page of {target.title} is being started already", hint="`gangline page` again"
            )
        if read_lock(paths.lock(name)).state != "held":
            _start(target, paths, name, port)
        facts = _wait_for_facts(target, paths, name)
    if port not in (0, facts.port):
        raise UserError(
            f"--port {port}: the page of {target.title} listens on {facts.port} already",
            hint=f"leave the option out, or end it first: kill {facts.pid}",
        )
    token = _ask_for_token(facts.port, facts.secret)
    return f"http://127.0.0.1:{facts.port}/enter?token={token}"


def _process(target: ClusterTarget) -> str:
    """Return the name of the page's process: one for each way to a cluster, as each has rights of its own."""
    if target.is_local and not target.namespace:
        return PROCESS
    way = "\0".join([*_target_words(target), os.environ.get("KUBECONFIG", "")])
    return f"{PROCESS}-{hashlib.sha256(way.encode()).hexdigest()[:12]}"


def _facts(paths: ClusterPaths, name: str) -> Path:
    return paths.state / f"{name}.json"


def _start(target: ClusterTarget, paths: ClusterPaths, name: str, port: int) -> None:
    """Start the process, and wait until it holds its lock."""
    words = ["serve-page", "--port", str(port), *_target_words(target)]
    process = spawn_daemon(paths, name, words)
    until = time.monotonic() + start_timeout_s
    while read_lock(paths.lock(name)).state != "held":
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise _not_started(target, paths, name)
        time.sleep(start_look_s)


def _wait_for_facts(target: ClusterTarget, paths: ClusterPaths, name: str) -> PageFacts:
    """Return where the process listens; it removes what an older one wrote before it writes."""
    until = time.monotonic() + start_timeout_s
    while read_lock(paths.lock(name)).state == "held" and time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            found = msgspec.json.decode(_facts(paths, name).read_bytes(), type=PageFacts)
            if found.pid == read_lock(paths.lock(name)).pid:
                return found
        time.sleep(start_look_s)
    raise _not_started(target, paths, name)


def _not_started(target: ClusterTarget, paths: ClusterPaths, name: str) -> ClusterError:
    tail = "\n".join(log_tail(paths.log(name), 5))
    return ClusterError(
        f"the page of {target.title} did not start: {tail}", hint=f"its log is {paths.log(name)}"
    )


def _target_words(target: ClusterTarget) -> list[str]:
    words = []
    if target.kubeconfig is not None:
        words += ["--kubeconfig", str(target.kubeconfig.absolute())]
    if target.context is not None:
        words += ["--context", target.context]
    if target.is_local:
        words += ["--cluster", target.cluster]
    return words + (["-n", target.namespace] if target.namespace else [])


def _ask_for_token(port: int, secret: str) -> str:
    from gangline.page.guard import LINK_PATH
    from gangline.page.sessions import Surroundings

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=answer_timeout_s)
    try:
        around = Surroundings(str(Path.cwd()), dict(os.environ))
        headers = {"Authorization": f"Bearer {secret}"}
        connection.request("POST", LINK_PATH, msgspec.json.encode(around), headers)
        answer = connection.getresponse()
        return str(json.loads(answer.read())["token"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise ClusterError(
            f"the page's process on port {port} does not answer: {error}", hint="`gangline page` again"
        ) from error
    finally:
        connection.close()


@click.command("serve-page", hidden=True)
@click.option("--port", type=int, default=0)
@target_options()
def serve_page(port: int, target: ClusterTarget) -> None:
    """Serve the page of a cluster until nobody looks at it any more."""
    paths, name = target.kept, _process(target)
    lock = ProcessLock(paths.lock(name))
    if not lock.acquire():
        return
    facts = _facts(paths, name)
    facts.unlink(missing_ok=True)
    try:
        asyncio.run(_serve(target, facts, port))
    finally:
        facts.unlink(missing_ok=True)
        lock.release()


async def _serve(target: ClusterTarget, facts: Path, port: int) -> None:
    from gangline.cli.serve.page_workspace import make_workspace
    from gangline.page.guard import Guard
    from gangline.page.link_entrance import LinkEntrance
    from gangline.page.server import PageServer

    secret = secrets.token_urlsafe(32)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with open_client(target) as client:
        workspace = make_workspace(target, client, has_files=True)
        server = PageServer(LinkEntrance(secret, workspace), Guard())
        watching = asyncio.create_task(workspace.scene.run(), name="scene")
        listening = await server.start(port)
        _write(facts, PageFacts(listening, secret, os.getpid()))
        waits = {
            watching,
            asyncio.create_task(ended.wait()),
            asyncio.create_task(_until_idle(target, server)),
        }
        done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await server.stop()
        await asyncio.gather(*rest, return_exceptions=True)
        for task in done:
            task.result()


def _write(path: Path, facts: PageFacts) -> None:
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(facts))
    new.replace(path)


async def _until_idle(target: ClusterTarget, server: PageServer) -> None:
    """Return once nobody has looked at the page for ten minutes, or the one-machine cluster has ended."""
    seen_s = time.monotonic()
    while time.monotonic() - seen_s < idle_end_s:
        await asyncio.sleep(idle_look_s)
        if server.viewer_count:
            seen_s = time.monotonic()
        if target.is_local and read_lock(target.paths.lock("server")).state == "free":
            return
