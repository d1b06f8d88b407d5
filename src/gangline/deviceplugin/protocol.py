"""The kubelet's services over gRPC, device plugins' and DRA drivers': paths, and how to serve and call them.

Source: ``k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1``, ``dra/v1``, ``pluginregistration/v1``,
``podresources/v1``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # the lines of its C core are of no use to who reads a log

import grpc
import grpc.aio

from gangline.deviceplugin import dra_pb2 as dra
from gangline.deviceplugin import podresources_pb2 as podresources
from gangline.deviceplugin import v1beta1_pb2 as api

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
KUBELET_SOCKET = "kubelet.sock"

REGISTRATION, PLUGIN = "v1beta1.Registration", "v1beta1.DevicePlugin"
WATCHED_REGISTRATION, DRA_DRIVER = (
    "pluginregistration.Registration",
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
)
POD_RESOURCES = "v1.PodResourcesLister"
_TYPES: dict[str, tuple[Any, Any]] = {
    "Register": (api.RegisterRequest, api.Empty),
    "GetDevicePluginOptions": (api.Empty, api.DevicePluginOptions),
    "ListAndWatch": (api.Empty, api.ListAndWatchResponse),
    "GetPreferredAllocation": (api.PreferredAllocationRequest, api.PreferredAllocationResponse),
    "Allocate": (api.AllocateRequest, api.AllocateResponse),
    "PreStartContainer": (api.PreStartContainerRequest, api.PreStartContainerResponse),
    "GetInfo": (dra.InfoRequest, dra.PluginInfo),
    "NotifyRegistrationStatus": (dra.RegistrationStatus, dra.RegistrationStatusResponse),
    "NodePrepareResources": (dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse),
    "List": (podresources.ListPodResourcesRequest, podresources.ListPodResourcesResponse),
    "NodeUnprepareResources": (dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse),
}
_STREAMS = ("ListAndWatch",)


async def serve(socket: Path, service: str, methods: Mapping[str, Any]) -> grpc.aio.Server:
    """Return a server of these methods that listens; what lay at its socket is removed.

    Raises:
        OSError, RuntimeError: the socket cannot be made.
    """
    handlers = {}
    for name, behaviour in methods.items():
        request, _ = _TYPES[name]
        make = (
            grpc.unary_stream_rpc_method_handler if name in _STREAMS else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = make(behaviour, request.FromString, lambda answer: answer.SerializeToString())
    socket.unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    return server


def connect(socket: Path) -> grpc.aio.Channel:
    """Return a channel to a socket; servers in Go refuse the path as an authority, which is left out."""
    return grpc.aio.insecure_channel(f"unix://{socket}", [("grpc.default_authority", "localhost")])


def method(channel: grpc.aio.Channel, service: str, name: str) -> Any:
    """Return what calls a method."""
    request, answer = _TYPES[name]
    make = channel.unary_stream if name in _STREAMS else channel.unary_unary
    return make(f"/{service}/{name}", request.SerializeToString, answer.FromString)
