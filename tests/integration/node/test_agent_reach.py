"""What a manifest cannot reach: the machine's files and switches, beyond the volumes that it names."""

import json
import os

import pytest

from gangline.api.resources import CONFIG_MAPS
from gangline.cluster.node.shim.processes import descendants, is_zombie


async def test_link_in_a_volume_does_not_lead_a_sub_path_out_of_it(cluster, tmp_path):
    if cluster.mode == "plain":
        pytest.skip("plain pods see the machine's files anyway")
    outside = tmp_path / "outside"
    outside.mkdir()
    swap = f"rmdir /shared/part && ln -s {outside} /shared/part"
    shared = {"name": "shared", "mountPath": "/shared"}
    link = {"name": "link", "image": "gangline/base", "command": ["sh", "-c", swap], "volumeMounts": [shared]}

    await cluster.create_pod(
        "sly",
        "sh",
        "-c",
        "touch /part/written",
        container={"volumeMounts": [{"name": "shared", "mountPath": "/part", "subPath": "part"}]},
        initContainers=[link],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )

    pod = await cluster.wait_phase("sly", "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert "subPath `part` leads out of the volume" in ended["message"]
    assert not list(outside.iterdir())


async def test_link_inside_a_volume_may_be_a_sub_path(cluster):
    await cluster.create(CONFIG_MAPS, "settings", data={"rate": "0.1"})

    await cluster.create_pod(
        "plain",
        "cat",
        "/rate",
        container={"volumeMounts": [{"name": "settings", "mountPath": "/rate", "subPath": "rate"}]},
        volumes=[{"name": "settings", "configMap": {"name": "settings"}}],
    )

    await cluster.wait_phase("plain", "Succeeded")
    assert (await cluster.logs("plain")).strip() == "0.1"


async def test_sub_path_is_not_made_through_a_link_of_a_host_path(cluster, tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (folder / "link").symlink_to(outside)

    await cluster.create_pod(
        "sly",
        "true",
        container={"volumeMounts": [{"name": "host", "mountPath": "/part", "subPath": "link/made"}]},
        volumes=[{"name": "host", "hostPath": {"path": str(folder)}}],
    )

    async def refusal():
        statuses = (await cluster.pod("sly"))["status"].get("containerStatuses") or [{}]
        return statuses[0].get("state", {}).get("waiting", {}).get("message")

    assert "subPath `link/made` leads out of the volume" in await cluster.wait_for(refusal, "a refusal")
    assert not list(outside.iterdir())


async def test_containers_cannot_change_files_that_the_agent_writes(cluster, tmp_path):
    if cluster.mode == "plain":
        pytest.skip("plain pods see the machine's files anyway")
    kept = tmp_path / "kept"
    kept.mkdir()
    await cluster.create(CONFIG_MAPS, "settings", data={"rate": "0.1"})
    swap = f"cd /settings && rm ..data; ln -s {kept} ..data; echo done; sleep 600"

    await cluster.create_pod(
        "sly",
        "sh",
        "-c",
        swap,
        container={"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]},
        volumes=[{"name": "settings", "configMap": {"name": "settings"}}],
    )
    await cluster.wait_phase("sly", "Running")

    async def has_tried():
        return "done" in await cluster.logs("sly")

    await cluster.wait_for(has_tried, "the attempt")
    folder = next(cluster.paths.pods.iterdir()) / "volumes" / "settings"
    assert (folder / "rate").read_text() == "0.1"
    await cluster.client.patch(CONFIG_MAPS, "settings", {"data": {"rate": "0.2"}}, "default")
    await cluster.wait_for(lambda: (folder / "rate").read_text() == "0.2", "the new value")
    assert kept.is_dir()


@pytest.mark.parametrize("host_network", [False, True])
async def test_switches_of_the_machine_are_read_only(cluster, host_network):
    if cluster.mode == "plain" or os.geteuid() != 0:
        pytest.skip("the switches ask for root")
    script = """
    for file in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/power/state /proc/sys/kernel/hostname
    do [ -e $file ] && ( : >> $file ) 2> /dev/null && echo "may write $file"
    done
    mknod /dev/disk b 1 0 2> /dev/null && echo "may make devices"
    exit 0
    """

    await cluster.create_pod("curious", "sh", "-c", script, hostNetwork=host_network)

    await cluster.wait_phase("curious", "Succeeded")
    assert await cluster.logs("curious") == ""


async def test_pod_sees_and_signals_no_process_but_its_own(cluster):
    if cluster.mode == "plain":
        pytest.skip("plain pods are processes among the machine's")
    own = os.getpid()  # of this test, as the machine counts
    script = f"[ -e /proc/{own} ] && echo seen; kill -0 {own} 2> /dev/null && echo reached; echo $PPID"

    await cluster.create_pod("curious", "sh", "-c", script)

    await cluster.wait_phase("curious", "Succeeded")
    assert (await cluster.logs("curious")).split() == ["0"]  # its parent is nobody in there


async def test_daemonised_processes_are_reaped_and_end_with_the_pod(cluster):
    script = "setsid -f env -i sh -c 'setsid -f sleep 600; setsid -f true'; echo started; exec sleep 600"
    await cluster.create_pod("daemon", "sh", "-c", script, terminationGracePeriodSeconds=0)
    await cluster.wait_phase("daemon", "Running")

    async def has_started():
        return "started" in await cluster.logs("daemon")

    await cluster.wait_for(has_started, "the daemons")
    shim = json.loads((next(cluster.paths.pods.iterdir()) / "state.json").read_text())["pid"]
    await cluster.wait_for(lambda: not any(map(is_zombie, descendants(shim))), "the short one to be reaped")
    below = descendants(shim)

    await cluster.delete("daemon")
    await cluster.wait_gone("daemon")

    await cluster.wait_for(lambda: all(map(is_zombie, below)), "the daemons to end")
