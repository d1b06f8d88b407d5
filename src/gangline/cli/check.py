"""``gangline check``: say whether hosts are fit for ranks, and what to do where they are not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.options.remote_hosts import read_hosts, read_interfaces, read_shell, remote_options
from gangline.cli.output import Column, print_table, print_value, say
from gangline.errors import UserError
from gangline.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.launch.preflight.findings import Finding, HostFacts
    from gangline.launch.preflight.gpu.facts import GpuFacts

EXIT_FAULTS = 3


@click.command("check")
@remote_options
@click.option("--mpi/--no-mpi", "use_mpi", default=True, help="Ranks will be started with MPI, or without.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Try this one between the hosts.")
@click.option(
    "--gpu", "is_gpu", is_flag=True, help="Look at this machine's GPUs instead: driver, files, rights."
)
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print everything that was found.")
def command(
    hosts: str | None,
    hostfile: str | None,
    ssh_port: int | None,
    ssh_identity_file: str | None,
    remote_shell: str | None,
    interface: str | None,
    use_mpi: bool,
    port: int | None,
    is_gpu: bool,
    output: str | None,
) -> int:
    """Say in five seconds whether hosts are fit for ranks; without --hosts, whether this machine is.

    All hosts are asked at once: names resolve, the remote shell answers, MPIs agree, hosts reach each other
    at TCP ports, interfaces exist, clocks agree, GPUs and drivers are alike. Each fault has a class and a
    fix. Exit code 0: no fault; 3: at least one; 2: wrong use.

    With --gpu: driver, libraries, device files and who may use them, fabric manager, IMEX, container
    runtime, CDI and SELinux labels of this machine, each fault with its fix.
    """
    if is_gpu:
        return _check_gpus(hosts or hostfile, output)
    from gangline.launch.hosts import Host
    from gangline.launch.plain_hosts import ask, launcher_mpi, wanted_of
    from gangline.launch.preflight.findings import judge

    found = read_hosts(hosts, hostfile) or [Host("localhost", 1)]
    shell = read_shell(remote_shell, ssh_port, ssh_identity_file)
    mpi = launcher_mpi() if use_mpi else None
    wanted = wanted_of(mpi, shell, interfaces=read_interfaces(interface))
    began = time.monotonic()
    facts = ask(found, shell, wanted, port=port or 0)
    findings = judge(facts, wanted)
    seconds = time.monotonic() - began
    faults = [finding for finding in findings if finding.severity == "fault"]
    if output:
        print_value(_as_value(facts, findings, mpi.title if mpi else "", seconds), output)
    else:
        _print_hosts(facts, findings)
        _say_findings(findings)
        verdict = plural(len(faults), "fault") if faults else "no fault"
        say(f"{plural(len(found), 'host')}, {verdict}, {seconds:.1f} s")
    return EXIT_FAULTS if faults else 0


def _check_gpus(hosts: str | None, output: str | None) -> int:
    """Print what this machine's GPUs need and have, and the SELinux labels that containers with GPUs need."""
    from gangline.launch.preflight.gpu.rules import LOOKED_AT, checks, has_gpu

    if hosts:
        raise UserError("--gpu looks at this machine alone", hint="run `gangline check --gpu` on each host")
    facts = _gpu_facts()
    found = checks(facts)
    findings = [finding for check in found for finding in check.findings]
    code = EXIT_FAULTS if any(check.status == "fault" for check in found) else 0
    if output:
        value = {
            "ok": not code,
            "gpus": len(facts.gpus or facts.minors),
            "driver": facts.driver or None,
            "checks": [{"name": one.name, "found": one.found, "status": one.status} for one in found],
            "findings": [_finding_value(finding) for finding in findings],
            "selinux": facts.selinux,
            "labels": [{"path": one.path, "wanted": one.wanted, "found": one.found} for one in facts.labels],
            "lookedAt": list(LOOKED_AT),
        }
        print_value(value, output)
        return code
    columns = [Column("CHECK"), Column("STATUS"), Column("FOUND", least=40)]
    print_table(columns, [[one.name, one.status, one.found] for one in found])
    cells = [
        [one.path, one.wanted, "no such file" if one.found is None else (one.found or "none")]
        for one in facts.labels
    ]
    print()
    print_table([Column("PATH", least=30), Column("TYPE NEEDED"), Column("TYPE FOUND")], cells)
    if not has_gpu(facts):
        say(f"no NVIDIA GPU: looked at {', '.join(LOOKED_AT)}")
    if not facts.selinux:
        say("SELinux is off on this machine: no label keeps a container from its GPUs")
    _say_findings(findings)
    return code


