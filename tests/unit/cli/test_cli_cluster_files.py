"""Facts, locks and folders of the one-machine cluster."""

import errno
import ipaddress
import json
import os
import subprocess
import sys

import pytest

from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.daemon.cluster_facts import (
    decide_facts,
    free_subnet,
    is_port_free,
    load_facts,
    policy_of,
    read_routes,
    refuse_other_bounds,
    save_facts,
)
from gangline.cluster.daemon.daemon import daemon_environment
from gangline.cluster.daemon.folders import make_private_folders, mounts_under
from gangline.cluster.daemon.kept_image_map import load_image_map
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import ProcessLock, read_lock
from gangline.errors import UserError
from gangline.placement import SuspensionBounds

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
gl-1\t0000D50A\t00000000\t0001\t0\t0\t0\t00F0FFFF\t0\t0\t0
"""


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    found = ClusterPaths.of("test")
    make_private_folders(found)
    return found


def test_routes_are_read_without_the_default_route_and_the_own_bridge(tmp_path):
    table = tmp_path / "route"
    table.write_text(ROUTES)
    assert [str(route) for route in read_routes(table=table)] == ["192.168.1.0/24", "10.213.0.0/20"]
    assert [str(route) for route in read_routes(table=table, ignore_interface="gl-1")] == ["192.168.1.0/24"]


def test_a_subnet_that_a_route_meets_is_not_chosen():
    taken = ipaddress.IPv4Network("10.213.0.0/20")
    assert free_subnet("", "0", []) == "10.213.0.0/20"
    assert free_subnet("", "0", [taken]) == "10.213.16.0/20"
    assert free_subnet("10.213.0.0/20", "3", [taken]) == "10.213.48.0/20"
    assert free_subnet("10.213.0.0/20", "3", []) == "10.213.0.0/20"


def test_facts_survive_a_restart(paths):
    first = decide_facts(paths, None, nodes=2, isolation="plain", keep=False)
    save_facts(paths, first)
    again = decide_facts(paths, load_facts(paths), nodes=1, isolation="plain", keep=True)
    assert (again.port, again.subnet, again.bridge, again.created) == (
        first.port,
        first.subnet,
        first.bridge,
        first.created,
    )
    assert (again.nodes, again.keep) == (1, True)
    assert len(first.bridge) <= 15
    assert is_port_free(first.port)


def test_broken_facts_count_as_none(paths):
    paths.facts.write_text("{not json")
    assert load_facts(paths) is None


def test_a_lock_is_held_by_one_process_and_free_after_its_end(paths):
    path = paths.lock("server")
    assert read_lock(path).state == "free"
    with ProcessLock(path) as lock:
        assert lock.acquire()
        assert (read_lock(path).state, read_lock(path).pid) == ("held", os.getpid())
        assert not ProcessLock(path).acquire(timeout_s=0)
    assert (read_lock(path).state, read_lock(path).pid) == ("free", 0)


def test_the_lock_of_a_killed_process_says_so(paths):
    path = paths.lock("server")
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from gangline.cluster.process_lock import ProcessLock\n"
        "ProcessLock(Path(sys.argv[1])).acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -9
    found = read_lock(path)
    assert found.state == "killed"
    with ProcessLock(path) as lock:
        assert lock.acquire()
        assert lock.previous == found


def test_folders_of_sockets_are_private_and_must_be_ours(paths, monkeypatch):
    assert paths.run.stat().st_mode & 0o777 == 0o700
    paths.run.chmod(0o755)
    make_private_folders(paths)
    assert paths.run.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: 4242)
    monkeypatch.setattr("tempfile.tempdir", str(paths.run.parent.parent))
    with pytest.raises(UserError):
        elsewhere = ClusterPaths.of("test")
        elsewhere.run.parent.parent.mkdir(exist_ok=True)
        elsewhere.run.parent.mkdir(exist_ok=True)
        make_private_folders(elsewhere)


def test_mounts_below_a_folder_are_found(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text("1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /state/pods/x rw - overlay o rw\n")
    assert mounts_under(tmp_path.__class__("/state"), table) == ["/state/pods/x"]
    assert mounts_under(tmp_path.__class__("/stat"), table) == []


def test_a_daemon_does_not_inherit_an_mpi_run_or_a_python_path():
    kept = daemon_environment({"PATH": "/bin", "PYTHONPATH": "/x", "OMPI_COMM_WORLD_RANK": "1", "HOME": "/h"})
    assert set(kept) == {"PATH", "HOME", "PYTHONUNBUFFERED"}


def test_images_of_a_cluster_that_is_starting_are_read_without_its_server(paths):
    with ProcessLock(paths.lock("server")) as server:
        assert server.acquire()

        assert load_image_map(Cluster(paths)).images == {}


def test_bounds_on_suspension_are_kept_and_change_only_with_a_start(paths):
    bounds = SuspensionBounds(min_run_s=5.0)
    save_facts(paths, decide_facts(paths, None, nodes=1, isolation="plain", keep=True, suspension=bounds))
    facts = load_facts(paths)

    assert facts.suspension == bounds
    assert policy_of(facts).suspension == bounds
    assert decide_facts(paths, facts, nodes=1, isolation="plain", keep=True).suspension == bounds
    refuse_other_bounds(facts, None)
    with pytest.raises(UserError, match="min_run_s=5, min_run_s=600 was asked for"):
        refuse_other_bounds(facts, SuspensionBounds())


@pytest.mark.parametrize("text", [b"[]", b'{"port": "x"}', b"\xff"])
def test_facts_of_another_form_count_as_none(paths, text):
    paths.facts.write_bytes(text)
    assert load_facts(paths) is None


def test_facts_of_another_release_are_read(paths):
    first = decide_facts(paths, None, nodes=2, isolation="plain", keep=False)
    save_facts(paths, first)
    known = json.loads(paths.facts.read_text())
    del known["suspension"]
    paths.facts.write_text(json.dumps(known | {"later": 1}))
    assert load_facts(paths) == first


def test_a_cluster_is_ended_on_a_full_disk_too(paths, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    said = []

    assert not Cluster(paths).down(say=said.append)  # there was none, and that was looked at

    assert said == [f"cannot write `{paths.lock('start')}`: No space left on device; ending it all the same"]
