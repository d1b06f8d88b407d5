"""Horovod's ``tensorflow2_mnist_elastic.py`` on torch: ranks come and go while it trains, its lines the same.

The images are made up: ten patterns of 28 x 28 with noise, drawn anew for every step and rank. With ranks of
an elastic launch (``horovodrun --min-np``, ``gangline launch --min-ranks``) those that are left go on in the
same processes from the last commit, and new ones join at the next.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry, limits
from gangline.errors import UserError
from gangline.train import ElasticState, run_elastic

if TYPE_CHECKING:
    from gangline.train import Session

BATCHES = 10_000
"""Of all ranks together."""
BATCH_SIZE = 128
LEARNING_RATE = 0.001
STEPS_PER_LINE = STEPS_PER_COMMIT = 10
CLASSES, PIXELS = 10, 28


def step_line(step: int, loss: float) -> str:
    """Return the line of a step."""
    return f"Step #{step}\tLoss: {loss:.6f}"


def main(words: Sequence[str]) -> None:
    """Train until all batches have been seen; rank 0 prints."""
    if words:
        raise UserError(f"this example takes no arguments (found `{' '.join(words)}`)")
    bounds = limits.from_environment()
    batches = bounds.count("num_batches", BATCHES)
    batch_size = bounds.count("batch_size", BATCH_SIZE)
    entry.require("torch")
    import torch

    torch.manual_seed(0)
    patterns = torch.rand(CLASSES, 1, PIXELS, PIXELS)
    model = _network()
    state = ElasticState(
        model=model, optimizer=torch.optim.Adam(model.parameters(), lr=LEARNING_RATE), step=0, seen=0
    )

    def train(session: Session, state: Any) -> None:
        for group in state.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * session.size
        parallel = session.parallel(state.model)
        while state.seen < batches:
            images, labels = _batch(patterns, batch_size, state.step * 4096 + session.rank, session.device)
            state.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()
            state.optimizer.step()
            if state.step % STEPS_PER_LINE == 0 and session.rank == 0:
                entry.say(step_line(state.step, loss.item()))
            state.step += 1
            state.seen += session.size
            if state.step % STEPS_PER_COMMIT == 0:
                state.commit()
        if session.rank == 0 and (limited := bounds.line()):
            entry.say(limited)

    run_elastic(train, state)


def _network() -> Any:
    """Return upstream's network, without its dropout."""
    from torch import nn

    inner = (PIXELS - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * inner * inner, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


def _batch(patterns: Any, size: int, seed: int, device: Any) -> tuple[Any, Any]:
    """Return made-up images and their labels."""
    import torch

    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=random)
    images = patterns[labels] + 0.5 * torch.randn(size, 1, PIXELS, PIXELS, generator=random)
    return images.to(device), labels.to(device)


if __name__ == "__main__":
    entry.run(main)
