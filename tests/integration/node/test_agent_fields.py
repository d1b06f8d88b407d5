"""Fields of a pod that say what it may do: each seen from inside, in every isolation mode that has it.

Expected values: Kubernetes documentation, "Configure a security context", "Using sysctls", "Volumes".
"""

import sys
import uuid
from pathlib import Path

import pytest

from gangline.api.resources import EVENTS, PODS, RUNTIME_CLASSES, SERVICES
from gangline.cluster.node.pods.control_groups import CGROUPS
from gangline.kube.errors import Forbidden


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


async def test_a_volume_over_the_folder_of_this_python_leaves_it_its_programs(cluster):
    if cluster.mode == "plain":
        pytest.skip("plain pods have no mounts")
    above = str(Path(sys.prefix).parent)
    script = f"ls -d {above}/pyproject.toml; cd / && {sys.executable} -c 'import gangline; print(1)'"
    lines = await said_by(
        cluster,
        "covered",
        script,
        container={"volumeMounts": [{"name": "scratch", "mountPath": above}]},
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )

    assert lines[1:] == ["1"]
    assert "No such file" in lines[0]


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


async def test_a_port_of_the_node_is_taken_by_one_pod_at_a_time(cluster):
    """As a kubelet refuses: "Pod Lifecycle", phase ``Failed`` with the reason of the predicate."""

    def port(number, **place):
        return {"container": {"ports": [{"containerPort": 80, "hostPort": number, **place}]}}

    await cluster.create_pod("first", "sleep", "300", **port(20017))
    await cluster.wait_phase("first", "Running")
    await cluster.create_pod("second", "sleep", "300", **port(20017))
    await cluster.create_pod("other-protocol", "sleep", "300", **port(20017, protocol="UDP"))
    await cluster.create_pod("other-port", "sleep", "300", **port(20018, hostIP="127.0.0.1"))
    await cluster.create_pod("other-address", "sleep", "300", **port(20018, hostIP="127.0.0.2"))
    refused = (await cluster.wait_phase("second", "Failed"))["status"]

    assert refused["reason"] == "NodePorts"
    assert "didn't have free ports for the requested pod ports" in refused["message"]
    for name in ("other-protocol", "other-port", "other-address"):
        await cluster.wait_phase(name, "Running")
    await cluster.delete("first", grace_period_s=0)
    await cluster.create_pod("third", "sleep", "300", **port(20017))
    await cluster.wait_phase("third", "Running")


