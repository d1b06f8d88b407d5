"""What a program that names hosts prints, and what is told and kept when it fails."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gangline.launch.elastic import discovery
from gangline.launch.elastic.discovery import DiscoveryError, HostDiscovery, discover
from gangline.launch.hosts import Host


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("echo a:2; echo b", [Host("a", 2), Host("b", 4)]),
        ("echo a slots=3", [Host("a", 3)]),
        ("true", []),
    ],
)
def test_hosts_without_a_number_have_the_usual_one(line: str, hosts: list[Host]) -> None:
    assert asyncio.run(discover(("/bin/sh", "-c", line), 4)) == hosts


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (("./nowhere.sh",), "host discovery script `./nowhere.sh` cannot be run: No such file or directory"),
        (
            ("/bin/sh", "-c", "echo one >&2; echo no API >&2; exit 3"),
            "host discovery script `echo one >&2; echo no API >&2; exit 3` exited with code 3: no API",
        ),
        (("/bin/sh", "-c", "exit 4"), "host discovery script `exit 4` exited with code 4"),
        (
            ("/bin/sh", "-c", "echo a:2; echo b,c"),
            "host discovery script `echo a:2; echo b,c` printed a wrong line 2: `b,c` is no host name",
        ),
        (
            ("/bin/sh", "-c", "echo a:0"),
            "host discovery script `echo a:0` printed a wrong line: "
            "`a:0` has 0 slots; 1 to 4096 are possible",
        ),
    ],
)
def test_a_failure_says_the_script_how_it_ended_and_its_last_words(
    program: tuple[str, ...], said: str
) -> None:
    with pytest.raises(DiscoveryError) as raised:
        asyncio.run(discover(program))
    assert raised.value.message == said


def test_a_script_that_takes_too_long_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(discovery, "LIMIT_S", 0.2)
    started = tmp_path / "started"
    with pytest.raises(DiscoveryError, match="was ended: it took longer than 0 s"):
        asyncio.run(discover(("/bin/sh", "-c", f"sleep 600 & echo $! > {started}; wait")))

    deadline = time.monotonic() + 10.0
    while not has_ended(started.read_text().strip()):
        assert time.monotonic() < deadline


def has_ended(pid: str) -> bool:
    try:
        return " Z " in Path("/proc", pid, "stat").read_text()  # whoever is its parent now reaps it
    except (FileNotFoundError, ProcessLookupError):
        return True


class Script:
    """A script whose lines a test changes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(discovery, "PERIOD_S", 0.0)
        self.path, self.said, self.hosts = folder / "hosts.sh", [], []

    def says(self, *lines: str) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
        draft.chmod(0o755)
        draft.replace(self.path)

    async def run(self, *turns: tuple[str, ...]) -> None:
        """Let it say one thing after another, each for three calls."""
        calls = 0

        def change(hosts: list[Host]) -> None:
            self.hosts = hosts

        real = discovery.discover

        async def counted(*words: object) -> list[Host]:
            nonlocal calls
            if calls % 3 == 0:
                if calls == 3 * len(turns):
                    raise asyncio.CancelledError
                self.says(*turns[calls // 3])
            calls += 1
            return await real(*words)  # type: ignore[arg-type]

        discovery.discover = counted  # type: ignore[assignment]
        try:
            await HostDiscovery((str(self.path),), 1, self.said.append).run(change)
        finally:
            discovery.discover = real


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(tmp_path, monkeypatch)


def test_failures_are_told_once_each_and_the_hosts_stay(script: Script) -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(
            script.run(
                ("echo a:2; echo b:1",),
                ("echo try $$ >&2; exit 3",),  # other words every time
                ("exit 4",),
                ("echo a:2",),
            )
        )

    name = f"host discovery script `{script.path}`"
    first, *others = script.said
    assert first.startswith(f"{name} exited with code 3: try ")
    assert first.endswith("; the hosts stay (a:2,b:1), and it is asked again every second")
    assert others == [
        f"{name} exited with code 4; the hosts stay (a:2,b:1), and it is asked again every second",
        f"{name} works again: a:2",
    ]
    assert script.hosts == [Host("a", 2)]


def test_no_hosts_are_told_once(script: Script) -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(script.run(("true",), ("echo a",)))

    assert script.said == [f"host discovery script `{script.path}` names no hosts; it is asked every second"]


def test_a_first_call_that_fails_ends_all(script: Script) -> None:
    with pytest.raises(DiscoveryError, match="exited with code 3"):
        asyncio.run(script.run(("exit 3",)))
    assert script.said == []
