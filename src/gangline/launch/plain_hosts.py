"""`gangline launch`: check the hosts, then start ranks on them with the MPI that is there, or without any."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ClusterError, UserError
from gangline.launch.hosts import Host, RankHost, hosts_of
from gangline.launch.mpi import MpiInstallation, MpiNotFoundError, find_mpi
from gangline.launch.mpi_start import MpiPlan, run_with_mpi
from gangline.launch.mpirun import master_port
from gangline.launch.preflight.ask import ask_hosts
from gangline.launch.preflight.findings import Finding, HostFacts, Wanted, judge
from gangline.launch.rank_output import Prefix, RankOutput, plain_prefix
from gangline.launch.rank_places import master_address
from gangline.launch.rank_start import RankStart, StartOptions
from gangline.launch.remote_host import RemoteShell, is_this_host

SHOWN_FINDINGS_MAX = 20
HINT = "`gangline check` asks again; --no-check starts in spite of it"


class PreflightError(ClusterError):
    """Hosts are not fit for a start; nothing was started."""

    code = "preflight"


@dataclass(frozen=True, slots=True)
class Launch:
    """A start on hosts.

    Attributes:
        places: of all ranks.
        options: command, folder, environment, remote shell.
        use_mpi: take the MPI that is found; else, and where there is none, ranks are started without.
        check: ask the hosts first, where any is not this machine.
        prefix: what stands before a line of a rank's output, without MPI.
        output_folder: where each rank's output is written too; None for nowhere.
    """

    places: Sequence[RankHost]
    options: StartOptions
    use_mpi: bool = True
    check: bool = True
    prefix: Prefix = plain_prefix
    output_folder: Path | None = None


def launcher_mpi(path: str | None = None) -> MpiInstallation | None:
    """Return the MPI that would be used, None where there is none."""
    try:
        return find_mpi(path)
    except MpiNotFoundError:
        return None


def wanted_of(
    mpi: MpiInstallation | None,
    shell: RemoteShell,
    *,
    interfaces: Sequence[str] = (),
    program: str = "",
    path: str = "",
    cwd: str = "",
    is_start: bool = False,
) -> Wanted:
    """Return what hosts are asked for."""
    return Wanted(
        mpi=(mpi.flavour, mpi.major) if mpi else None,
        mpi_path=str(mpi.mpirun) if mpi else "",
        interfaces=interfaces,
        program=program,
        path=path,
        cwd=cwd,
        shell=shell.program,
        is_start=is_start,
    )


def show_output(stream: str, line: bytes) -> None:
    """Pass a line on to this process's own stream; a reader that went away ends the run."""
    data = memoryview(line)
    while data:
        data = data[os.write(1 if stream == "stdout" else 2, data) :]


def run_launch(launch: Launch, say: Callable[[str], None]) -> None:
    """Check, start and follow; return when all ranks have ended well.

    Raises:
        PreflightError: a host is not fit; the message has every fault with its fix.
        StartError, JobFailedError: see ``rank_start``.
        UserError: the remote shell's program is missing.
    """
    mpi = launcher_mpi() if launch.use_mpi else None
    hosts = hosts_of(launch.places)
    is_remote = not all(launch.options.is_local(host.name) for host in hosts)
    facts: list[HostFacts] = []
    if is_remote and launch.check:
        facts = _preflight(launch, hosts, mpi, say)
    how = mpi.title if mpi else "the remote shell alone" if is_remote else "no MPI"
    count = "1 rank" if len(launch.places) == 1 else f"{len(launch.places)} ranks"
    say(f"starting {count} on {', '.join(f'{h.name}:{h.slots}' for h in hosts)} with {how}")
    if mpi is None:
        output = RankOutput(show_output, launch.prefix, launch.output_folder, len(launch.places))
        asyncio.run(RankStart(launch.places, launch.options, output).run())
        return
    addresses = _addresses(facts)
    interface = launch.options.interfaces[0] if launch.options.interfaces else ""
    address = master_address(launch.places, addresses, interface, all_local=not is_remote)
    port = master_port(f"{os.getpid()}-{time.time_ns()}")
    silent = frozenset(one.host.name for one in facts if not one.facts)
    plan = MpiPlan(
        mpi, launch.places, launch.options, (address, port), silent, is_remote, launch.output_folder
    )
    asyncio.run(run_with_mpi(plan, show_output))


def _addresses(facts: Sequence[HostFacts]) -> dict[str, str]:
    """Return interface -> address of rank 0's host."""
    if not facts or not facts[0].facts:
        return {}
    known = facts[0].facts.get("interfaces") or {}
    return {name: address for name, (is_up, address) in known.items() if is_up and address}


def _preflight(
    launch: Launch, hosts: Sequence[Host], mpi: MpiInstallation | None, say: Callable[[str], None]
) -> list[HostFacts]:
    options = launch.options
    wanted = wanted_of(
        mpi,
        options.shell,
        interfaces=options.interfaces,
        program=options.command[0],
        path=options.environment.get("PATH", ""),
        cwd=options.cwd,
        is_start=True,
    )
    began = time.monotonic()
    facts = ask(hosts, options.shell, wanted, is_local=options.is_local)
    findings = judge(facts, wanted)
    for finding in findings:
        if finding.severity == "warning":
            say(f"warning[{finding.kind}]: {finding.host}: {finding.message}")
    faults = [finding for finding in findings if finding.severity == "fault"]
    if faults:
        raise preflight_error(faults, len(hosts))
    answered = sum(1 for one in facts if one.facts)
    say(f"preflight: {answered} of {len(hosts)} hosts answered in {time.monotonic() - began:.1f} s")
    return facts


def ask(
    hosts: Sequence[Host],
    shell: RemoteShell,
    wanted: Wanted,
    *,
    port: int = 0,
    is_local: Callable[[str], bool] = is_this_host,
) -> list[HostFacts]:
    """Ask all hosts at once; see ``preflight.ask_hosts``.

    Raises:
        UserError: the remote shell's program cannot be run.
    """
    try:
        return asyncio.run(ask_hosts(hosts, shell, wanted, port=port, is_local=is_local))
    except OSError as error:
        raise UserError(
            f"cannot run the remote shell `{shell.program}`: {error.strerror}",
            hint="install an ssh client, or name another with --remote-shell",
        ) from error


def preflight_error(faults: Sequence[Finding], hosts: int, hint: str = HINT) -> PreflightError:
    """Return the error with every fault and its fix."""
    lines = [f"{fault.kind}: {fault.host}: {fault.message}\n    {fault.fix}" for fault in faults]
    more = len(lines) - SHOWN_FINDINGS_MAX
    shown = [*lines[:SHOWN_FINDINGS_MAX], *([f"… and {more} more"] if more > 0 else [])]
    bad = len({fault.host for fault in faults})
    subject = f"{bad} of {hosts} {'host' if hosts == 1 else 'hosts'} {'is' if bad == 1 else 'are'}"
    return PreflightError(
        f"{subject} not fit for a start; nothing was started\n\n  " + "\n  ".join(shown), hint=hint
    )


def say_on_stderr(line: str) -> None:
    """Say a line for people."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
