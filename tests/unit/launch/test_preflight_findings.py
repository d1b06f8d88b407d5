"""Each class of fault is named, with the host and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gangline.launch.hosts import Host
from gangline.launch.preflight.findings import Finding, HostFacts, Wanted, judge

OPEN_MPI_5 = "mpirun (Open MPI) 5.0.11\n"
WANTED = Wanted(mpi=("openmpi", 5), mpi_path="/opt/bin/mpirun", program="python", cwd="/code")


def healthy(name: str = "h1", **facts: Any) -> HostFacts:
    known = {
        "interfaces": {"lo": [True, "127.0.0.1"], "eth0": [True, "10.0.0.1"], "eth1": [False, ""]},
        "mpi": ["/opt/bin/mpirun", OPEN_MPI_5],
        "gpus": 0,
        "driver": "",
        "folder": True,
        "program": True,
    }
    return HostFacts(Host(name, 2), facts=known | facts, reached={})


def only(findings: list[Finding]) -> tuple[str, str, str]:
    assert len(findings) == 1, findings
    assert findings[0].fix
    return findings[0].kind, findings[0].severity, findings[0].message


def test_healthy_hosts_have_no_finding() -> None:
    assert judge([healthy("h1"), healthy("h2")], WANTED) == []


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ("ssh: Could not resolve hostname h1: Name or service not known", "name", "does not resolve"),
        ("ssh: connect to host h1 port 22: Connection refused", "remote-shell", "nothing listens"),
        ("ssh: connect to host h1 port 22: Connection timed out", "remote-shell", "does not answer"),
        ("ssh: connect to host h1 port 22: No route to host", "remote-shell", "does not answer"),
        ("root@h1: Permission denied (publickey).", "remote-shell", "refuses your key"),
        ("Host key verification failed.", "remote-shell", "host key"),
        ("gangline: no python3 on this host", "python", "no python3"),
    ],
)
def test_what_ssh_says_has_a_class_and_a_fix(words: str, kind: str, message: str) -> None:
    found = judge([HostFacts(Host("h1", 1), words=words, shell_code=255)], WANTED)

    assert only(found)[:2] == (kind, "fault")
    assert message in found[0].message


def test_an_unknown_name_is_no_fault_of_the_remote_shell() -> None:
    assert only(judge([HostFacts(Host("h9", 1), resolves=False)], WANTED))[0] == "name"


def test_a_slow_answer_stops_a_check_but_not_a_start_that_has_a_deadline_of_its_own() -> None:
    slow = HostFacts(Host("h1", 1))

    assert only(judge([slow], WANTED))[:2] == ("remote-shell", "fault")
    assert only(judge([slow], replace(WANTED, is_start=True)))[:2] == ("remote-shell", "warning")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ([], "mpi-missing"),
        (["/usr/bin/mpirun", "mpirun: error while loading shared libraries"], "mpi-missing"),
        (["/usr/bin/mpirun", "mpirun (Open MPI) 4.1.4"], "mpi-mismatch"),
        (["/usr/bin/mpirun", "HYDRA build details:\n    Version:           4.0.2"], "mpi-mismatch"),
    ],
)
def test_flavour_and_major_version_of_the_mpi_must_agree(found: list[str], kind: str) -> None:
    assert only(judge([healthy(), healthy("h2", mpi=found)], WANTED))[:2] == (kind, "fault")


def test_another_minor_version_is_no_fault_and_without_mpi_none_is_asked_for() -> None:
    assert judge([healthy(mpi=["/x", "mpirun (Open MPI) 5.1.0"])], WANTED) == []
    assert judge([healthy(mpi=[])], replace(WANTED, mpi=None)) == []


@pytest.mark.parametrize(("name", "message"), [("ib0", "no interface `ib0`"), ("eth1", "is down")])
def test_interfaces_must_exist_and_be_up(name: str, message: str) -> None:
    kind, _, words = only(judge([healthy()], replace(WANTED, interfaces=[name])))

    assert kind == "interface"
    assert message in words


def test_folder_and_program_must_be_there() -> None:
    assert only(judge([healthy(folder=False)], WANTED))[0] == "folder"
    assert only(judge([healthy(program=False)], WANTED))[0] == "program"


def test_peers_that_do_not_resolve_or_cannot_be_reached_are_named() -> None:
    one = replace(healthy(), reached={"h2": ["name", "unknown"], "h3": ["port", "10.0.0.3 port 4: refused"]})
    found = judge([one], WANTED)

    assert [(finding.kind, finding.host) for finding in found] == [("name", "h1"), ("port", "h1")]
    assert "`h2`" in found[0].message
    assert "10.0.0.3 port 4" in found[1].message


def test_a_clock_counts_as_wrong_only_beyond_what_was_measured() -> None:
    assert only(judge([replace(healthy(), clock_s=-10.0, clock_error_s=0.1)], WANTED))[:2] == (
        "clock",
        "warning",
    )
    assert judge([replace(healthy(), clock_s=2.5, clock_error_s=0.6)], WANTED) == []


def test_unequal_gpus_and_drivers_are_warnings() -> None:
    hosts = [healthy("h1", gpus=2, driver="550.1"), healthy("h2", gpus=1, driver="535.2")]

    assert sorted((f.kind, f.severity) for f in judge(hosts, WANTED)) == [
        ("driver", "warning"),
        ("gpu", "warning"),
    ]


def test_faults_come_before_warnings() -> None:
    hosts = [replace(healthy("h1"), clock_s=60.0), healthy("h2", folder=False)]

    assert [finding.severity for finding in judge(hosts, WANTED)] == ["fault", "warning"]
