"""A kubelet that stands in for a real one, and the plugin's program beside it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs grpcio")

from gangline.deviceplugin import v1beta1_pb2 as api  # noqa: E402

LIMIT_S = 60


class StandInKubelet:
    """Takes registrations as a kubelet does: it calls the plugin back before it answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.requests: queue.Queue[Any] = queue.Queue()
        self.devices: queue.Queue[dict[str, str]] = queue.Queue()
        self.options: Any = None
        self.channel: Any = None
        handlers = {
            "Register": grpc.unary_unary_rpc_method_handler(
                self._register, api.RegisterRequest.FromString, api.Empty.SerializeToString
            )
        }
        (folder / "kubelet.sock").unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", handlers),)
        )
        self._server.add_insecure_port(f"unix://{folder}/kubelet.sock")
        self._server.start()
        self._readers = ThreadPoolExecutor(8)

    def _register(self, request: Any, context: Any) -> Any:
        self.channel = grpc.insecure_channel(f"unix://{self._folder}/{request.endpoint}")
        self.options = self.call("GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions)
        self._readers.submit(self._watch, self.channel)
        self.requests.put(request)
        return api.Empty()

    def _watch(self, channel: Any) -> None:
        stream = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            api.Empty.SerializeToString,
            api.ListAndWatchResponse.FromString,
        )
        with suppress(grpc.RpcError):
            for answer in stream(api.Empty()):
                self.devices.put({one.ID: one.health for one in answer.devices})

    def call(self, name: str, request: Any, answer: Any) -> Any:
        method = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{name}", type(request).SerializeToString, answer.FromString
        )
        return method(request, timeout=LIMIT_S)

    def allocate(self, *ids: str) -> Any:
        one = api.ContainerAllocateRequest(devices_ids=ids)
        answer = self.call("Allocate", api.AllocateRequest(container_requests=[one]), api.AllocateResponse)
        return answer.container_responses[0]

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self._server.stop(None).wait()
        self._readers.shutdown()


class PluginProgram:
    """`gangline device-plugin`, running."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        words = [sys.executable, "-m", "gangline", "device-plugin", "--folder", str(folder), *options]
        self._log = folder / "plugin.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(words, stderr=log, env={**os.environ, **environment})

    @property
    def lines(self) -> list[str]:
        """Its log, without the times."""
        return [" ".join(line.split(" ")[2:]) for line in self._log.read_text().splitlines()]

    def wait_for(self, line: str, count: int = 1) -> None:
        until_s = time.monotonic() + LIMIT_S
        while self.lines.count(line) < count:
            assert time.monotonic() < until_s, self.lines
            assert self.process.poll() is None, self.lines
            time.sleep(0.02)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the path of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="dp-") as made:
        yield Path(made)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Callable[[], StandInKubelet]]:
    """Return a function that starts a kubelet in the place of the one before."""
    started: list[StandInKubelet] = []

    def start() -> StandInKubelet:
        for before in started:
            before.close()
        started[:] = [StandInKubelet(folder)]
        return started[0]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def plugin(folder: Path, plugin_in: Callable[..., PluginProgram]) -> Callable[..., PluginProgram]:
    """Return a function that starts the plugin beside the stand-in kubelet."""
    return partial(plugin_in, folder)


@pytest.fixture
def plugin_in() -> Iterator[Callable[..., PluginProgram]]:
    """Return a function that starts the plugin in a folder."""
    started: list[PluginProgram] = []

    def start(folder: Path, *options: str, **environment: str) -> PluginProgram:
        started.append(PluginProgram(folder, *options, **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
