"""``pods/proxy`` and ``services/proxy``: HTTP requests through the API server to a port of a pod.

A name is ``[SCHEME:]NAME[:PORT]``. The request goes on as HTTP/1.0, so that the answer ends with its
connection; paths in an HTML answer lead back through the proxy. WebSockets do not go through.
Source: ResourceLocation of pods and services in k8s.io/kubernetes, util/proxy of k8s.io/apimachinery.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from gangline.api.resources import PODS
from gangline.cluster.pod_streams import READ_BYTES
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.auth import POD_COLLECTION
from gangline.cluster.server.http.request_context import RequestContext
from gangline.cluster.server.streams.port_forward import PodPorts, port_number

ANSWER_TIMEOUT_S = 60.0
"""Until the head of the answer has come, and for a page of HTML."""
HTML_BYTES_MAX = 4 << 20
"""Of an answer in which paths are rewritten."""
_SERVICES, _ENDPOINTS = "/services", "/endpoints"
_PORTS = {"http": 80, "https": 443}
_OF_ONE_CONNECTION = {
    "authorization",
    "connection",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
}

# /api/v1/namespaces/default/pods/http:web:8080/proxy/some/path?x=1
_PATH = re.compile(r"(/api/v1/namespaces/[^/]+/(?:pods|services)/[^/]+/proxy)([^?]*)(.*)", re.DOTALL)
# href="/rewriteme", of links, forms and pictures
_LINK = re.compile(rb"""((?:href|src|action)\s*=\s*["']?)/(?!/)""", re.IGNORECASE)


async def proxy(api: ApiContext, context: RequestContext) -> web.StreamResponse:
    """Answer a request to a pod or service."""
    request, target = context.request, context.target
    match = _PATH.match(request.raw_path)
    if match is None:
        raise status_errors.not_implemented(f"{target.served.resource.plural}/proxy")
    prefix, path, query = match.groups()
    if not path and request.method in ("GET", "HEAD"):
        return web.Response(status=301, headers={"Location": f"{prefix}/{query}"})
    scheme, name, port = _parts(target.name)
    of_kind = _of_pod if target.served.resource == PODS else _of_service
    found = of_kind(api, target.namespace, name, port) if scheme in _PORTS else None
    if found is None:
        raise _unavailable(f'no endpoints available for "{target.name}"')
    pod, number = found
    body = await context.raw_body()
    tls = ssl._create_unverified_context() if scheme == "https" else None
    writer = None
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await PodPorts(api.paths, pod).connect(number or _PORTS[scheme], tls)
            writer.write(_head(request, f"{path or '/'}{query}", name, len(body)) + body)
            status, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
        return await _answer(request, web.StreamResponse(status=status, headers=headers), reader, prefix)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise _unavailable(f"error trying to reach service: {error}") from None
    finally:
        if writer is not None:
            writer.close()


def _unavailable(message: str) -> status_errors.StatusError:
    return status_errors.StatusError(503, "ServiceUnavailable", message)


def _parts(text: str) -> tuple[str, str, str]:
    """Return scheme, name and port of ``[SCHEME:]NAME[:PORT]``."""
    first, *others = text.split(":")
    if len(others) == 2:
        return first or "http", others[0], others[1]
    return "http", first, others[0] if others else ""


def _of_pod(api: ApiContext, namespace: str, name: str, port: str) -> tuple[dict[str, Any], int] | None:
    """Return a pod and the number of a port, 0 for the scheme's; None when there is no such pod or port."""
    entry = api.store.get(POD_COLLECTION, namespace, name)
    if entry is None:
        return None
    containers = (entry.obj.get("spec") or {}).get("containers") or []
    declared = [found["containerPort"] for one in containers for found in one.get("ports") or ()]
    number = port_number(port) if port else next(iter(declared), 0)
    return None if port and not number else (entry.obj, number)


def _of_service(api: ApiContext, namespace: str, name: str, port: str) -> tuple[dict[str, Any], int] | None:
    """Return a pod behind a service and the port there; None when none is ready."""
    service = api.store.get(_SERVICES, namespace, name)
    endpoints = api.store.get(_ENDPOINTS, namespace, name)
    ports = ((service.obj.get("spec") or {}).get("ports") or []) if service is not None else []
    wanted = [one for one in ports if port in (one.get("name"), str(one.get("port")))] if port else ports
    if endpoints is None or len(wanted) != 1:
        return None
    ready = [
        (address["targetRef"]["name"], found["port"])
        for subset in endpoints.obj.get("subsets") or []
        for address in subset.get("addresses") or []
        for found in subset.get("ports") or []
        if (found.get("name") or "") == (wanted[0].get("name") or "") and "targetRef" in address
    ]
    if not ready:
        return None
    pod, number = random.choice(ready)
    return _of_pod(api, namespace, pod, str(number))


def _head(request: web.BaseRequest, path: str, host: str, size_bytes: int) -> bytes:
    """Return the head of the request to the pod."""
    kept = [(key, value) for key, value in request.headers.items() if key.lower() not in _OF_ONE_CONNECTION]
    kept = [(key, value) for key, value in kept if key.lower() != "content-length"]
    kept += [("Host", host), ("Connection", "close")]
    if size_bytes or request.method in ("POST", "PUT", "PATCH"):
        kept.append(("Content-Length", str(size_bytes)))
    lines = [f"{request.method} {path} HTTP/1.0", *(f"{key}: {value}" for key, value in kept), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def _read_head(head: bytes) -> tuple[int, CIMultiDict[str]]:
    """Return status and headers of an answer.

    Raises:
        ValueError: it is no HTTP.
    """
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    version, status, *_ = f"{first} ".split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("malformed HTTP response")
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        key, _, value = line.partition(":")
        if key.lower() not in _OF_ONE_CONNECTION:
            headers.add(key, value.strip())
    return int(status), headers


async def _answer(
    request: web.BaseRequest, response: web.StreamResponse, reader: asyncio.StreamReader, prefix: str
) -> web.StreamResponse:
    """Send the answer on as it comes; one of HTML at once, its paths led back through the proxy."""
    location = response.headers.get("Location", "")
    if location.startswith("/"):
        response.headers["Location"] = f"{prefix}{location}"
    page = b""
    if response.headers.get("Content-Type", "").startswith("text/html") and request.method != "HEAD":
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while len(page) < HTML_BYTES_MAX and (piece := await reader.read(READ_BYTES)):
                page += piece
        page = _LINK.sub(rb"\g<1>" + prefix.encode() + b"/", page)
        response.headers.popall("Content-Length", None)
    await response.prepare(request)
    if page:
        await response.write(page)
    while piece := await reader.read(READ_BYTES):
        await response.write(piece)
    await response.write_eof()
    return response
