"""Adasum: the sum of two gradients, less what both have in common.

Orthogonal gradients are added, parallel ones averaged, tensor by tensor; ranks combine as a binary tree.

Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation" (MLSys 2021), equation 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def combine(one: Any, other: Any) -> Any:
    """Return the adaptive sum of two tensors, in their type; the products are taken in float64."""
    a, b = one.double().flatten(), other.double().flatten()
    dot, a_square, b_square = float(a.dot(b)), float(a.dot(a)), float(b.dot(b))
    a_weight = 1.0 - dot / (2.0 * a_square) if a_square else 1.0
    b_weight = 1.0 - dot / (2.0 * b_square) if b_square else 1.0
    return (a_weight * a + b_weight * b).to(one.dtype).view(one.shape)


def combine_all(tensors: Sequence[Any]) -> Any:
    """Return the adaptive sum of the tensors of all ranks, neighbours first; their number is a power of
    two.
    """
    level = list(tensors)
    while len(level) > 1:
        level = [combine(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]
