"""Run Kubernetes' conformance suite against a one-machine cluster, and compare with what is expected to fail.

``make test-conformance`` builds the suite, then calls this, as root, with containerd and runc: the cases
run in real containers, many at once, as most of a case is waiting; those that want the cluster for themselves
(``[Serial]``) follow one by one. Exit status 1: a case failed that is not in ``expected.txt``; one that is
listed there and passes is only told.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from images import images, registries

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.txt"
"""What fails on the own server; against Kubernetes' control plane every failure counts."""
ENDLESS = "waits without end"
"""A reason that begins so: its cases are left out unless they are asked for, and count as failed."""
AREAS = (
    "api-machinery",
    "apps",
    "architecture",
    "auth",
    "cli",
    "instrumentation",
    "network",
    "node",
    "scheduling",
    "storage",
)
PATIENCE_S = 5400
"""What has not ended by then is told as undecided."""

# "ctr --address /run/x/containerd.sock --namespace gangline images import FILE"
_IMPORT = re.compile(r"`(ctr --address \S+ --namespace \S+ images import) FILE`")


@dataclass(frozen=True, slots=True)
class Case:
    """One case that was decided.

    Attributes:
        area: special interest group of the case, without ``sig-``.
        name: as the suite prints it, without area and labels.
        passed: whether it did.
        message: first line of what failed.
        seconds: how long it took.
    """

    area: str
    name: str
    passed: bool
    message: str = ""
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """The name with its area, as in ``expected.txt``."""
        return f"[sig-{self.area}] {self.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path, help="folder that build.sh prints")
    parser.add_argument("--gangline", default=str(Path(sys.executable).parent / "gangline"))
    parser.add_argument("--control-plane", choices=("own", "kubernetes"), default="own")
    parser.add_argument("--focus", default="", help="regular expression of names, case by case")
    parser.add_argument("--skip", default="", help="regular expression of names that are left out")
    parser.add_argument("--area", action="append", choices=AREAS, help="only these; again for more")
    parser.add_argument("--at-once", type=int, default=8, help="cases side by side (default 8)")
    parser.add_argument(
        "--patience",
        type=int,
        default=PATIENCE_S,
        help="seconds for all that run side by side, and for the rest",
    )
    parser.add_argument("--report", type=Path, help="keep the suite's own output and reports here")
    parser.add_argument("--list", action="store_true", help="print every failed case with its first line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gangline-conformance-") as scratch:
        out = options.report or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        cases = _run(options, Path(scratch), out)
    return _tell(cases, options)


def _run(options: argparse.Namespace, scratch: Path, out: Path) -> list[Case]:
    environment = os.environ | {"GANGLINE_HOME": str(scratch / "home")}

    def gangline(*words: str) -> str:
        done = subprocess.run(
            [options.gangline, *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"gangline {' '.join(words)}: {done.stderr}")
        return done.stdout + done.stderr

    plane = ("--control-plane", options.control_plane)
    up = gangline("up", "--runtime", "containerd", "--nodes", "2", *plane)
    try:
        loading = _IMPORT.search(up)
        if loading is None:
            raise SystemExit(f"gangline up does not say how images are loaded:\n{up}")
        for tar in images(options.programs):
            subprocess.run([*loading[1].split(), str(tar)], check=True, capture_output=True)
        environment["KUBECONFIG"] = gangline("kubeconfig", "--path").split()[0]
        environment["KUBE_TEST_REPO_LIST"] = str(registries(scratch / "registries.yaml"))
        folders = [_cases(options, serial, environment, out) for serial in (False, True)]
        return [case for folder in folders for case in read_report(folder)]
    finally:
        gangline("down")


def _cases(options: argparse.Namespace, serial: bool, environment: dict[str, str], out: Path) -> Path:
    """Run the cases that may run side by side, or the others; return the folder with their report."""
    folder = out / ("serial" if serial else "parallel")
    folder.mkdir(exist_ok=True)
    began = time.monotonic()
    areas = "|".join(options.area or AREAS)
    command = [
        str(options.programs / "ginkgo"),
        f"--procs={1 if serial else options.at_once}",
        rf"--focus=\[sig-({areas})\].*{options.focus}",
        *_skips(options),
        "--label-filter=Conformance && " + ("Serial" if serial else "!Serial"),
        "--seed=1",
        "--silence-skips",
        "--no-color",
        f"--timeout={options.patience}s",
        f"--output-dir={folder}",
        "--json-report=report.json",
        str(options.programs / "e2e.test"),
        "--",
        "--provider=skeleton",
        f"--kubeconfig={environment['KUBECONFIG']}",
        "--e2e-verify-service-account=false",
        "--allowed-not-ready-nodes=-1",
        "--disable-log-dump",
    ]
    with (folder / "output.txt").open("w") as output:
        subprocess.run(
            command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    print(f"{folder.name}: {time.monotonic() - began:.0f} s", flush=True)
    return folder


def _skips(options: argparse.Namespace) -> list[str]:
    """Return the options that leave cases out; those without end run when ``--focus`` asks for something."""
    endless = [name for name, reason in expected_of(options).items() if reason.startswith(ENDLESS)]
    words = [options.skip, *([] if options.focus else map(re.escape, endless))]
    return [f"--skip={'|'.join(filter(None, words))}"] if any(words) else []


def expected_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the reason for each case that is expected to fail, by its whole name."""
    return read_expected(EXPECTED.read_text()) if options.control_plane == "own" else {}


def read_report(folder: Path) -> Iterator[Case]:
    """Read the cases that ran from a folder that ``_cases`` filled; none where the suite wrote no report."""
    path = folder / "report.json"
    if not path.exists():
        return
    for suite in json.loads(path.read_text()):
        for spec in suite.get("SpecReports") or []:
            if spec["LeafNodeType"] != "It" or spec["State"] in ("skipped", "pending"):
                continue
            failure = spec.get("Failure") or {}
            name = " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
            area, _, words = name.partition("] ")
            yield Case(
                area.removeprefix("[sig-"),
                words,
                spec["State"] == "passed",
                (failure.get("Message") or "").strip().partition("\n")[0][:200],
                spec["RunTime"] / 1e9,
            )


def read_expected(text: str) -> dict[str, str]:
    """Return the reason for each case that is expected to fail: a name a line, below ``# reason``.

    A name is the suite's own, ``[sig-node] Pods should ...``.
    """
    reason, cases = "", {}
    for line in text.splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            cases[line.strip()] = reason
    return cases


def _tell(cases: list[Case], options: argparse.Namespace) -> int:
    expected = expected_of(options)
    passed = Counter(case.area for case in cases if case.passed)
    decided = Counter(case.area for case in cases)
    for area in sorted(decided):
        print(f"{area:16} {passed[area]:4} of {decided[area]:4}")
    print(f"{'all':16} {passed.total():4} of {decided.total():4}")
    failed = [case for case in cases if not case.passed]
    if options.list:
        for case in failed:
            print(f"{case.area}: {case.name}\n    {case.message}")
    lost = [case for case in failed if case.title not in expected]
    for case in lost:
        print(f"FAILED, not expected: {case.name}\n    {case.message}")
    for case in cases:
        if case.passed and case.title in expected:
            print(f"passes now, take it out of {EXPECTED.name}: {case.title}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
