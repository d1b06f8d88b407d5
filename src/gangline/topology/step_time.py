"""How long a training step takes: computation, and the part of the all-reduce that it cannot hide.

Gradients travel while the backward pass goes on. The model hides as much of the all-reduce as a given share
of the backward pass lasts; the rest adds to the step. How large that share is, only the job knows:
a prediction tells both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.topology.all_reduce_time import AllReduce, Part, all_reduce
from gangline.topology.rates import BACKWARD_SHARE, OVERLAP

PARAMETERS = {
    "resnet50": 25.557e6,
    "resnet101": 44.549e6,
    "resnet152": 60.193e6,
    "vgg16": 138.358e6,
    "inception3": 23.85e6,
    "alexnet": 61.1e6,
    "bert-base": 110e6,
    "bert-large": 340e6,
}
"""Trainable parameters of models that are often measured. Source: their papers and torchvision's tables."""

BYTES_FP32 = 4
BYTES_FP16 = 2


@dataclass(frozen=True, slots=True)
class Training:
    """One training step of a job, apart from where it runs.

    Attributes:
        gradient_bytes: what every GPU has to all-reduce.
        compute_s: forward and backward pass of one GPU alone.
        overlap: share of the backward pass during which gradients can travel, 0 to 1.
        backward_share: share of ``compute_s`` that is the backward pass.
    """

    gradient_bytes: float
    compute_s: float
    overlap: float = OVERLAP
    backward_share: float = BACKWARD_SHARE

    @property
    def hidden_s(self) -> float:
        """The longest all-reduce that costs nothing."""
        return self.overlap * self.backward_share * self.compute_s


def step_s(training: Training, all_reduce_s: float) -> float:
    """Return the time of a step, in seconds."""
    return training.compute_s + max(0.0, all_reduce_s - training.hidden_s)


def efficiency(training: Training, all_reduce_s: float) -> float:
    """Return the speed for each GPU as a share of one GPU alone, 0 to 1."""
    return training.compute_s / step_s(training, all_reduce_s)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a placement is worth to a job.

    Attributes:
        step_s: time of a training step.
        hidden_step_s: that of one that hides as much of the all-reduce as its backward pass lasts.
        efficiency: speed for each GPU as a share of one GPU alone.
        all_reduce: how its gradients travel.
    """

    step_s: float
    hidden_step_s: float
    efficiency: float
    all_reduce: AllReduce


def predict(training: Training, parts: Sequence[Part], *, oversubscription: float = 1.0) -> Prediction:
    """Return the prediction for a gang on these GPUs.

    Args:
        training: the job's step.
        parts: its GPUs, one part for each node.
        oversubscription: of the network between the nodes (``Network.oversubscription``).
    """
    reduced = all_reduce(parts, training.gradient_bytes, oversubscription=oversubscription)
    hidden = step_s(replace(training, overlap=1.0), reduced.seconds)
    return Prediction(
        step_s(training, reduced.seconds), hidden, efficiency(training, reduced.seconds), reduced
    )


def compute_s_from_step(step: float, all_reduce_s: float, *, overlap: float = OVERLAP) -> float:
    """Return the ``compute_s`` with which a measured step is explained by a known all-reduce.

    The inverse of :func:`step_s` for the default share of the backward pass: either all of the all-reduce was
    hidden, or the step is ``compute + all_reduce - overlap x backward share x compute``.
    """
    share = overlap * BACKWARD_SHARE
    if all_reduce_s <= share * step:
        return step
    return max(0.0, (step - all_reduce_s) / (1 - share))
