"""Fields of a pod that say what it may do: each seen from inside, in every isolation mode that has it.

Expected values: Kubernetes documentation, "Configure a security context", "Using sysctls", "Volumes".
"""

from pathlib import Path

import pytest


def ended(pod, index=0):
    return pod["status"]["containerStatuses"][index]["state"]["terminated"]


async def said_by(cluster, name, script, *, container=None, **spec):
    """Return the lines that a pod prints; it has to succeed."""
    await cluster.create_pod(name, "sh", "-c", script, container=container, **spec)
    pod = await cluster.wait_phase(name, "Succeeded", "Failed")
    lines = (await cluster.logs(name)).splitlines()
    assert pod["status"]["phase"] == "Succeeded", (lines, ended(pod).get("message"))
    return lines


async def test_a_read_only_root_refuses_writes_and_leaves_volumes_writable(cluster):
    if cluster.mode == "plain":
        pytest.skip("plain pods have no mounts")
    script = """
    for place in /new /etc/new /tmp/new /run/new /usr/new; do
        touch $place 2>/dev/null && echo "wrote $place"
    done
    touch /scratch/new /dev/shm/new && echo volumes
    """
    lines = await said_by(
        cluster,
        "closed",
        script,
        container={
            "securityContext": {"readOnlyRootFilesystem": True},
            "workingDir": "/made/for/it",
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        },
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )

    assert lines == ["volumes"]


async def test_capabilities_are_dropped_and_added(cluster):
    if cluster.mode == "plain":
        pytest.skip("plain pods have the rights of the user")
    read = "grep CapEff /proc/self/status"
    none = {"securityContext": {"capabilities": {"drop": ["ALL"]}}}
    one = {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["CHOWN", "CAP_SYS_PTRACE"]}}}

    dropped = await said_by(cluster, "dropped", read, container=none)
    kept = await said_by(cluster, "kept", read, container=one)

    assert int(dropped[0].split()[1], 16) == 0
    assert int(kept[0].split()[1], 16) == 1 << 0 | 1 << 19


async def test_privileges_are_not_gained_where_that_is_not_allowed(cluster):
    read = "grep NoNewPrivs /proc/self/status"
    closed = {"securityContext": {"allowPrivilegeEscalation": False}}

    assert await said_by(cluster, "closed", read, container=closed) == ["NoNewPrivs:\t1"]
    assert await said_by(cluster, "open", read) == ["NoNewPrivs:\t0"]


async def test_files_of_a_pod_belong_to_its_group(cluster):
    if cluster.mode != "network":
        pytest.skip("only root has other groups")
    script = (
        "touch /disk/a /memory/a && stat -c '%g %a' /disk /memory && stat -c %g /disk/a /memory/a && id -G"
    )
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("disk", "memory")]
    lines = await said_by(
        cluster,
        "shared",
        script,
        container={"volumeMounts": mounts},
        securityContext={
            "runAsUser": 1000,
            "runAsGroup": 1001,
            "fsGroup": 2000,
            "supplementalGroups": [3000],
        },
        volumes=[{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}],
    )

    assert lines == ["2000 2777", "2000 2777", "2000", "2000", "1001 2000 3000"]


async def test_a_container_that_must_not_run_as_root_does_not(cluster):
    if cluster.mode != "network":
        pytest.skip("only root has other users")
    await cluster.create_pod("root", "id", securityContext={"runAsNonRoot": True, "runAsUser": 0})

    async def waits():
        pod = await cluster.pod("root")
        states = pod["status"].get("containerStatuses") or [{"state": {}}]
        return states[0]["state"].get("waiting", {}).get("message")

    assert await cluster.wait_for(waits, "the refusal") == "container's runAsUser breaks non-root policy"
    assert await said_by(
        cluster, "user", "id -u", securityContext={"runAsNonRoot": True, "runAsUser": 7}
    ) == ["7"]


async def test_safe_settings_of_the_kernel_are_the_pods_own(cluster):
    if cluster.mode != "network":
        pytest.skip("only pods with a network of their own have settings of their own")
    name = "net.ipv4.ip_unprivileged_port_start"
    settings = [{"name": name, "value": "80"}, {"name": "kernel/shm_rmid_forced", "value": "1"}]
    read = f"cat /proc/sys/{name.replace('.', '/')} /proc/sys/kernel/shm_rmid_forced"
    of_machine = Path("/proc/sys", name.replace(".", "/"))
    before = of_machine.read_text()

    assert await said_by(cluster, "tuned", read, securityContext={"sysctls": settings}) == ["80", "1"]
    assert of_machine.read_text() == before
    unsafe = [{"name": "kernel.msgmax", "value": "1"}]
    await cluster.create_pod("unsafe", "true", securityContext={"sysctls": unsafe})
    failed = await cluster.wait_phase("unsafe", "Failed")
    assert failed["status"]["reason"] == "SysctlForbidden"