async def test_names_and_resolver_are_those_that_the_pod_asks_for(cluster):
    if cluster.mode == "plain":
        pytest.skip("plain pods have the machine's files")
    lines = await said_by(
        cluster,
        "named",
        "grep -P '10.1.2.3\\t' /etc/hosts; grep -v '#' /etc/resolv.conf; hostname",
        hostAliases=[{"ip": "10.1.2.3", "hostnames": ["store", "store.example"]}],
        dnsPolicy="None",
        dnsConfig={
            "nameservers": ["192.0.2.1"],
            "searches": ["ns.example", "example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        },
        hostname="short",
        subdomain="group",
        setHostnameAsFQDN=True,
    )

    assert lines == [
        "10.1.2.3\tstore\tstore.example",
        "search ns.example example",
        "options ndots:2 edns0",
        "nameserver 192.0.2.1",
        "short.group.default.svc.cluster.local",
    ]
    shared = await said_by(cluster, "other", "grep -c store /etc/hosts || cat /etc/hostname")
    assert shared == ["0", "other"]


async def test_services_are_named_by_variables_unless_the_pod_wants_none(plain):
    ports = [{"name": "web-ui", "port": 80}, {"name": "udp", "port": 53, "protocol": "UDP"}]
    service = await plain.create(SERVICES, "my-store", spec={"ports": ports})
    await plain.create(SERVICES, "headless", spec={"clusterIP": "None", "ports": [{"port": 1}]})
    address = service["spec"]["clusterIP"]
    read = "env | grep -e ^MY_STORE -e ^HEADLESS | sort"

    async def told():
        name = f"asks-{uuid.uuid4().hex[:8]}"  # the agent may not know the service yet
        return await said_by(plain, name, read)

    lines = await plain.wait_for(told, "the variables")
    assert lines == [
        f"MY_STORE_PORT=tcp://{address}:80",
        f"MY_STORE_PORT_53_UDP=udp://{address}:53",
        f"MY_STORE_PORT_53_UDP_ADDR={address}",
        "MY_STORE_PORT_53_UDP_PORT=53",
        "MY_STORE_PORT_53_UDP_PROTO=udp",
        f"MY_STORE_PORT_80_TCP=tcp://{address}:80",
        f"MY_STORE_PORT_80_TCP_ADDR={address}",
        "MY_STORE_PORT_80_TCP_PORT=80",
        "MY_STORE_PORT_80_TCP_PROTO=tcp",
        f"MY_STORE_SERVICE_HOST={address}",
        "MY_STORE_SERVICE_PORT=80",
        "MY_STORE_SERVICE_PORT_UDP=53",
        "MY_STORE_SERVICE_PORT_WEB_UI=80",
    ]
    assert await said_by(plain, "alone", read, enableServiceLinks=False) == []


async def test_a_sub_path_may_name_variables(cluster):
    mount = {"name": "all", "mountPath": "/mine", "subPathExpr": "of/$(POD)"}
    container = {
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [mount, {"name": "all", "mountPath": "/all"}],
    }
    volumes = [{"name": "all", "emptyDir": {}}]

    lines = await said_by(
        cluster, "apart", "touch /mine/a && cd /all && find . -name a", container=container, volumes=volumes
    )

    assert lines == ["./of/apart/a"]


async def test_a_pod_may_name_a_runtime_class_of_the_mode_that_runs_here(plain):
    for name in ("plain", "gvisor"):
        body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}
        await plain.client.create(RUNTIME_CLASSES, {**body, "metadata": {"name": name}})

    with pytest.raises(Forbidden, match='RuntimeClass "none" not found'):
        await plain.create_pod("none", "true", runtimeClassName="none")
    await said_by(plain, "fits", "true", runtimeClassName="plain")
    await plain.create_pod("other", "true", runtimeClassName="gvisor")

    async def told():
        events = (await plain.client.list(EVENTS)).items
        return [event["message"] for event in events if event["reason"] == "FailedCreatePodSandBox"]

    assert 'no runtime for "gvisor" is configured' in (await plain.wait_for(told, "the refusal"))[0]


async def test_a_hook_after_the_start_ends_before_the_container_is_ready(cluster):
    hook = "until [ -e $SCRATCH/go ]; do sleep 0.05; done; echo hook >> $SCRATCH/said"
    volumes = [{"name": "scratch", "emptyDir": {}}]
    container = {
        "env": [{"name": "SCRATCH", "value": "/scratch"}],
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", hook]}}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    await cluster.create_pod("slow", "sleep", "60", container=container, volumes=volumes)
    made = await cluster.wait_phase("slow", "Running")
    (folder,) = (cluster.paths.pods / made["metadata"]["uid"]).glob("volumes/scratch")

    assert [made["status"]["containerStatuses"][0][key] for key in ("ready", "started")] == [False, False]
    (folder / "go").touch()

    async def ready():
        return (await cluster.pod("slow"))["status"]["containerStatuses"][0]["ready"]

    await cluster.wait_for(ready, "the container to be ready")
    assert (folder / "said").read_text() == "hook\n"
    await cluster.delete("slow", grace_period_s=0)


async def test_a_container_whose_hook_after_the_start_fails_is_ended(plain):
    container = {"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}}
    await plain.create_pod("broken", "sleep", "60", container=container, terminationGracePeriodSeconds=5)

    pod = await plain.wait_phase("broken", "Failed")

    assert ended(pod)["exitCode"] == 143
    events = [event["reason"] for event in (await plain.client.list(EVENTS)).items]
    assert "FailedPostStartHook" in events


STOPPED = "trap 'echo term >> /scratch/said; exit 0' TERM; touch /scratch/up; while :; do sleep 0.05; done"


async def test_a_hook_before_the_stop_runs_within_the_grace_period(cluster, tmp_path):
    tmp_path.chmod(0o777)
    volumes = [{"name": "scratch", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    says = {"exec": {"command": ["sh", "-c", "echo hook >> $SCRATCH/said"]}}
    env = [{"name": "SCRATCH", "value": "/scratch"}]  # paths in hooks are not rewritten for plain pods
    container = {"lifecycle": {"preStop": says}, "env": env, **mounts}
    await cluster.create_pod("polite", "sh", "-c", STOPPED, container=container, volumes=volumes)
    await cluster.wait_for((tmp_path / "up").exists, "the program")
    await cluster.wait_phase("polite", "Running")

    await cluster.delete("polite")
    await cluster.wait_gone("polite")

    assert (tmp_path / "said").read_text() == "hook\nterm\n"


async def test_a_hook_that_outlives_the_grace_period_is_cut_off(plain, tmp_path):
    volumes = [{"name": "scratch", "hostPath": {"path": str(tmp_path)}}]
    container = {
        "lifecycle": {"preStop": {"sleep": {"seconds": 3600}}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    await plain.create_pod("stubborn", "sh", "-c", STOPPED, container=container, volumes=volumes)
    await plain.wait_for((tmp_path / "up").exists, "the program")
    await plain.wait_phase("stubborn", "Running")

    await plain.delete("stubborn", grace_period_s=1)
    await plain.wait_gone("stubborn")

    assert (tmp_path / "said").read_text() == "term\n"
    events = [event["reason"] for event in (await plain.client.list(EVENTS)).items]
    assert "FailedPreStopHook" in events


async def test_a_probe_may_have_a_grace_period_of_its_own(plain):
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    container = {"livenessProbe": {**probe, "terminationGracePeriodSeconds": 1}}
    ignores = "trap '' TERM; while :; do sleep 0.05; done"
    await plain.create_pod(
        "deaf", "sh", "-c", ignores, container=container, terminationGracePeriodSeconds=3600
    )

    assert ended(await plain.wait_phase("deaf", "Failed"))["exitCode"] == 137


async def test_a_container_that_takes_more_memory_than_its_limit_is_killed_and_says_why(cluster):
    if cluster.mode != "network":
        pytest.skip("only root has control groups")
    container = {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}
    fills = "held = bytearray(256 * 2**20); held[::4096] = b'x' * len(held[::4096])"
    await cluster.create_pod("greedy", sys.executable, "-c", fills, container=container)

    pod = await cluster.wait_phase("greedy", "Failed")

    assert (ended(pod)["reason"], ended(pod)["exitCode"]) == ("OOMKilled", 137)
    groups = [*CGROUPS.glob(f"*/*{pod['metadata']['uid']}*"), *CGROUPS.glob(f"*{pod['metadata']['uid']}*")]
    await cluster.wait_for(lambda: not any(group.exists() for group in groups), "the groups to be gone")


async def test_processors_are_limited(cluster):
    if cluster.mode != "network":
        pytest.skip("only root has control groups")
    container = {"resources": {"limits": {"cpu": "500m"}}}
    made = await cluster.create_pod("slow", "sleep", "60", container=container)
    await cluster.wait_phase("slow", "Running")
    uid = made["metadata"]["uid"]

    quotas = [*CGROUPS.glob(f"cpu/*{uid}*/cpu.cfs_quota_us"), *CGROUPS.glob(f"*{uid}*/cpu.max")]
    assert [quota.read_text().split()[0] for quota in quotas] == ["50000"]
    assert (quotas[0].parent / "cgroup.procs").read_text().split()
    await cluster.delete("slow", grace_period_s=0)


async def test_a_downward_volume_follows_the_labels_of_the_pod(plain):
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    made = await plain.create_pod(
        "told",
        "sleep",
        "60",
        metadata={"labels": {"a": "before"}},
        volumes=[{"name": "about", "downwardAPI": {"items": items}}],
    )
    await plain.wait_phase("told", "Running")
    file = plain.paths.pods / made["metadata"]["uid"] / "volumes" / "about" / "labels"
    assert file.read_text() == 'a="before"'

    await plain.client.patch(PODS, "told", {"metadata": {"labels": {"a": "after"}}}, "default", kind="merge")

    await plain.wait_for(lambda: file.read_text() == 'a="after"', "the new label")
    await plain.delete("told", grace_period_s=0)
