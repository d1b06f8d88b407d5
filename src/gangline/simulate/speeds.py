"""What a placement is worth to a job: its predicted training speed beside that of the best placement.

The prediction is that of :mod:`gangline.topology`. The best placement is the one that the job would get alone
on the empty cluster, chosen by the wires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.placement import Gang, NodeTable
from gangline.placement.place import place
from gangline.placement.prediction import STEP_S, masks_of
from gangline.simulate.pods import pods_of
from gangline.simulate.site import Site
from gangline.simulate.trace import TraceJob
from gangline.topology import NetworkDomains, Part, Training, predict
from gangline.topology.rates import QUOTED_OVERLAP
from gangline.topology.step_time import BYTES_FP32, PARAMETERS

BATCH = 64
FLOP_PER_MAC = 2
PASSES = 3
"""A training step costs three forward passes."""

_GMAC_PER_IMAGE: Final = {"resnet50": 4.1, "resnet101": 7.8, "inception3": 5.7, "alexnet": 0.7}
FLOP_PER_S: Final = BATCH * _GMAC_PER_IMAGE["resnet50"] * 1e9 * FLOP_PER_MAC * PASSES / STEP_S["resnet50"]
"""What ResNet-50 reaches on a V100 in the published measurement: 8.1 TFLOP/s."""

_FLOP_PER_TOKEN = 6
_TOKENS = {"bert-base": 32 * 128, "bert-large": 8 * 384}

COMPUTE_S: Final[Mapping[str, float]] = {
    **STEP_S,
    **{
        name: BATCH * gmac * 1e9 * FLOP_PER_MAC * PASSES / FLOP_PER_S
        for name, gmac in _GMAC_PER_IMAGE.items()
        if name not in STEP_S
    },
    **{name: tokens * _FLOP_PER_TOKEN * PARAMETERS[name] / FLOP_PER_S for name, tokens in _TOKENS.items()},
}
"""Seconds of computation of a step on one V100, fp32. ResNet-50 and VGG16 were measured (batch 64); the
others follow from their operations at ResNet-50's rate: images in batches of 64, BERT with 32 x 128 and
8 x 384 tokens. A judgement, good enough to tell models that ask much of the wires from those that do not."""

MODELS: Final = tuple(COMPUTE_S)


class Speeds:
    """Predicted speeds on one site; answers are remembered.

    Args:
        site: the simulated cluster.
        overlap: share of the backward pass during which gradients travel.
    """

    def __init__(self, site: Site, overlap: float = QUOTED_OVERLAP) -> None:
        self._site = site
        self._machine = site.machine_of_nodes()
        nodes = [(site.name(row), site.labels(row)) for row in range(site.nodes)]
        self._network = NetworkDomains.from_labels(nodes, site.levels)
        self._trainings = {
            name: Training(BYTES_FP32 * PARAMETERS[name], compute_s, overlap)
            for name, compute_s in COMPUTE_S.items()
        }
        self._steps: dict[tuple[str, tuple[int, ...], float], float] = {}
        self._best: dict[tuple[str, int, int], float] = {}
        self._empty = NodeTable.of(
            site.node_views(with_links=True), (), [level.label for level in site.levels]
        )

    def relative(self, job: TraceJob, masks: Mapping[int, int]) -> float:
        """Return the job's speed on these GPUs (mask by row), as a share of that on the best placement."""
        if job.gpus == 1:
            return 1.0
        return self.best_step_s(job) / self.step_s(job.model, masks)

    def step_s(self, model: str, masks: Mapping[int, int]) -> float:
        """Return the predicted time of a training step, in seconds."""
        narrow = self._network.oversubscription(masks)
        key = model, tuple(sorted(masks.values())), narrow
        found = self._steps.get(key)
        if found is None:
            parts = [Part(self._machine, mask) for mask in key[1]]
            found = predict(self._trainings[model], parts, oversubscription=narrow).step_s
            self._steps[key] = found
        return found

    def best_step_s(self, job: TraceJob) -> float:
        """Return the time of a step on the best placement."""
        key = job.model, job.gpus, job.gpus_per_pod
        found = self._best.get(key)
        if found is None:
            spots = place(self._empty, self._empty.room, Gang(job.name, pods_of(job)))
            if spots is None:
                raise ValueError(f"{job.name} does not fit on the empty cluster")
            found = self._best[key] = self.step_s(job.model, masks_of(spots))
        return found
