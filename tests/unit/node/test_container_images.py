"""Images of a container runtime: configuration, user, layers, and what an OCI runtime is told. Pure parts."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.images.image import (
    ContainerUser,
    Image,
    ImageConfig,
    chain_id,
    find_homes,
    find_user,
    read_config,
)
from gangline.cluster.images.runtime.containerd import layers_of_mount
from gangline.cluster.images.runtime.docker import layers_of_driver
from gangline.cluster.images.runtime.image_store import RuntimeFailedError, last_line
from gangline.cluster.node.pods.container_env import Lookup, PodFacts
from gangline.cluster.node.pods.container_plan import IDLE, PodFolders, StartRefusedError, plan_container
from gangline.cluster.node.pods.oci_config import oci_config
from gangline.cluster.node.pods.privileges import CAPABILITY_NAMES
from gangline.cluster.node.shim.oci import add_devices
from gangline.cluster.node.shim.syscalls import KEPT_CAPABILITIES

PASSWD = "root:x:0:0:root:/root:/bin/sh\nmpiuser:x:1000:1001:,,,:/home/mpiuser:/bin/sh\nbroken\n"
GROUP = "root:x:0:\nmpi:x:1001:\nvideo:x:44:mpiuser,root\n"
WHOLE = Image(
    "acme/x",
    env={"PATH": "/app/bin", "WORD": "image"},
    layers=("/layers/1",),
    is_whole=True,
    config=ImageConfig(("/entry", "-v"), ("serve",), "/app", "mpiuser"),
    user=ContainerUser(1000, 1001, (44,)),
    homes={0: "/root", 1000: "/home/mpiuser"},
    oci_runtime="/usr/sbin/runc",
)


def plan(container, image=WHOLE, isolation="network"):
    spec = {"containers": [{"name": "c", "image": "acme/x"} | container]}
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}, Pod)
    place = PodFolders(
        isolation=isolation,
        cluster_id="abcd",
        folder=Path("/pods/u"),
        logs=Path("/logs/u"),
        bin=Path("/state/bin"),
        names=Path("/run/x/names/ns"),
        hosts=Path("/state/hosts/ns"),
        resolv=None,
        api_host="10.0.0.1",
        api_port=16443,
        hide=("/home",),
        start_folders="/guard",
    )
    lookup = Lookup(lambda _: None, lambda _: None)
    return plan_container(pod, pod.spec.containers[0], 0, image, place, {}, PodFacts("", "", {}), lookup)


@pytest.mark.parametrize(
    ("command", "args", "want"),
    [
        ([], [], ["/entry", "-v", "serve"]),
        ([], ["other"], ["/entry", "-v", "other"]),
        (["sh"], [], ["sh"]),
        (["sh"], ["-c", "x"], ["sh", "-c", "x"]),
    ],
)
def test_command_replaces_entrypoint_and_cmd_and_args_replace_cmd(command, args, want):
    assert WHOLE.argv(command, args) == want


def test_configuration_is_read_with_what_is_missing():
    config, env = read_config({"Entrypoint": None, "Cmd": ["x"], "Env": ["A=1", "B=x=y"], "User": "u"})

    assert config == ImageConfig((), ("x",), "", "u")
    assert env == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", ContainerUser(0, 0, (44,))),
        ("mpiuser", ContainerUser(1000, 1001, (44,))),
        ("1000", ContainerUser(1000, 1001, (44,))),
        ("mpiuser:video", ContainerUser(1000, 44)),
        ("7:8", ContainerUser(7, 8)),
        ("7", ContainerUser(7, 0)),
        ("nobody", None),
        ("root:nogroup", None),
    ],
)
def test_a_user_is_looked_up_in_the_images_own_files(text, want):
    assert find_user(text, PASSWD, GROUP) == want


def test_homes_are_those_of_the_images_users():
    assert find_homes(PASSWD) == {0: "/root", 1000: "/home/mpiuser"}


def test_chain_id_is_the_digest_of_all_layers():
    first, second = "sha256:aa", "sha256:bb"
    want = "sha256:" + hashlib.sha256(b"sha256:aa sha256:bb").hexdigest()

    assert chain_id([first]) == first
    assert chain_id([first, second]) == want


def test_a_container_of_an_image_gets_its_environment_folder_and_user():
    found = plan({"env": [{"name": "WORD", "value": "own"}]})

    assert found["argv"] == ["/entry", "-v", "serve"]
    assert found["cwd"] == "/app"
    assert found["user"] == {"uid": 1000, "gid": 1001, "groups": [44]}
    assert found["env"]["WORD"] == "own"
    assert found["env"]["HOME"] == "/home/mpiuser"
    assert found["env"]["PATH"] == "/app/bin:/run/gangline/bin"
    assert not [name for name in found["env"] if name.startswith(("OMPI_", "PRTE_", "PYTHONPATH"))]
    assert (found["root"]["whole"], found["root"]["layers"], found["root"]["hide"]) == (
        True,
        ["/layers/1"],
        [],
    )


def test_the_pods_own_user_comes_before_the_images():
    found = plan({"securityContext": {"runAsUser": 0}})

    assert found["user"] == {"uid": 0, "gid": 0, "groups": []}
    assert found["env"]["HOME"] == "/root"


def test_an_images_ssh_server_runs_where_the_pod_has_an_address_of_its_own():
    sshd = {"command": ["/usr/sbin/sshd", "-De"]}

    assert plan(sshd)["argv"] == ["/usr/sbin/sshd", "-De"]
    assert plan(sshd, isolation="user")["argv"] == list(IDLE)
    assert plan({}, isolation="user")["env"]["PRTE_MCA_plm_ssh_agent"] == "/run/gangline/bin/gangline-rsh"


def test_without_mounts_no_pod_sees_the_files_of_a_folder():
    with pytest.raises(StartRefusedError, match="isolation `plain` has no mounts"):
        plan({}, isolation="plain")


def test_an_image_that_runs_nothing_needs_a_command():
    with pytest.raises(StartRefusedError, match="no command: image `acme/y` has none of its own"):
        plan({}, image=Image("acme/y", layers=("/l",), is_whole=True))


def test_layers_are_those_of_the_snapshots_mount():
    overlay = "mount -t overlay overlay /mnt -o index=off,lowerdir=/s/3/fs:/s/1/fs"

    assert layers_of_mount(overlay) == ["/s/3/fs", "/s/1/fs"]
    assert layers_of_mount("mount -t bind /s/1/fs /mnt -o ro,rbind") == ["/s/1/fs"]
    with pytest.raises(RuntimeFailedError):
        layers_of_mount("mount -t ext4 /dev/dm-1 /mnt -o ro")


def test_layers_of_docker_and_podman_are_those_of_their_driver():
    data = {"LowerDir": "/d/2:/d/1", "UpperDir": "/d/3", "WorkDir": "/d/w"}

    assert layers_of_driver({"GraphDriver": {"Name": "overlay2", "Data": data}}) == ["/d/3", "/d/2", "/d/1"]
    assert layers_of_driver({"GraphDriver": {"Name": "overlay", "Data": {"UpperDir": "/d/1"}}}) == ["/d/1"]
    assert layers_of_driver({"GraphDriver": {"Name": "vfs", "Data": {}}}) == []
    assert layers_of_driver({}) == []


def test_an_oci_runtime_is_told_of_user_limits_and_capabilities():
    config = oci_config(
        plan({}), cgroup="/g", permitted=frozenset(range(64)) - {24}, memory_bytes=1 << 20, cpus=1.5
    )

    assert config["process"]["user"] == {"uid": 1000, "gid": 1001, "additionalGids": [44]}
    assert "WORD=image" in config["process"]["env"]
    assert config["process"]["capabilities"]["effective"] == []
    assert "CAP_SYS_RESOURCE" not in config["process"]["capabilities"]["bounding"]
    assert "CAP_SYS_CHROOT" in config["process"]["capabilities"]["bounding"]
    assert config["linux"]["cgroupsPath"] == "/g"
    assert config["linux"]["resources"]["memory"] == {"limit": 1 << 20}
    assert config["linux"]["resources"]["cpu"] == {"quota": 150_000, "period": 100_000}
    assert config["linux"]["resources"]["devices"][0] == {"allow": False, "access": "rwm"}


def test_device_nodes_of_the_pod_are_made_and_allowed():
    linux = {"devices": [], "resources": {"devices": []}}

    add_devices(linux, ["/dev/null", "/dev/no-such-device"])

    node = {"path": "/dev/null", "type": "c", "fileMode": 0o666, "uid": 0, "gid": 0, "major": 1, "minor": 3}
    assert linux["devices"] == [node]
    assert linux["resources"]["devices"] == [
        {"allow": True, "type": "c", "access": "rw", "major": 1, "minor": 3}
    ]


def test_every_kept_capability_has_a_name():
    assert set(CAPABILITY_NAMES) > KEPT_CAPABILITIES


def test_the_last_line_of_a_program_is_its_reason():
    assert last_line("INFO trying\n\nctr: not found\n\n") == "ctr: not found"
    assert last_line("") == ""
