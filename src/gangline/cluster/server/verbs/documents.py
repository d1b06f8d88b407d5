"""Answers that are no objects: health, version, discovery, OpenAPI.

Documents are made from the rows of the registry when first asked for and kept until the rows change.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from gangline import __version__
from gangline.cluster.account_tokens import DISCOVERY_PATH, KEYS_PATH, KEYS_TYPE, discovery
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import JSON, encode_json

KUBERNETES_VERSION = ("1", "35", "v1.35.4")
"""Whose API is spoken; clients compare their own version with it."""

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez", "/version"})
"""Paths that need no credentials."""


def version_info() -> dict[str, str]:
    """Return the ``/version`` document."""
    major, minor, git_version = KUBERNETES_VERSION
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{git_version}+gangline",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": sys.implementation.name,
        "platform": f"{sys.platform}/{platform.machine()}",
        "ganglineVersion": __version__,
    }


class Documents:
    """The documents of one server."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api
        self._kept: dict[str, tuple[bytes, str]] = {}
        self._kept_version = -1

    def answer(self, request: web.BaseRequest, path: str) -> web.Response | None:
        """Return the answer for a path that names a document, None for any other path.

        Raises:
            StatusError: 404, a group or version that is not served.
        """
        if path in ("/healthz", "/readyz", "/livez"):
            text = f"[+]ping ok\n{path[1:]} check passed\n" if "verbose" in request.query else "ok"
            return web.Response(text=text)
        if path.startswith(("/healthz/", "/readyz/", "/livez/")):
            return web.Response(text="ok")
        if path == "/version":
            return self._kept_answer(request, path, version_info)
        if path == DISCOVERY_PATH:
            return self._kept_answer(request, path, discovery)
        if path == KEYS_PATH:
            return self._kept_answer(request, path, self._api.authenticator.tokens.keys, KEYS_TYPE)
        if path.startswith("/openapi"):
            return self._openapi(request, path)
        depth = path.count("/")
        if (path.startswith("/apis") and depth <= 3) or (path.startswith("/api") and depth <= 2):
            return self._discovery(request, path)
        return None

    def _discovery(self, request: web.BaseRequest, path: str) -> web.Response | None:
        from gangline.cluster.server.wire import discovery

        parts = path.strip("/").split("/")
        rows = self._api.registry.rows
        if path in ("/api", "/apis"):
            form = _aggregated_form(request.headers.get("Accept", ""))
            if form:
                key = f"{path} {form}"
                core = path == "/api"
                response = self._kept_answer(
                    request, key, lambda: discovery.aggregated(rows, core=core, version=form)
                )
                response.headers["Content-Type"] = (
                    f"{JSON};g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList"
                )
                response.headers["Vary"] = "Accept"
                return response
            if path == "/api":
                host = request.headers.get("Host", "127.0.0.1")
                return self._kept_answer(request, f"{path} {host}", lambda: discovery.api_versions(host))
            return self._kept_answer(request, path, lambda: discovery.api_group_list(rows))
        if parts[0] == "apis" and len(parts) == 2:
            return self._kept_answer(request, path, lambda: discovery.api_group(rows, parts[1]))
        if (parts[0] == "api" and len(parts) == 2) or (parts[0] == "apis" and len(parts) == 3):
            group_name, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
            return self._kept_answer(
                request, path, lambda: discovery.api_resource_list(rows, group_name, version)
            )
        return None

    def _openapi(self, request: web.BaseRequest, path: str) -> web.Response:
        from gangline.cluster.server.wire import openapi

        rows = self._api.registry.rows
        if path == "/openapi/v3":
            return self._kept_answer(request, path, lambda: openapi.index(rows))
        if path.startswith("/openapi/v3/"):
            group_version = path.removeprefix("/openapi/v3/")
            return self._kept_answer(request, path, lambda: openapi.document(rows, group_version))
        if path == "/openapi/v2":
            from gangline.cluster.server.wire import openapi_v2

            if openapi_v2.ASKED in request.headers.get("Accept", ""):
                return self._kept_answer(
                    request,
                    f"{path} protobuf",
                    lambda: openapi_v2.protobuf_document(rows),
                    openapi_v2.PROTOBUF,
                )
            return self._kept_answer(request, path, lambda: openapi_v2.json_document(rows))
        raise status_errors.no_such_path()

    def _kept_answer(
        self,
        request: web.BaseRequest,
        key: str,
        make: Callable[[], Mapping[str, Any] | bytes | None],
        content_type: str = JSON,
    ) -> web.Response:
        version = self._api.registry.version
        if version != self._kept_version:
            self._kept.clear()
            self._kept_version = version
        found = self._kept.get(key)
        if found is None:
            document = make()
            if document is None:
                raise status_errors.no_such_path()
            body = document if isinstance(document, bytes) else encode_json(document)
            found = self._kept[key] = (body, f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"')
        body, tag = found
        headers = {"ETag": tag, "Cache-Control": "no-cache, private"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers=headers | {"Content-Type": content_type})


def _aggregated_form(accept: str) -> str:
    """Return the version of aggregated discovery that the client prefers, empty for none."""
    for part in accept.split(","):
        if "as=APIGroupDiscoveryList" in part and "g=apidiscovery.k8s.io" in part:
            for version in ("v2beta1", "v2"):
                if f"v={version}" in part.split(";"):
                    return version
    return ""
