"""What upstream's tests need of a torch that is newer than they are; loaded by pytest in every rank."""

from __future__ import annotations

import sys
from pathlib import Path

import torch


def pytest_configure() -> None:
    for source in sys.argv[1:]:
        folder = Path(source).parent.parent / "utils"
        if folder.is_dir():
            sys.path.append(str(folder))
    if not hasattr(torch, "FatalError"):
        torch.FatalError = RuntimeError
    # Upstream tries all optimizers on layers with a bias; this one is newer and takes only matrices.
    if hasattr(torch.optim, "Muon"):
        torch.optim.Muon.__module__ = "later"