def _gpu_facts() -> GpuFacts:
    """Return what files of this machine say, and NVML where there is a driver."""
    from dataclasses import replace

    from gangline.devices.find import find_gpus
    from gangline.launch.preflight.gpu.facts import read_gpu_facts
    from gangline.launch.preflight.gpu.rules import has_gpu

    facts = read_gpu_facts()
    if not facts.driver or not has_gpu(facts):
        return facts
    answer = find_gpus()
    if answer.trouble or answer.inventory.source != "nvml":
        return replace(facts, trouble=answer.trouble or "its library cannot be loaded")
    lost = tuple(gpu.uuid for gpu in answer.inventory.gpus if not gpu.healthy)
    return replace(facts, asked=len(answer.inventory.gpus), lost=lost)


def _print_hosts(facts: Sequence[HostFacts], findings: Sequence[Finding]) -> None:
    rows = []
    for one in facts:
        wrong = sorted({finding.kind for finding in findings if finding.host == one.host.name})
        ms = f"{one.answered_s * 1000:.0f} ms" if one.facts else "none"
        gpus = str(one.facts.get("gpus", "")) if one.facts else "?"
        rows.append([one.host.name, str(one.host.slots), ms, _mpi_title(one), gpus, ", ".join(wrong) or "ok"])
    columns = [
        Column("HOST"),
        Column("SLOTS", rank=3),
        Column("ANSWER", rank=2),
        Column("MPI", least=8, rank=1),
        Column("GPUS", rank=4),
        Column("CHECK"),
    ]
    print_table(columns, rows)


def _mpi_title(one: HostFacts) -> str:
    from gangline.launch.mpi import parse_version

    found = one.facts.get("mpi") or []
    known = parse_version(str(found[1])) if found else None
    names = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}
    return f"{names[known[0]]} {known[1]}" if known else "-"


def _say_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        word = "error" if finding.severity == "fault" else "warning"
        say(f"\n{word}[{finding.kind}]: {finding.host}: {finding.message}\nhint: {finding.fix}")
    if findings:
        say("")


def _as_value(
    facts: Sequence[HostFacts], findings: Sequence[Finding], mpi: str, seconds: float
) -> dict[str, Any]:
    """Return the whole result for programs; ``ok`` is false when there is a fault."""
    return {
        "ok": not any(finding.severity == "fault" for finding in findings),
        "seconds": round(seconds, 3),
        "mpi": mpi,
        "hosts": [
            {
                "name": one.host.name,
                "slots": one.host.slots,
                "answered": bool(one.facts),
                "answerSeconds": round(one.answered_s, 3) if one.facts else None,
                "mpi": _mpi_title(one) if one.facts.get("mpi") else None,
                "interfaces": {
                    name: {"up": up, "address": address}
                    for name, (up, address) in (one.facts.get("interfaces") or {}).items()
                },
                "gpus": one.facts.get("gpus"),
                "driver": one.facts.get("driver") or None,
                "clockSeconds": round(one.clock_s, 3) if one.facts else None,
                "reaches": {peer: not kind for peer, (kind, _) in (one.reached or {}).items()},
            }
            for one in facts
        ],
        "findings": [_finding_value(finding) for finding in findings],
    }


def _finding_value(finding: Finding) -> dict[str, str]:
    return {
        "class": finding.kind,
        "severity": finding.severity,
        "host": finding.host,
        "message": finding.message,
        "fix": finding.fix,
    }
