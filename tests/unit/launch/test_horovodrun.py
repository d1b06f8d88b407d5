"""Options of horovodrun, the variables that they become, its configuration file, its hosts."""

from __future__ import annotations

import sys

import pytest

from gangline.errors import UserError
from gangline.launch.elastic.elastic_start import ElasticOptions
from gangline.launch.horovod_options import apply_config, knob_variables, parser
from gangline.launch.horovodrun import common_interfaces, elastic_options, hosts_and_count
from gangline.launch.hosts import Host, parse_hosts, plan_ranks
from gangline.launch.preflight.findings import HostFacts


def variables(*words: str) -> dict[str, str]:
    return knob_variables(parser().parse_args([*words, "python", "train.py"]))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fusion-threshold-mb", "64"], {"HOROVOD_FUSION_THRESHOLD": "67108864"}),
        (["--cycle-time-ms", "2.5"], {"HOROVOD_CYCLE_TIME": "2.5"}),
        (["--cache-capacity", "0"], {"HOROVOD_CACHE_CAPACITY": "0"}),
        (["--hierarchical-allreduce"], {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        (["--no-hierarchical-allgather"], {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}),
        (["--autotune", "--autotune-log-file", "f"], {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": "f"}),
        (["--timeline-filename", "t", "--timeline-mark-cycles"],
         {"HOROVOD_TIMELINE": "t", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}),
        (["--no-stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (["--stall-check-warning-time-seconds", "9"], {"HOROVOD_STALL_CHECK_TIME_SECONDS": "9"}),
        (["--mpi-threads-disable"], {"HOROVOD_MPI_THREADS_DISABLE": "1"}),
        (["--no-mpi-threads-disable"], {"HOROVOD_MPI_THREADS_DISABLE": "0"}),
        (["--no-log-hide-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "0"}),
        (["--log-level", "INFO", "--log-without-timestamp"],
         {"HOROVOD_LOG_LEVEL": "INFO", "HOROVOD_LOG_HIDE_TIME": "1"}),
        ([], {}),
    ],
)  # fmt: skip
def test_tuning_options_become_variables(words: list[str], expected: dict[str, str]) -> None:
    assert variables(*words) == expected


@pytest.mark.parametrize("spelling", ["-np", "--num-proc"])
def test_options_end_where_the_program_begins(spelling: str) -> None:
    given = parser().parse_args([spelling, "4", "--gloo", "python", "train.py", "-np", "9", "--mpi"])

    assert (given.num_proc, given.gloo, given.mpi) == (4, True, False)
    assert given.command == ["python", "train.py", "-np", "9", "--mpi"]


@pytest.mark.parametrize("spelling", ["--network-interfaces", "--network-interface"])
def test_both_spellings_of_the_interfaces_are_taken(spelling: str) -> None:
    assert parser().parse_args([spelling, "eth0,eth1", "x"]).nics == "eth0,eth1"


def test_one_interface_after_the_other_may_be_named() -> None:
    words = ["--network-interface", "eth0", "--network-interface", "eth1", "x"]

    assert parser().parse_args(words).nics == "eth0,eth1"


@pytest.mark.parametrize(
    "words", [["-H", "a:1", "--hostfile", "f"], ["--gloo", "--mpi"], ["-np", "two"], ["--nonsense"]]
)
def test_wrong_use_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError):
        parser().parse_args([*words, "python"])


def test_the_configuration_file_gives_what_the_command_line_left_out() -> None:
    given = parser().parse_args(["-np", "2", "--cycle-time-ms", "7", "python"])
    text = """
# tuning
verbose: true
params:
  fusion-threshold-mb: 32   # small
  cycle-time-ms: 1
autotune:
  enabled: true
  log-file: "tune.log"
stall-check:
  enabled: no
"""

    apply_config(given, text, "c.yaml")

    assert given.verbose is True
    assert knob_variables(given) == {
        "HOROVOD_FUSION_THRESHOLD": "33554432",
        "HOROVOD_CYCLE_TIME": "7.0",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "tune.log",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
    }


@pytest.mark.parametrize("text", ["params:\n  nonsense: 1\n", "- a\n", "  indented: 1\n", "np: [1, 2\n  x"])
def test_a_line_that_cannot_be_used_is_named(text: str) -> None:
    given = parser().parse_args(["-np", "2", "python"])

    with pytest.raises(UserError) as raised:
        apply_config(given, text, "c.yaml")
    assert raised.value.where.startswith("c.yaml:")


def test_without_hosts_this_machine_takes_all_ranks() -> None:
    assert hosts_and_count(parser().parse_args(["-np", "8", "python"])) == ([Host("localhost", 8)], 8)


def test_the_number_of_ranks_is_needed() -> None:
    with pytest.raises(UserError, match="number of ranks"):
        hosts_and_count(parser().parse_args(["-H", "a:2", "python"]))


def test_slots_are_compulsory_behind_hosts() -> None:
    with pytest.raises(UserError, match="HOST:SLOTS"):
        hosts_and_count(parser().parse_args(["-np", "2", "-H", "a,b", "python"]))


def test_a_discovery_script_or_a_least_number_of_ranks_makes_it_elastic() -> None:
    words = ["--host-discovery-script", "./hosts.sh", "--slots-per-host", "4", "--min-np", "2", "python"]
    elastic = elastic_options(parser().parse_args(words))

    assert elastic == ElasticOptions(
        2, None, sys.maxsize, ("/bin/sh", "-c", "./hosts.sh"), discovered_slots=4, cool_down_s=30.0
    )
    words = [
        "-np",
        "4",
        "--min-np",
        "2",
        "--reset-limit",
        "3",
        "--blacklist-cooldown-range",
        "5",
        "9",
        "python",
    ]
    assert elastic_options(parser().parse_args(words)) == ElasticOptions(2, 4, 3, cool_down_s=5.0)
    assert elastic_options(parser().parse_args(["-np", "4", "python"])) is None


def test_ranks_do_not_come_and_go_under_mpi() -> None:
    with pytest.raises(UserError, match="--mpi"):
        elastic_options(parser().parse_args(["--mpi", "--min-np", "2", "python"]))


def facts(name: str, interfaces: dict[str, list[object]], reached: dict[str, list[str]]) -> HostFacts:
    return HostFacts(Host(name, 1), facts={"interfaces": interfaces}, reached=reached)


def test_interfaces_are_those_by_which_hosts_reached_each_other() -> None:
    docker: list[object] = [True, "172.17.0.1"]
    hosts = [
        facts("a", {"docker0": docker, "ib0": [True, "10.0.0.1"]}, {"b": ["", "10.0.0.2"]}),
        facts("b", {"docker0": docker, "ib0": [True, "10.0.0.2"]}, {"a": ["", "10.0.0.1"]}),
    ]
    places = plan_ranks(parse_hosts("a:1,b:1"), 2)

    assert common_interfaces(None, places, hosts) == ["ib0"]
    assert common_interfaces("eth5", places, hosts) == ["eth5"]


def test_hosts_whose_interfaces_have_different_names_get_none() -> None:
    hosts = [
        facts("a", {"eth0": [True, "10.0.0.1"]}, {"b": ["", "10.0.0.2"]}),
        facts("b", {"ens3": [True, "10.0.0.2"]}, {"a": ["", "10.0.0.1"]}),
    ]

    assert common_interfaces(None, plan_ranks(parse_hosts("a:1,b:1"), 2), hosts) == []
