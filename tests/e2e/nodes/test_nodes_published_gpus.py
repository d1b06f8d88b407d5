"""Dell's page on GPUs of OpenShift nodes, command by command on real kubelets, `kubectl` for `oc`.

Its files are sent as they are. Their images cannot be had here: under their names lie Gangline's plugin,
which is told to simulate GPUs, and its stand-in for CUDA's sample, which says that the GPU is simulated.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from nodes import Nodes

pytest.importorskip("grpc", reason="needs grpcio")

Kubectl = Callable[..., str]
FILES = Path(__file__).parents[3] / "examples/published/pods"
LABEL = "openshift.com/gpu-accelerator=true"
PLUGINS = ("-n", "kube-system", "-l", "name=nvidia-device-plugin-ds")
PUBLISHED = [
    "Loading NVML",
    "Fetching devices.",
    "Starting FS watcher.",
    "Starting OS watcher.",
    "Starting to serve on /var/lib/kubelet/device-plugins/nvidia.sock",
    "Registered device plugin with Kubelet",
]
VECTOR_ADD = ("python3", "-m", "gangline.bench.cuda_vector_add")


def under_name(archive: Path, name: str, entrypoint: Sequence[str], out: Path) -> Path:
    """Write an image of ``docker save`` under another name, with another program, which root starts."""
    with tarfile.open(archive) as old, tarfile.open(out, "w") as new:
        (manifest,) = json.load(old.extractfile("manifest.json") or io.BytesIO())
        config = json.load(old.extractfile(manifest["Config"]) or io.BytesIO())
        config["config"] |= {"Entrypoint": list(entrypoint), "Cmd": None, "User": "0"}
        told = {
            "config.json": config,
            "manifest.json": [manifest | {"Config": "config.json", "RepoTags": [name]}],
        }
        for path, value in told.items():
            data = json.dumps(value).encode()
            member = tarfile.TarInfo(path)
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
        for layer in manifest["Layers"]:
            new.addfile(old.getmember(layer), old.extractfile(layer))
    return out


@pytest.fixture
def images(nodes: Nodes, archives: list[Path], tmp_path: Path) -> None:
    """Put what stands in for the published images on the nodes, under their names."""
    (ours,) = (one for one in archives if one.name.startswith("gangline-device-plugin-"))
    plugin = ("gangline", "device-plugin", "--simulate-gpus=4", "--gpu-model=v100-dgx1")
    named = {
        "docker.io/nvidia/k8s-device-plugin:1.11": plugin,
        "docker.io/mirrorgooglecontainers/cuda-vector-add:v0.1": VECTOR_ADD,
    }
    for index, (name, entrypoint) in enumerate(named.items()):
        nodes.load(under_name(ours, name, entrypoint, tmp_path / f"{index}.tar"))


@pytest.fixture
def labels(nodes: Nodes, kubectl: Kubectl) -> Iterator[None]:
    """Take away what the page leaves on the cluster."""
    yield
    kubectl("delete", "-f", str(FILES / "cuda-vector-add.yaml"), "--ignore-not-found", "--grace-period=0")
    kubectl("delete", "-f", str(FILES / "device-plugin.yaml"), "--ignore-not-found", "--wait")
    for name in nodes.names:
        kubectl("label", "node", name, "openshift.com/gpu-accelerator-")


def shown(described: str, part: str) -> dict[str, str]:
    """Return what `kubectl describe node` has under a heading: ``{"nvidia.com/gpu": "4"}``."""
    lines = described.split(f"\n{part}:\n")[1].splitlines()
    fields = (line.split(":") for line in lines[: next(i for i, line in enumerate(lines) if line[0] != " ")])
    return {name.strip(): value.strip() for name, value in fields}


async def test_the_page_from_the_label_to_the_vector_add(
    nodes: Nodes, jobs: Any, kubectl: Kubectl, images: None, labels: None
) -> None:
    first, second = nodes.names

    async def amounts(node: str) -> tuple[str | None, str | None]:
        described = kubectl("describe", "node", node)
        return tuple(shown(described, part).get("nvidia.com/gpu") for part in ("Capacity", "Allocatable"))

    async def serves() -> bool:
        return await amounts(first) == ("4", "4")

    assert kubectl("label", "node", first, LABEL) == f"node/{first} labeled\n"
    created = kubectl("create", "-f", str(FILES / "device-plugin.yaml"))
    assert created == "daemonset.apps/nvidia-device-plugin-daemonset created\n"
    kubectl("-n", "kube-system", "rollout", "status", "ds/nvidia-device-plugin-daemonset", "--timeout=100s")
    (plugin,) = json.loads(kubectl("get", "pods", *PLUGINS, "-o", "json"))["items"]
    assert plugin["spec"]["nodeName"] == first

    await jobs.until(serves, "node with 4 GPUs")
    log = kubectl("logs", *PLUGINS[:2], plugin["metadata"]["name"])
    lines = [line.split(" ", 2)[2] for line in log.splitlines()]
    assert [line for line in lines if line in PUBLISHED] == PUBLISHED
    assert "4 simulated GPUs, as this program was told: v100-dgx1" in lines
    assert (await amounts(second))[1] in (None, "0")  # it has no label

    kubectl("label", "node", second, LABEL)
    kubectl("-n", "kube-system", "rollout", "status", "ds/nvidia-device-plugin-daemonset", "--timeout=100s")
    wide = kubectl("-n", "kube-system", "get", "ds", "nvidia-device-plugin-daemonset", "--no-headers")
    assert wide.split()[1:4] == ["2", "2", "2"]  # desired, current, ready

    kubectl("create", "-f", str(FILES / "cuda-vector-add.yaml"))
    phase = "--for=jsonpath={.status.phase}=Succeeded"
    kubectl("wait", phase, "pod/cuda-vector-add", "--timeout=100s")
    node = kubectl("get", "pod/cuda-vector-add", "-o", "jsonpath={.spec.nodeName}")
    plugins = json.loads(kubectl("get", "pods", *PLUGINS, "-o", "json"))["items"]
    (named,) = (one["metadata"]["name"] for one in plugins if one["spec"]["nodeName"] == node)
    said = kubectl("logs", "cuda-vector-add").splitlines()
    assert said[0] == "[Vector addition of 50000 elements]"
    # The page's DaemonSet does not tell its pods on which node they are.
    assert said[1].startswith(f"GPU-simulated-{named}-")
    assert said[1].endswith(" is simulated: added on the CPU, with nothing copied or launched")
    assert said[2:] == ["Test NOT RUN on a GPU: the sum is right on the CPU", "Done"]
