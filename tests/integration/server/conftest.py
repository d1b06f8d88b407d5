"""An API server in this process, on a folder of its own, and a plain HTTP client of its Unix socket."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer

JSON = "application/json"
MERGE = "application/merge-patch+json"


class Api:
    """Requests to the server: each returns the HTTP status and the decoded answer."""

    JSON_PATCH = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"

    def __init__(self, session: aiohttp.ClientSession, server: ApiServer) -> None:
        self.session = session
        self.server = server

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type_: str = JSON,
        accept: str = JSON,
        token: str = "",
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> tuple[int, Any]:
        headers = {"Content-Type": type_, "Accept": accept, **(headers or {})}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers=headers, params=params) as answer:
            text = await answer.text()
            if answer.content_type != JSON:
                return answer.status, text
            if params.get("watch") and answer.status == 200:
                return answer.status, [json.loads(line) for line in text.splitlines()]
            return answer.status, json.loads(text)

    async def get(self, path: str, **params: Any) -> Any:
        status, body = await self.request("GET", path, **params)
        assert status == 200, body
        return body

    async def create(self, path: str, body: Any, **params: Any) -> Any:
        status, answer = await self.request("POST", path, body, **params)
        assert status == 201, answer
        return answer

    async def patch(self, path: str, body: Any, type_: str = MERGE, **params: Any) -> Any:
        status, answer = await self.request("PATCH", path, body, type_=type_, **params)
        assert status == 200, answer
        return answer

    async def delete(self, path: str, body: Any = None, **params: Any) -> Any:
        status, answer = await self.request("DELETE", path, body, **params)
        assert status == 200, answer
        return answer


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterPaths]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    paths = ClusterPaths.of("test")
    yield paths
    shutil.rmtree(paths.run, ignore_errors=True)


@pytest.fixture
async def api_server(paths: ClusterPaths) -> AsyncIterator[ApiServer]:
    server = ApiServer(paths)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[Api]:
    connector = aiohttp.UnixConnector(str(api_server.paths.api_socket))
    async with aiohttp.ClientSession(connector=connector, base_url="http://gangline") as session:
        yield Api(session, api_server)
