"""A device plugin of another resource in a pod of the one-machine cluster, and pods that ask for its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs grpcio")

LIMIT_S = 60
ONE = {"example.com/widget": 1}
DEVICE = next((one for one in ("/dev/fuse", "/dev/loop-control", "/dev/kvm") if Path(one).exists()), "")
"""A device file that pods do not have of themselves."""

PLUGIN = """
import os, threading
from concurrent import futures
import grpc
from gangline.deviceplugin import v1beta1_pb2 as api

FOLDER, healthy = "/var/lib/kubelet/device-plugins/", threading.Event()
as_bytes = lambda one: one.SerializeToString()
options = api.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=True)

def list_and_watch(request, context):
    yield api.ListAndWatchResponse(devices=[
        api.Device(ID=f"w{i}", health="Unhealthy" if i == 2 else "Healthy") for i in range(3)])
    threading.Event().wait()

def prefer(request, context):
    one, = request.container_requests
    ids = sorted(one.available_deviceIDs, reverse=True)[:one.allocation_size]
    return api.PreferredAllocationResponse(
        container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids)])

def allocate(request, context):
    one, = request.container_requests
    if len(one.devices_ids) > 1:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "one at a time")
    device = os.environ["DEVICE"]
    files = [api.DeviceSpec(container_path=device, host_path=device, permissions="rw")] if device else []
    return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(
        envs={"WIDGETS": ",".join(one.devices_ids)}, devices=files,
        mounts=[api.Mount(container_path="/widgets", host_path="/etc/ssl", read_only=True)])])

def pre_start(request, context):
    print("started with", ",".join(request.devices_ids), flush=True)
    return api.PreStartContainerResponse()

def unary(behaviour, request):
    return grpc.unary_unary_rpc_method_handler(behaviour, request.FromString, as_bytes)

server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", {
    "GetDevicePluginOptions": unary(lambda request, context: options, api.Empty),
    "ListAndWatch": grpc.unary_stream_rpc_method_handler(
        list_and_watch, api.Empty.FromString, as_bytes),
    "GetPreferredAllocation": unary(prefer, api.PreferredAllocationRequest),
    "Allocate": unary(allocate, api.AllocateRequest),
    "PreStartContainer": unary(pre_start, api.PreStartContainerRequest),
}),))
server.add_insecure_port(f"unix://{FOLDER}widget.sock")
server.start()
channel = grpc.insecure_channel(f"unix://{FOLDER}kubelet.sock", [("grpc.default_authority", "localhost")])
register = channel.unary_unary("/v1beta1.Registration/Register", as_bytes, api.Empty.FromString)
register(api.RegisterRequest(
    version="v1beta1", endpoint="widget.sock", resource_name="example.com/widget", options=options))
print("registered", flush=True)
server.wait_for_termination()
"""


def pod(name: str, command: list[str], limits: dict[str, int] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "gangline/base", "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container | {"resources": {"limits": limits or {}}} | spec.pop("more", {})],
            **spec,
        },
    }


def plugin_pod() -> dict[str, Any]:
    folder = "/var/lib/kubelet/device-plugins"
    return pod(
        "widgets",
        ["python", "-u", "-c", PLUGIN],
        nodeName="node-0",
        terminationGracePeriodSeconds=1,
        volumes=[{"name": "sockets", "hostPath": {"path": folder}}],
        more={
            "volumeMounts": [{"name": "sockets", "mountPath": folder}],
            "env": [{"name": "DEVICE", "value": DEVICE}],
        },
    )


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster("--nodes", "2") as started:
        yield started


def until(read: Callable[[], Any], wanted: Any) -> None:
    until_s = time.monotonic() + LIMIT_S
    while (found := read()) != wanted:
        assert time.monotonic() < until_s, found
        time.sleep(0.2)


def widgets(cluster: Any, node: str = "node-0") -> tuple[str | None, str | None]:
    status = cluster.get("node", node)["status"]
    return status["capacity"].get("example.com/widget"), status["allocatable"].get("example.com/widget")


def phase(cluster: Any, name: str) -> str:
    return str(cluster.get("pod", name)["status"]["phase"])


def test_devices_of_another_plugin_are_advertised_and_given(cluster: Any) -> None:
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(plugin_pod()))
    until(lambda: widgets(cluster), ("3", "2"))
    assert widgets(cluster, "node-1") == (None, None)

    # The plugin prefers the highest; what another pod holds is not given again.
    test = f"[ -c '{DEVICE}' ]" if DEVICE else "true"
    show = f"echo $WIDGETS; ls -d /widgets/certs; {test} && echo file; sleep 60"
    for name in ("first", "second"):
        asking = pod(name, ["sh", "-c", show], ONE, terminationGracePeriodSeconds=0)
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(asking))
        until(lambda name=name: phase(cluster, name), "Running")
    until(lambda: cluster.kubectl("logs", "first"), "w1\n/widgets/certs\nfile\n")
    until(lambda: cluster.kubectl("logs", "second"), "w0\n/widgets/certs\nfile\n")
    assert cluster.get("pod", "first")["spec"]["nodeName"] == "node-0"
    assert cluster.kubectl("logs", "widgets") == "registered\nstarted with w1\nstarted with w0\n"

    third = pod("third", ["sh", "-c", "echo $WIDGETS"], ONE)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(third))
    cluster.kubectl("delete", "pod", "second")
    until(lambda: phase(cluster, "third"), "Succeeded")
    assert cluster.kubectl("logs", "third") == "w0\n"
    cluster.kubectl("delete", "pod", "first", "third")


def test_a_pod_whose_devices_are_refused_fails_for_good(cluster: Any) -> None:
    until(lambda: widgets(cluster), ("3", "2"))

    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod("both", ["true"], {"example.com/widget": 2})))

    until(lambda: phase(cluster, "both"), "Failed")
    status = cluster.get("pod", "both")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    said = "rpc error: code = RESOURCE_EXHAUSTED desc = one at a time"
    assert status["message"] == f"Allocate failed due to {said}, which is unexpected"
    cluster.kubectl("delete", "pod", "both")


def test_devices_go_with_their_plugin(cluster: Any) -> None:
    until(lambda: widgets(cluster), ("3", "2"))

    cluster.kubectl("delete", "pod", "widgets")

    until(lambda: widgets(cluster), (None, None))
