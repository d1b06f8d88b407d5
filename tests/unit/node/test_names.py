"""Host names of pods: hosts files in place, links for the remote shell; addresses."""

import ipaddress
import socket
from pathlib import Path

import pytest

from gangline.cluster.node.network.addresses import NODE_ADDRESSES, AddressPool, node_address
from gangline.cluster.node.network.host_names import NameRegistry, PodHost, hosts_text
from gangline.cluster.node.network.pod_network import interface_name, interface_prefix
from gangline.errors import ClusterError


def registry(folder: Path) -> NameRegistry:
    return NameRegistry(hosts_folder=folder / "hosts", names_folder=folder / "names", pods=folder / "pods")


WORKER = PodHost("10.0.0.2", "job-worker-0", "job-worker-0", "job", "ns", "ns")


def test_hosts_file_lists_every_name_of_a_pod_most_qualified_first():
    (line,) = [line for line in hosts_text([WORKER]).splitlines() if line.startswith("10.0.0.2")]

    assert line == (
        "10.0.0.2\tjob-worker-0.job.ns.svc.cluster.local job-worker-0.job.ns.svc job-worker-0.job.ns "
        "job-worker-0.job job-worker-0"
    )


def test_hosts_file_names_ipv4_peers_of_sockets_of_both_families():
    """As torch's store sees them; the names are others, so that looking a pod up gives one address."""
    lines = hosts_text([WORKER]).splitlines()

    assert "::ffff:10.0.0.2\tip4-mapped-job-worker-0" in lines
    assert "::ffff:127.0.0.1\tip4-mapped-localhost" in lines


def test_hosts_file_keeps_its_inode_when_pods_come_and_go(tmp_path):
    names = registry(tmp_path)
    path = names.hosts_file("ns")
    inode = path.stat().st_ino

    names.add("u1", WORKER)
    names.add("u2", PodHost("10.0.0.3", "other", "other", "", "ns", "ns"))
    assert "job-worker-0.job" in path.read_text()
    names.remove("u1", "ns")

    assert path.stat().st_ino == inode
    assert "job-worker-0" not in path.read_text()
    assert "localhost" in path.read_text()


def test_hosts_files_say_whose_network_a_pod_has(tmp_path):
    """As the kubelet says it: programs take a file with the first line for the cluster's."""
    names = registry(tmp_path)
    own = tmp_path / "pods" / "u2" / "hosts"
    own.parent.mkdir(parents=True)

    names.add("u2", PodHost("10.0.0.1", "outer", "outer", "", "ns", "ns", host_network=True))
    names.add("u1", WORKER)

    shared = names.hosts_file("ns").read_text()
    assert shared.startswith("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")
    assert own.read_text().startswith(
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n"
    )
    assert own.read_text().splitlines()[1:] == shared.splitlines()[1:]


def test_files_of_a_namespace_go_with_its_last_pod(tmp_path):
    names = registry(tmp_path)
    names.hosts_file("ns")
    names.folder("ns")
    names.add("u1", WORKER)

    names.remove("u1", "ns")

    assert list((tmp_path / "hosts").iterdir()) == list((tmp_path / "names").iterdir()) == []


@pytest.fixture
def shell_socket(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


def test_name_leads_to_the_socket_even_where_only_the_folder_is_seen(tmp_path, shell_socket):
    names = registry(tmp_path)
    names.add("u1", WORKER)
    names.link(WORKER, shell_socket)

    for alias in ("job-worker-0", "10.0.0.2", "job-worker-0.job"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(tmp_path / "names" / "ns" / alias))
        assert not (tmp_path / "names" / "ns" / alias).is_symlink()


def test_names_of_a_successor_survive_the_end_of_its_predecessor(tmp_path, shell_socket):
    names = registry(tmp_path)
    again = PodHost("10.0.0.3", "job-worker-0", "job-worker-0", "job", "ns", "ns")
    for uid, host in (("u1", WORKER), ("u2", again)):
        names.add(uid, host)
        names.link(host, shell_socket)

    names.remove("u1", "ns")

    left = {path.name for path in (tmp_path / "names" / "ns").iterdir()}
    assert "job-worker-0.job" in left
    assert "10.0.0.2" not in left


def test_taking_over_keeps_living_names_and_drops_the_rest(tmp_path, shell_socket):
    before = registry(tmp_path)
    gone = PodHost("10.0.0.9", "gone", "gone", "", "ns", "ns")
    for uid, host in (("u1", WORKER), ("u2", gone)):
        before.add(uid, host)
        before.link(host, shell_socket)
    inode = before.hosts_file("ns").stat().st_ino

    after = registry(tmp_path)
    removed = after.take_over([("u1", WORKER)])

    assert removed == len(gone.aliases)
    assert after.hosts_file("ns").stat().st_ino == inode
    assert "gone" not in after.hosts_file("ns").read_text()


def test_addresses_go_round_and_leave_out_gateway_and_broadcast():
    pool = AddressPool("10.0.0.0/29")
    first = [pool.take() for _ in range(5)]

    assert first == ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
    with pytest.raises(ClusterError, match="no address"):
        pool.take()
    pool.release("10.0.0.3")
    assert pool.take() == "10.0.0.3"


def test_reserved_address_is_not_given_out():
    pool = AddressPool("10.0.0.0/29")
    pool.reserve("10.0.0.2")

    assert pool.take() == "10.0.0.3"


def test_interface_names_fit_the_kernel_and_carry_the_clusters_prefix():
    name = interface_name("0123456789", "some-uid")

    assert len(name) == 15
    assert name.startswith(interface_prefix("0123456789"))
    assert name != interface_name("0123456789", "other-uid")


def test_nodes_have_addresses_that_no_pod_is_given() -> None:
    subnet = ipaddress.IPv4Network("10.213.0.0/24")
    pool = AddressPool(str(subnet), kept=NODE_ADDRESSES)
    pods = {pool.take() for _ in range(256 - 3 - NODE_ADDRESSES)}

    nodes = [node_address(subnet, f"node-{index}") for index in range(NODE_ADDRESSES + 1)]

    assert nodes[:3] == ["10.213.0.1", "10.213.0.254", "10.213.0.253"]
    assert len(set(nodes)) == NODE_ADDRESSES + 1
    assert not pods & set(nodes)
    with pytest.raises(ClusterError, match="is free"):
        pool.take()


@pytest.mark.parametrize("name", ["mine", "node-", "node-65", "node-1000", "a-node-1"])
def test_a_node_of_another_name_has_the_bridges_address(name: str) -> None:
    assert node_address(ipaddress.IPv4Network("10.213.0.0/24"), name) == "10.213.0.1"
