"""pods/log from CRI files: what a client sees, and when following ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

Api = Any
"""The client of conftest.py."""

PODS = "/api/v1/namespaces/default/pods"


def record(second: int, text: str, stream: str = "stdout", tag: str = "F") -> str:
    return f"2026-01-01T00:00:{second:02}.123456789Z {stream} {tag} {text}\n"


async def running_pod(api: Api, *containers: str, state: str = "running", restarts: int = 0) -> Path:
    spec = {"nodeName": "n1", "containers": [{"name": name, "image": "i"} for name in containers]}
    made = await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec})
    await report(api, *containers, state=state, restarts=restarts)
    folder: Path = api.server.paths.pod_logs("default", "p", made["metadata"]["uid"])
    for name in containers:
        (folder / name).mkdir(parents=True)
    return folder


async def report(api: Api, *containers: str, state: str, restarts: int = 0) -> None:
    details = {"running": {}, "terminated": {"exitCode": 0}, "waiting": {"reason": "ContainerCreating"}}
    statuses = [
        {"name": name, "restartCount": restarts, "state": {state: details[state]}} for name in containers
    ]
    await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running", "containerStatuses": statuses}})


async def log(api: Api, **params: Any) -> str:
    status, text = await api.request("GET", f"{PODS}/p/log", **params)
    assert status == 200, text
    return str(text)


async def test_text_without_the_records_frame(api: Api) -> None:
    folder = await running_pod(api, "c")
    (folder / "c/0.log").write_text(
        record(1, "one") + record(2, "two ", tag="P") + record(2, "halves") + record(3, "", "stderr")
    )

    assert await log(api) == "one\ntwo halves\n\n"
    assert (await log(api, timestamps="true")).startswith("2026-01-01T00:00:01.123456789Z one\n")
    assert await log(api, stream="Stderr") == "\n"


@pytest.mark.parametrize(
    ("params", "want"),
    [
        ({"tailLines": 2}, "l8\nl9\n"),
        ({"tailLines": 0}, ""),
        ({"tailLines": 100}, "".join(f"l{n}\n" for n in range(10))),
        ({"sinceTime": "2026-01-01T00:00:08Z"}, "l8\nl9\n"),
        ({"limitBytes": 4}, "l0\nl"),
        ({"sinceSeconds": 5}, ""),
        ({"timestamps": "false", "follow": "false", "tailLines": 1}, "l9\n"),
    ],
)
async def test_part_that_is_asked_for(api: Api, params: dict[str, Any], want: str) -> None:
    folder = await running_pod(api, "c")
    (folder / "c/0.log").write_text("".join(record(n, f"l{n}") for n in range(10)))

    assert await log(api, **params) == want


async def test_tail_of_a_log_longer_than_a_block(api: Api) -> None:
    folder = await running_pod(api, "c")
    (folder / "c/0.log").write_text("".join(record(1, f"line {n} " + "x" * 300) for n in range(2000)))

    lines = (await log(api, tailLines=500)).splitlines()

    assert [line.split()[1] for line in lines] == [str(n) for n in range(1500, 2000)]


async def test_containers_must_be_named_when_there_are_several(api: Api) -> None:
    folder = await running_pod(api, "a", "b")
    (folder / "b/0.log").write_text(record(1, "from b"))

    status, body = await api.request("GET", f"{PODS}/p/log")
    wrong, _ = await api.request("GET", f"{PODS}/p/log", container="z")

    assert (status, body["message"]) == (
        400,
        "a container name must be specified for pod p, choose one of: [a b]",
    )
    assert wrong == 400
    assert await log(api, container="b") == "from b\n"


async def test_container_that_waits_has_no_log(api: Api) -> None:
    await running_pod(api, "c", state="waiting")

    status, body = await api.request("GET", f"{PODS}/p/log")

    assert (status, body["message"]) == (
        400,
        'container "c" in pod "p" is waiting to start: ContainerCreating',
    )


async def test_previous_is_the_run_before(api: Api) -> None:
    folder = await running_pod(api, "c", restarts=1)
    (folder / "c/0.log").write_text(record(1, "first run"))
    (folder / "c/1.log").write_text(record(2, "second run"))

    assert await log(api) == "second run\n"
    assert await log(api, previous="true") == "first run\n"
    await report(api, "c", state="running", restarts=0)
    status, body = await api.request("GET", f"{PODS}/p/log", previous="true")
    assert (status, body["message"]) == (400, 'previous terminated container "c" in pod "p" not found')


async def test_follow_sends_lines_as_they_come_and_ends_with_the_container(api: Api) -> None:
    folder = await running_pod(api, "c")
    file = folder / "c/0.log"
    file.write_text(record(1, "one"))
    async with api.session.get(f"{PODS}/p/log", params={"follow": "true"}) as answer:
        async with asyncio.timeout(60):
            assert await answer.content.readline() == b"one\n"
            with file.open("a") as more:
                more.write(record(2, "two"))
            assert await answer.content.readline() == b"two\n"
            file.rename(file.with_name("0.log.rotated"))
            file.write_text(record(3, "after rotation"))
            assert await answer.content.readline() == b"after rotation\n"
            with file.open("a") as more:
                more.write(record(4, "last words"))
            await report(api, "c", state="terminated")
            assert await answer.content.read() == b"last words\n"


async def test_follow_ends_with_the_bytes_that_were_asked_for(api: Api) -> None:
    folder = await running_pod(api, "c")
    (folder / "c/0.log").write_text(record(1, "one") + record(2, "two"))

    async with asyncio.timeout(60):
        async with api.session.get(f"{PODS}/p/log", params={"follow": "true", "limitBytes": 5}) as answer:
            assert await answer.text() == "one\nt"


async def test_follow_ends_when_the_pod_is_deleted(api: Api) -> None:
    folder = await running_pod(api, "c")
    (folder / "c/0.log").write_text(record(1, "one"))
    async with api.session.get(f"{PODS}/p/log", params={"follow": "true"}) as answer:
        async with asyncio.timeout(60):
            assert await answer.content.readline() == b"one\n"
            await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
            assert await answer.content.read() == b""
