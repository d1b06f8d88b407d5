"""Probes of one container: what waits for the startup probe, and what its failure does."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from gangline.api.core import Container
from gangline.cluster.node.pods import handlers, probes

BOUND_S = 30.0
PERIOD_S = 0.001


class ScriptedContainer:
    """Runs the probes of a container whose commands end as a script says, and notes what is told.

    Attributes:
        reports: ready, started and alive, as they were reported.
        events: reasons.
        ran: the first word of each command, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **exits: list[int]) -> None:
        self.exits = exits
        self.reports: list[tuple[bool, bool, bool]] = []
        self.events: list[str] = []
        self.ran: list[str] = []
        self._changed = asyncio.Event()
        monkeypatch.setattr(handlers, "run_inside", self._run_inside)

    async def _run_inside(self, _socket: str, _container: str, command: list[str]) -> int:
        name = command[0]
        self.ran.append(name)
        self._changed.set()
        left = self.exits[name]
        return left.pop(0) if len(left) > 1 else left[0]  # the last one stays

    def _report(self, _name: str, ready: bool, started: bool, alive: bool) -> None:
        self.reports.append((ready, started, alive))
        self._changed.set()

    async def probe(self, *kinds: str, until, failures: int = 3) -> None:
        """Probe until a condition holds."""
        spec = {
            f"{kind}Probe": {
                "exec": {"command": [kind]},
                "periodSeconds": PERIOD_S,
                "failureThreshold": failures,
            }
            for kind in kinds
        }
        container = msgspec.convert({"name": "main", **spec}, Container)
        paths = SimpleNamespace(pod_socket=lambda uid: f"/{uid}")
        sandbox = SimpleNamespace(context=SimpleNamespace(paths=paths), record=SimpleNamespace(uid="u"))
        prober = probes.Prober(
            container, sandbox, self._report, lambda type_, reason, text: self.events.append(reason)
        )
        try:
            async with asyncio.timeout(BOUND_S):
                while not until(self):
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            prober.stop()


async def test_container_is_neither_started_nor_ready_before_its_startup_probe_passes(monkeypatch):
    container = ScriptedContainer(monkeypatch, startup=[1, 1, 0])

    await container.probe("startup", until=lambda seen: (True, True, True) in seen.reports)

    assert container.reports == [(False, False, True), (True, True, True)]
    assert container.ran == ["startup"] * 3


async def test_other_probes_begin_when_the_startup_probe_has_passed(monkeypatch):
    container = ScriptedContainer(monkeypatch, startup=[1, 0], liveness=[0], readiness=[0])

    await container.probe(
        *("startup", "liveness", "readiness"),
        until=lambda seen: (True, True, True) in seen.reports and "liveness" in seen.ran,
    )

    assert container.ran[:2] == ["startup", "startup"]
    assert "startup" not in container.ran[2:]  # it runs no more
    assert container.reports == [(False, False, True), (False, True, True), (True, True, True)]


async def test_container_whose_startup_probe_fails_too_often_is_killed(monkeypatch):
    container = ScriptedContainer(monkeypatch, startup=[1], liveness=[0])

    await container.probe("startup", "liveness", failures=4, until=lambda seen: seen.reports[-1:] == KILLED)

    assert container.ran == ["startup"] * 4
    assert container.reports == [(False, False, True), *KILLED]
    assert container.events == ["Unhealthy"] * 4 + ["Killing"]


KILLED = [(False, False, False)]


async def test_headers_of_an_http_probe_stand_in_place_of_the_agents_own() -> None:
    """As a kubelet sends them: a server that is asked with two hosts must refuse (RFC 9112, 3.2)."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sandbox = SimpleNamespace(record=SimpleNamespace(address="127.0.0.1"))
    container = msgspec.convert({"name": "a"}, Container)
    given = [{"name": "host", "value": "page.example"}, {"name": "X-One", "value": "1"}]
    runner = handlers.HandlerRunner(container, sandbox)
    assert await runner.run({"httpGet": {"port": port, "httpHeaders": given}}, BOUND_S) == ""
    server.close()

    lines = heard[0].decode().split("\r\n")
    assert [line for line in lines if line.lower().startswith("host:")] == ["host: page.example"]
    assert "X-One: 1" in lines and any(line.startswith("User-Agent: ") for line in lines)
