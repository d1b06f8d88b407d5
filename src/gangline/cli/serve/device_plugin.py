"""``gangline device-plugin``: serve a node's GPUs to its kubelet."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline import clock
from gangline.cli.options.gpus import simulation_options
from gangline.cli.serve.service import connection_options, service_connection
from gangline.client.run.gpus import GpuOptions
from gangline.devices.inventory import NODE_FILE, PLUGIN_FOLDER
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.deviceplugin.gpu_source import GpuSource
    from gangline.deviceplugin.plugin import DevicePlugin

OF_THE_STOCK_PLUGIN = (
    *("mig-strategy", "fail-on-init-error", "driver-root", "nvidia-driver-root", "dev-root"),
    *("pass-device-specs", "device-list-strategy", "device-id-strategy", "config-file"),
)
"""Options of NVIDIA's own plugin that manifests set and that have no effect here."""


SERVICE_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@click.command("device-plugin", context_settings={"ignore_unknown_options": True})
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=PLUGIN_FOLDER,
    metavar="FOLDER",
    show_default=True,
    help="Folder of the kubelet's socket for device plugins.",
)
@click.option(
    "--node",
    envvar="NODE_NAME",
    default=platform.node,
    metavar="NAME",
    help="Name of the node, in ids of simulated GPUs.  [default: NODE_NAME, else the host's name]",
)
@click.option(
    "--dra",
    is_flag=True,
    help="Serve them to resource claims (DRA, driver gpu.gangline.dev) instead of as nvidia.com/gpu.",
)
@click.option(
    "--kubelet-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="/var/lib/kubelet",
    metavar="FOLDER",
    show_default=True,
    help="The kubelet's folder, where it lists what pods have, and with --dra drivers register.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Serve /metrics of the plugin.  [default: none]",
)
@click.option(
    "--listen",
    default="127.0.0.1",
    metavar="ADDRESS",
    show_default=True,
    help="Where that port listens; 0.0.0.0 in a pod.",
)
@connection_options()
@simulation_options
@click.argument("unused", nargs=-1, type=click.UNPROCESSED, metavar="")
def command(
    folder: Path, node: str, gpus: GpuOptions, unused: tuple[str, ...], *, dra: bool, **of_dra: Any
) -> None:
    """Serve the node's GPUs to its kubelet as nvidia.com/gpu until SIGTERM.

    They are found with NVML, or simulated. A pod gets those that the scheduler chose for it
    (gangline.dev/gpus), another pod the free ones with the fastest wires. The node is told GPUs and links.
    """
    from gangline.cli.serve.cluster import run_until_stopped
    from gangline.deviceplugin import gpu_source
    from gangline.devices.simulated import simulate

    _check(unused)
    if not dra and not folder.is_dir():
        raise click.BadParameter(f"Directory '{folder}' does not exist.", param_hint="'--folder'")
    if not dra and not os.access(folder, os.W_OK):
        raise UserError(
            f"user {os.geteuid()} may not make the plugin's socket in {folder}, the kubelet's folder",
            hint="run it as root: in a pod `securityContext: {runAsUser: 0}` (deploy/device-plugin.yaml)",
        )
    if image := os.environ.get("GANGLINE_IMAGE"):
        _say(f"image {image} is served on this machine by Gangline's own device plugin")
    if simulation := gpus.simulation:
        source = gpu_source.of_values(simulate(node, simulation.gpus, simulation.model))
    else:
        source = gpu_source.of_node(folder) or gpu_source.of_driver()
    is_told = simulation is not None or not (folder / NODE_FILE).exists()  # else the node agent tells it
    serve = _serve_claims(node, source, **of_dra) if dra else _serve(folder, node, source, is_told, **of_dra)
    asyncio.run(run_until_stopped(serve))


async def _serve(
    folder: Path,
    node: str,
    source: GpuSource,
    is_told: bool,
    kubelet_folder: Path,
    kubeconfig: Path | None,
    context: str | None,
    metrics_port: int,
    listen: str,
) -> None:
    from gangline.deviceplugin.node_pods import NodePods
    from gangline.deviceplugin.plugin import DevicePlugin
    from gangline.kube.client import Client

    if not is_told or not (kubeconfig or context or SERVICE_TOKEN.exists()):
        if is_told:
            _say("No cluster is known: GPUs are chosen by the wires alone, and their links are not published")
        await _run(DevicePlugin(folder, source, _say), node, listen, metrics_port)
        return
    async with Client(service_connection(kubeconfig, context)) as client:
        pods = NodePods(client, node, _say, kubelet_folder / "pod-resources" / "kubelet.sock")
        plugin = DevicePlugin(folder, source, _say, cluster=pods)
        await _run(plugin, node, listen, metrics_port, client.answers)


async def _run(
    plugin: DevicePlugin,
    node: str,
    listen: str,
    metrics_port: int,
    answers: Callable[[], Mapping[tuple[str, str], int]] = dict,
) -> None:
    """Run a plugin, with its metrics beside it where a port is given."""
    if not metrics_port:
        return await plugin.run()
    from gangline.deviceplugin.metrics import plugin_metrics
    from gangline.kube.http_paths import serve_paths
    from gangline.kube.metrics import MetricsPage

    page = MetricsPage(lambda: plugin_metrics(plugin, node), answers)
    async with serve_paths(listen, metrics_port, {"/metrics": page.answer}):
        await plugin.run()


async def _serve_claims(
    node: str,
    source: GpuSource,
    kubelet_folder: Path,
    kubeconfig: Path | None,
    context: str | None,
    metrics_port: int,
    listen: str,
) -> None:
    from gangline.deviceplugin.dra import DraDriver
    from gangline.kube.client import Client

    if metrics_port:
        raise UserError(f"--metrics-port={metrics_port} at {listen} has no figures with --dra: leave it out")
    async with Client(service_connection(kubeconfig, context)) as client:
        await DraDriver(client, node, source, _say, kubelet_folder).run()


def _check(unused: tuple[str, ...]) -> None:
    for word in unused:
        if word.partition("=")[0].removeprefix("--") not in OF_THE_STOCK_PLUGIN:
            raise click.UsageError(f"No such option or argument: {word}")
        _say(f"{word} has no effect: it belongs to NVIDIA's plugin")


def _say(line: str) -> None:
    print(f"{clock.now():%Y/%m/%d %H:%M:%S} {line}", file=sys.stderr, flush=True)
