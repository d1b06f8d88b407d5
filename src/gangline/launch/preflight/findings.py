"""What a preflight of hosts found, judged: classes of faults, each with its fix. Pure.

Classes: ``name`` (does not resolve), ``remote-shell`` (no answer, or refused), ``python``, ``mpi-missing``,
``mpi-mismatch``, ``port``, ``interface``, ``folder``, ``program``, ``clock``, ``gpu``, ``driver``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.launch.hosts import Host
from gangline.launch.mpi import parse_version

CLOCK_LIMIT_S = 2.0
_TITLES = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}

Severity = Literal["fault", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: its class, see above.
        host: where.
        message: what was found.
        fix: the next step.
        severity: a fault stops a start, a warning does not.
    """

    kind: str
    host: str
    message: str
    fix: str
    severity: Severity = "fault"


@dataclass(slots=True)
class HostFacts:
    """What one host answered.

    Attributes:
        host: with its slots.
        words: what its remote shell said, when it gave no answer.
        shell_code: exit code of the remote shell then; ``None`` when it did not end in time.
        resolves: whether the name resolves on this machine; ``None`` when the remote shell knows better.
        facts: of ``host_probe``, empty without an answer.
        clock_s: how far the host's clock is ahead of this machine's.
        clock_error_s: how uncertain that is.
        reached: peer -> [class, words], of ``host_probe``; ``None`` when that question was not answered.
        answered_s: seconds until the first answer.
    """

    host: Host
    words: str = ""
    shell_code: int | None = None
    resolves: bool | None = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    clock_s: float = 0.0
    clock_error_s: float = 0.0
    reached: Mapping[str, Sequence[str]] | None = None
    answered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the start will need.

    Attributes:
        mpi: flavour and major version of the launcher's MPI, empty where none is used.
        mpi_path: its ``mpirun``.
        interfaces: named by the user.
        program: that every rank runs.
        path: the PATH that ranks will have, empty for that of each host.
        cwd: folder in which ranks start.
        shell: name of the remote shell, for people.
        is_start: a start follows, which has a deadline of its own: a slow answer is no fault then.
        limit_s: how long the remote shell has for an answer.
    """

    mpi: tuple[str, int] | None = None
    mpi_path: str = ""
    interfaces: Sequence[str] = ()
    program: str = ""
    path: str = ""
    cwd: str = ""
    shell: str = "ssh"
    is_start: bool = False
    limit_s: float = 3.2


def judge(hosts: Sequence[HostFacts], wanted: Wanted) -> list[Finding]:
    """Return everything that is wrong, host by host, faults before warnings."""
    findings: list[Finding] = []
    for one in hosts:
        if not one.facts:
            findings.append(_no_answer(one, wanted))
            continue
        findings += _mpi(one, wanted)
        findings += _interfaces(one, wanted)
        findings += _files(one, wanted)
        findings += _peers(one)
        findings += _clock(one)
    findings += _gpus([one for one in hosts if one.facts])
    return sorted(findings, key=lambda finding: finding.severity)


def _no_answer(one: HostFacts, wanted: Wanted) -> Finding:
    name = one.host.name
    if one.resolves is False:
        return Finding(
            "name",
            name,
            "its name does not resolve on this machine",
            "check the spelling, or add the host to DNS or /etc/hosts",
        )
    for pattern, words, fix in _SHELL_FAULTS:
        if re.search(pattern, one.words, re.IGNORECASE):
            kind = "python" if "python3" in pattern else "name" if "resolve" in pattern else "remote-shell"
            return Finding(kind, name, words, fix.format(host=name, shell=wanted.shell))
    if one.shell_code is None:
        return Finding(
            "remote-shell",
            name,
            f"no answer through `{wanted.shell}` within {wanted.limit_s:.1f} s",
            f"see whether `{wanted.shell} {name} true` returns; a firewall may drop its packets, or "
            "its login scripts may wait for something",
            severity="warning" if wanted.is_start else "fault",
        )
    said = one.words.strip().splitlines()
    last = f": {said[-1].strip()[:200]}" if said else ""
    return Finding(
        "remote-shell",
        name,
        f"`{wanted.shell}` ended with code {one.shell_code}{last}",
        f"run `{wanted.shell} {name} true` by hand; it must return without a question",
    )


_SHELL_FAULTS = (
    (
        r"no python3 on this host",
        "it has no python3",
        "install python3 there, or make the folder of your environment visible on host {host}",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "its name does not resolve for the remote shell",
        "check the spelling, or add the host to DNS or /etc/hosts",
    ),
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is unknown or has changed",
        "run `{shell} {host} true` once by hand and compare the key, or add it with ssh-keyscan",
    ),
    (
        r"Permission denied",
        "it refuses your key, and passwords are not asked for",
        "copy your key with `ssh-copy-id {host}`, name it with --ssh-identity-file, or start an ssh-agent",
    ),
    (
        r"Connection refused",
        "nothing listens at its port for the remote shell",
        "start its ssh server, or name the port with --ssh-port",
    ),
    (
        r"timed out|No route to host|Network is unreachable",
        "its address does not answer",
        "see whether the host is up, and whether a firewall is in the way",
    ),
    (
        r"identity file .* not accessible|UNPROTECTED PRIVATE KEY|bad permissions",
        "the private key cannot be used",
        "check the path of the key, and `chmod 600` it",
    ),
)


def _mpi(one: HostFacts, wanted: Wanted) -> list[Finding]:
    if wanted.mpi is None:
        return []
    flavour, major = wanted.mpi
    title = f"{_TITLES.get(flavour, flavour)} {major or ''}".rstrip()
    found = one.facts.get("mpi") or []
    if not found:
        return [
            Finding(
                "mpi-missing",
                one.host.name,
                f"no mpirun on the PATH of a non-interactive shell; this machine has {title}",
                f"install {title} there at `{wanted.mpi_path}`, put its bin folder on the PATH in the "
                "first lines of ~/.bashrc, or start without MPI: --no-mpi",
            )
        ]
    known = parse_version(str(found[1]))
    if known is None:
        words = " ".join(str(found[1]).split())[:120]
        return [
            Finding(
                "mpi-missing",
                one.host.name,
                f"`{found[0]} --version` does not answer as an MPI: {words}",
                "run it there by hand; often its libraries are not found",
            )
        ]
    theirs = int(known[1].partition(".")[0] or 0)
    if (known[0], theirs) == (flavour, major) or (known[0] == flavour and 0 in (theirs, major)):
        return []
    return [
        Finding(
            "mpi-mismatch",
            one.host.name,
            f"`{found[0]}` is {_TITLES[known[0]]} {known[1]}, this machine starts with {title}",
            f"install {title} on all hosts, or put the right one first on the PATH there",
        )
    ]


def _interfaces(one: HostFacts, wanted: Wanted) -> list[Finding]:
    known: Mapping[str, Sequence[Any]] = one.facts.get("interfaces") or {}
    findings: list[Finding] = []
    for name in wanted.interfaces if known else ():
        usable = [other for other, (is_up, address) in known.items() if is_up and address and other != "lo"]
        fix = f"name one that every host has; this one has {', '.join(usable) or 'none but lo'}"
        if name not in known:
            findings.append(Finding("interface", one.host.name, f"it has no interface `{name}`", fix))
        elif not known[name][0]:
            findings.append(Finding("interface", one.host.name, f"interface `{name}` is down", fix))
        elif not known[name][1]:
            findings.append(
                Finding("interface", one.host.name, f"interface `{name}` has no IPv4 address", fix)
            )
    return findings


def _files(one: HostFacts, wanted: Wanted) -> list[Finding]:
    if not one.facts.get("folder", True):
        return [
            Finding(
                "folder",
                one.host.name,
                f"folder `{wanted.cwd}` does not exist there",
                "copy your code to the same path on every host, or share the folder",
            )
        ]
    if not one.facts.get("program", True):
        return [
            Finding(
                "program",
                one.host.name,
                f"`{wanted.program}` is not on its PATH, or cannot be executed",
                "name it by a path that exists on every host, for example of a virtual environment",
            )
        ]
    return []


def _peers(one: HostFacts) -> list[Finding]:
    findings: list[Finding] = []
    if error := one.facts.get("port_error"):
        findings.append(
            Finding(
                "port",
                one.host.name,
                f"cannot listen at the port: {error}",
                "choose another port, or free it",
            )
        )
    for peer, (kind, words) in (one.reached or {}).items():
        if kind == "name":
            findings.append(
                Finding(
                    "name",
                    one.host.name,
                    f"cannot resolve `{peer}`: {words}",
                    f"every host must know the name `{peer}`: DNS or /etc/hosts, or list hosts by address",
                )
            )
        elif kind:
            findings.append(
                Finding(
                    "port",
                    one.host.name,
                    f"cannot reach `{peer}` at {words}",
                    "open TCP ports between the hosts; ranks listen at ports of their own choice",
                )
            )
    if one.reached is None:
        findings.append(
            Finding(
                "port", one.host.name, "did not say which hosts it reaches", "try again", severity="warning"
            )
        )
    return findings


def _clock(one: HostFacts) -> list[Finding]:
    if abs(one.clock_s) - one.clock_error_s <= CLOCK_LIMIT_S:
        return []
    way = "ahead of" if one.clock_s > 0 else "behind"
    return [
        Finding(
            "clock",
            one.host.name,
            f"its clock is {abs(one.clock_s):.1f} s {way} this machine's",
            "let both follow the same time server (chrony, systemd-timesyncd)",
            severity="warning",
        )
    ]


def _gpus(hosts: Sequence[HostFacts]) -> list[Finding]:
    findings: list[Finding] = []
    most = max((int(one.facts.get("gpus", 0)) for one in hosts), default=0)
    for one in hosts:
        count = int(one.facts.get("gpus", 0))
        if most and count < one.host.slots:
            findings.append(
                Finding(
                    "gpu",
                    one.host.name,
                    f"{one.host.slots} ranks, but {count} GPUs, where another host has {most}",
                    "ask for as many slots as it has GPUs, or see why its driver shows fewer",
                    severity="warning",
                )
            )
    drivers = {str(one.facts["driver"]): one.host.name for one in reversed(hosts) if one.facts.get("driver")}
    if len(drivers) > 1:
        words = ", ".join(f"{version} on {name}" for version, name in sorted(drivers.items()))
        first = next(one for one in hosts if one.facts.get("driver"))
        findings.append(
            Finding(
                "driver",
                first.host.name,
                f"NVIDIA drivers differ: {words}",
                "install the same driver on all hosts",
                severity="warning",
            )
        )
    return findings
