"""Run a file of upstream's tests in a number of ranks, and tell what became of each test.

By hand: ``python tests/horovod/upstream_ranks.py RANKS test/parallel/test_torch.py [PYTEST OPTION...]``
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from launch_ranks import run_ranks

LIMIT_S = 900.0


@dataclass(frozen=True)
class Outcome:
    """What became of a test on all ranks.

    Attributes:
        passed: it passed on every one.
        text: what those say on which it did not.
    """

    passed: bool
    text: str


def run_upstream(
    python: str, overlay: str, source: Path, path: str, size: int, folder: Path, options: Sequence[str] = ()
) -> dict[str, Outcome]:
    """Return the outcome of every test of a file.

    Raises:
        RuntimeError: a rank has no results; the message has its log.
    """
    plugin = Path(__file__).parent
    words = ["-m", "pytest", str(source / path), "-p", "upstream_plugin", "-q", "--tb=short", *options]
    words += ["-p", "no:cacheprovider", "--junitxml", "results.xml", "-o", "addopts="]
    ended = run_ranks(
        *(python, words, size, folder),
        overlay=os.pathsep.join([overlay, str(plugin)]),
        limit_s=LIMIT_S,
        own_folders=True,
        # a test that fails on one rank alone lets the others wait: an error there instead
        HOROVOD_STALL_CHECK_TIME_SECONDS="10",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="20",
    )
    found: dict[str, list[str]] = {}
    for rank, one in enumerate(ended):
        results = folder / f"rank-{rank}" / "results.xml"
        if not results.is_file():
            raise RuntimeError(f"rank {rank} ended with {one.code} and wrote no results: {one.log[-3000:]}")
        for case in ElementTree.parse(results).iter("testcase"):
            texts = found.setdefault(case.get("name", ""), [])
            texts += [f"rank {rank}: {part.text or part.get('message', '')}"[-1500:] for part in case]
    return {name: Outcome(not texts, "\n".join(texts)) for name, texts in found.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        outcomes = run_upstream(
            os.environ["GANGLINE_TRAIN_PYTHON"],
            os.environ["GANGLINE_HOROVOD_OVERLAY"],
            Path(os.environ["HOROVOD_SOURCE"]),
            *(sys.argv[2], int(sys.argv[1]), Path(temporary), sys.argv[3:]),
        )
    for name, outcome in sorted(outcomes.items()):
        sys.stdout.write(f"{name} = {'pass' if outcome.passed else outcome.text}\n")
    sys.stdout.write(f"{sum(one.passed for one in outcomes.values())} of {len(outcomes)} pass\n")
