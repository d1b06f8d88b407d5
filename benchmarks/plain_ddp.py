"""What a user would write: a network, DistributedDataParallel, SGD, with torch's defaults.

`train_images.py` compares Gangline's benchmark with it. The networks are those of Gangline's benchmarks, so
that both train the same one; nothing else here is Gangline's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gangline.bench.models import build


def plain_step(model: str, classes: int, device: Any, *, channels_last: bool) -> Callable[[Any, Any], None]:
    """Return a function that trains on one batch; torch.distributed is initialised where there are ranks.

    Args:
        model: a network of the benchmarks.
        classes: its outputs.
        device: to train on.
        channels_last: take the memory layout that torch advises for convolutions.
    """
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network: Any = build(model, classes).to(device, memory_format=layout)
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        devices = [device.index] if device.type == "cuda" else None
        network = nn.parallel.DistributedDataParallel(network, device_ids=devices)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.005, weight_decay=4e-5)
    loss_function = nn.CrossEntropyLoss()

    def step(images: Any, labels: Any) -> None:
        optimizer.zero_grad()
        loss = loss_function(network(images), labels)
        loss.backward()
        optimizer.step()

    return step
