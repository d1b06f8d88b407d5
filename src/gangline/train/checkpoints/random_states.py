"""The states of the generators of random numbers that a rank has."""

from __future__ import annotations

import random
import sys
from typing import Any


def random_states() -> dict[str, Any]:
    """Return the states of Python's, numpy's and torch's generators in types that load without pickle."""
    import torch

    version, numbers, gauss = random.getstate()
    states: dict[str, Any] = {"python": (version, list(numbers), gauss), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        import numpy as np

        name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        states["numpy"] = (str(name), [int(key) for key in keys], position, has_gauss, cached)
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """Set the generators as they were."""
    import torch

    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "numpy" in states:
        import numpy as np

        name, keys, position, has_gauss, cached = states["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), position, has_gauss, cached))
