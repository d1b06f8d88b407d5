"""HTTP and plain WebSockets through the API server to pods and services, in each isolation mode."""

import asyncio
import os
import shutil

import aiohttp
import pytest

from gangline.api.resources import ENDPOINTS, SERVICES

LIMIT_S = 60.0
SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send(200, f'<a href="/other">{self.path}</a>'.encode())
    def do_POST(self):
        self.send(201, self.rfile.read(int(self.headers["Content-Length"]))[::-1])
    def send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if status == 200 else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


async def raw(cluster, verb: str, path: str, *words: str) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    environment = os.environ | {"KUBECONFIG": str(cluster.paths.kubeconfig)}
    command = ("kubectl", verb, "--raw", f"/api/v1/namespaces/default/{path}", *words)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
async def test_requests_reach_pods_and_services_and_paths_lead_back(cluster, tmp_path):
    await cluster.create_pod("web", "python3", "-c", SERVE)

    async def listening() -> int:
        pod = await cluster.pod("web")
        return int(await cluster.logs("web") or 0) if pod["status"]["phase"] == "Running" else 0

    port = await cluster.wait_for(listening, "the port")
    ports = [{"name": "http", "port": 80, "targetPort": port}]
    await cluster.create(SERVICES, "front", spec={"clusterIP": "None", "ports": ports})
    target = {"kind": "Pod", "namespace": "default", "name": "web"}
    subset = {
        "addresses": [{"ip": "10.0.0.9", "targetRef": target}],
        "ports": [{"name": "http", "port": port}],
    }
    await cluster.create(ENDPOINTS, "front", subsets=[subset])

    for name in (f"pods/web:{port}", f"pods/http:web:{port}", "services/front", "services/front:http"):
        prefix = f"/api/v1/namespaces/default/{name}/proxy"
        code, out, _ = await raw(cluster, "get", f"{name}/proxy/a%20b/?c=d")
        assert (code, out) == (0, f'<a href="{prefix}/other">/a%20b/?c=d</a>')
        assert (await raw(cluster, "get", f"{name}/proxy"))[1] == f'<a href="{prefix}/other">/</a>'

    (tmp_path / "body").write_text("abc")
    sent = await raw(cluster, "create", f"pods/web:{port}/proxy/", "-f", str(tmp_path / "body"))
    assert sent[:2] == (0, "cba")
    assert "connection refused" in (await raw(cluster, "get", "pods/web:9/proxy/"))[2]
    assert "no endpoints available" in (await raw(cluster, "get", "services/front:other/proxy/"))[2]
    for none in ("99999", "0", "-1", "%C2%B2"):
        assert "no endpoints available" in (await raw(cluster, "get", f"pods/web:{none}/proxy/"))[2]


async def test_logs_and_commands_come_over_the_oldest_web_sockets_too(cluster):
    """``binary.k8s.io`` of logs; ``channel.k8s.io``, which tells no status."""
    await cluster.create_pod("says", "sh", "-c", "echo alive; exec sleep 3600")

    async def has_said() -> bool:
        is_running = (await cluster.pod("says"))["status"]["phase"] == "Running"
        return is_running and await cluster.logs("says") == "alive\n"

    await cluster.wait_for(has_said, "its log")
    pod = "/api/v1/namespaces/default/pods/says"
    connector = aiohttp.UnixConnector(str(cluster.paths.api_socket))
    async with (
        asyncio.timeout(LIMIT_S),
        aiohttp.ClientSession("http://localhost", connector=connector) as session,
    ):
        async with session.ws_connect(f"{pod}/log", protocols=["binary.k8s.io"]) as log:
            assert b"".join([piece.data async for piece in log]) == b"alive\n"
        command = f"{pod}/exec?command=echo&command=a%20b&stdout=1&stderr=1"
        async with session.ws_connect(command, protocols=["channel.k8s.io"]) as streams:
            assert [piece.data async for piece in streams if len(piece.data) > 1] == [b"\x01a b\n"]
