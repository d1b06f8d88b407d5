"""What device plugins in pods may give, and who is given what when; the kubelet's end is a stand-in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.volumes import HostPathVolume
from gangline.cluster.node.device_plugins import (
    AllocateError,
    DevicePlugins,
    DevicesTakenError,
    refusal_of,
)
from gangline.devices.inventory import DeviceInventory
from gangline.devices.simulated import simulate
from gangline.errors import ClusterError

WIDGET, GPU = "example.com/widget", "nvidia.com/gpu"
NOTHING: dict[str, Any] = {"variables": {}, "mounts": [], "files": [], "cdi": []}


class Log:
    def info(self, *words: object, **facts: object) -> None: ...

    warning = info


class StandInKubelet:
    """Gives the first of the available; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.refuses = False

    async def ask(self, **request: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.asked.append(request)
        if self.refuses:
            raise ClusterError("rpc error: code = INTERNAL desc = broken")
        first = list(dict.fromkeys([*request["included"], *request["available"]]))[: request["count"]]
        return NOTHING | {"devices": first, "variables": {"GIVEN": ",".join(first)}}


@pytest.fixture
def kubelet() -> StandInKubelet:
    return StandInKubelet()


@pytest.fixture
def plugins(tmp_path: Path, kubelet: StandInKubelet) -> DevicePlugins:
    return made(tmp_path, kubelet, DeviceInventory())


def made(folder: Path, kubelet: StandInKubelet, gpus: DeviceInventory) -> DevicePlugins:
    (folder / "plugins").mkdir(exist_ok=True)
    plugins = DevicePlugins(folder, lambda node: gpus, Log())
    plugins._kubelet = kubelet  # type: ignore[assignment]
    return plugins


def tell(plugins: DevicePlugins, resource: str, devices: dict[str, bool] | None) -> None:
    plugins._on_told(str(plugins.root / "node-0"), resource, devices)


def pod(uid: str, *counts: int, init: tuple[int, ...] = (), resource: str = WIDGET) -> Pod:
    def containers(counts: tuple[int, ...], kind: str) -> list[dict[str, Any]]:
        return [
            {"name": f"{kind}{number}", "resources": {"limits": {resource: str(count)}}}
            for number, count in enumerate(counts)
        ]

    spec = {
        "nodeName": "node-0",
        "containers": containers(counts, "c"),
        "initContainers": containers(init, "i"),
    }
    return msgspec.convert({"metadata": {"name": uid, "uid": uid, "namespace": "default"}, "spec": spec}, Pod)


async def test_devices_are_given_once_and_again_when_their_pod_is_gone(plugins: DevicePlugins) -> None:
    tell(plugins, WIDGET, {"a": True, "b": True, "broken": False})
    assert plugins.amounts("node-0") == ({WIDGET: "3"}, {WIDGET: "2"})

    given = await asyncio.gather(*(plugins.take(pod(uid, 1), {}) for uid in ("1", "2")))
    assert sorted(one["c0"].variables["GIVEN"] for one in given) == ["a", "b"]
    with pytest.raises(DevicesTakenError, match=r"waits for 1 example.com/widget of node-0: 0 are free"):
        await plugins.take(pod("3", 1), {})
    await plugins.release("1")

    assert (await plugins.take(pod("3", 1), {}))["c0"].devices == given[0]["c0"].devices


async def test_containers_use_what_init_containers_had(
    plugins: DevicePlugins, kubelet: StandInKubelet
) -> None:
    tell(plugins, WIDGET, dict.fromkeys("abc", True))

    given = await plugins.take(pod("1", 1, 2, init=(2, 1)), {})

    assert {name: list(one.devices[WIDGET]) for name, one in given.items()} == {
        "i0": ["a", "b"],
        "i1": ["a"],
        "c0": ["a"],
        "c1": ["b", "c"],
    }


async def test_a_plugin_that_is_gone_has_devices_and_none_to_give(plugins: DevicePlugins) -> None:
    tell(plugins, WIDGET, {"a": True})
    tell(plugins, WIDGET, None)

    assert plugins.amounts("node-0") == ({WIDGET: "1"}, {WIDGET: "0"})
    with pytest.raises(DevicesTakenError):
        await plugins.take(pod("1", 1), {})


async def test_the_next_agent_has_pods_wait_until_plugins_register_again(
    plugins: DevicePlugins, kubelet: StandInKubelet, tmp_path: Path
) -> None:
    tell(plugins, WIDGET, {"a": True})
    given = await plugins.take(pod("1", 1), {})

    anew = made(tmp_path, kubelet, DeviceInventory())
    anew.reserve("1", "node-0", given)

    assert anew.amounts("node-0") == ({WIDGET: "0"}, {WIDGET: "0"})
    with pytest.raises(DevicesTakenError):
        await anew.take(pod("2", 1), {})
    tell(anew, WIDGET, {"a": True, "b": True})
    assert (await anew.take(pod("2", 1), {}))["c0"].devices == {WIDGET: ("b",)}


async def test_a_refused_pod_holds_nothing(plugins: DevicePlugins, kubelet: StandInKubelet) -> None:
    tell(plugins, WIDGET, {"a": True})
    kubelet.refuses = True
    with pytest.raises(
        AllocateError, match="Allocate failed due to rpc error: code = INTERNAL desc = broken"
    ):
        await plugins.take(pod("1", 1), {})
    kubelet.refuses = False

    assert (await plugins.take(pod("2", 1), {}))["c0"].devices == {WIDGET: ("a",)}


async def test_the_agents_own_gpus_are_allocated_as_it_chose_them(
    tmp_path: Path, kubelet: StandInKubelet
) -> None:
    plugins = made(tmp_path, kubelet, simulate("node-0", 2))
    tell(plugins, GPU, {"GPU-simulated-node-0-0": True, "GPU-simulated-node-0-1": True})
    chosen = ("GPU-simulated-node-0-1",)

    given = await plugins.take(pod("1", 1, resource=GPU), {"c0": chosen})

    assert plugins.amounts("node-0") == ({}, {})
    assert not plugins.has_gpus("node-0")
    assert (kubelet.asked[0]["available"], kubelet.asked[0]["count"]) == (list(chosen), 1)
    assert given["c0"].devices == {}


async def test_gpus_of_a_plugin_are_counted_where_the_agent_found_none(plugins: DevicePlugins) -> None:
    tell(plugins, GPU, {"GPU-x": True})

    assert plugins.has_gpus("node-0")
    assert (await plugins.take(pod("1", 1, resource=GPU), {}))["c0"].devices == {GPU: ("GPU-x",)}


async def test_pods_that_ask_for_nothing_of_plugins_are_given_nothing(
    plugins: DevicePlugins, kubelet: StandInKubelet
) -> None:
    assert await plugins.take(pod("1", 1), {}) == {}
    assert kubelet.asked == []


def test_each_node_shows_a_folder_of_its_own_for_the_kubelets(plugins: DevicePlugins) -> None:
    shown = plugins.host_path(HostPathVolume(path="/var/lib/kubelet/device-plugins/"), "node-1")

    assert shown.path == str(plugins.root / "node-1")
    assert Path(shown.path).is_dir()
    assert plugins.is_own(shown.path)
    assert plugins.host_path(HostPathVolume(path="/var/lib/kubelet"), "node-1").path == "/var/lib/kubelet"
    assert not plugins.is_own("/var/lib/kubelet")


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        ({"files": [["/dev/null", "/dev/null"]]}, ""),
        ({"mounts": [["/inside", "/usr", True]]}, ""),
        ({"cdi": ["vendor.com/class=one"]}, "CDI devices are not served"),
        ({"files": [["/dev/x", "/dev/null"]]}, "keeps its name below /dev"),
        ({"files": [["/etc/passwd", "/etc/passwd"]]}, "keeps its name below /dev"),
        ({"files": [["/dev/../etc/passwd", "/dev/../etc/passwd"]]}, "keeps its name below /dev"),
        ({"files": [["/dev/mem", "/dev/mem"]]}, "disks, memory or ports"),
        ({"files": [["/dev/shm", "/dev/shm"]]}, "disks, memory or ports"),
        ({"mounts": [["/inside", "/not/there", True]]}, "does not exist"),
        ({"mounts": [["/inside", "PRIVATE/tokens", True]]}, "no pod may mount"),
        ({"mounts": [["/inside", "/", True]]}, "no pod may mount"),
    ],
)
def test_a_plugin_gives_nothing_that_pods_may_not_have(
    tmp_path: Path, what: dict[str, Any], refusal: str
) -> None:
    (tmp_path / "tokens").mkdir()
    mounts = [[one, host.replace("PRIVATE", str(tmp_path)), ro] for one, host, ro in what.get("mounts", ())]

    found = refusal_of(NOTHING | what | {"mounts": mounts}, [str(tmp_path)])

    assert refusal in found
    assert bool(found) == bool(refusal)
