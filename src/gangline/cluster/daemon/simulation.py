"""GPUs that a one-machine cluster is asked to simulate: the wish, its check, and what a running one has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster_facts import ClusterFacts


class Simulation(msgspec.Struct, frozen=True):
    """How many GPUs each node simulates.

    Attributes:
        gpus: on each node; 0 for none, so that the machine's real ones are used.
        model: name of the machine that the nodes stand for, empty for a plain one.
    """

    gpus: int = 0
    model: str = ""

    @classmethod
    def of(cls, facts: ClusterFacts) -> Simulation:
        """Return what a cluster simulates."""
        return cls(facts.simulated_gpus, facts.gpu_model)

    def check(self) -> Simulation:
        """Return it with the model's own name in place of another name of it.

        Raises:
            UserError: the count or the model cannot be.
        """
        if not self.gpus:
            return self
        from gangline.devices.simulated import simulate

        inventory = simulate("node-0", self.gpus, self.model)
        return replace(self, model=inventory.model) if self.model else self

    def is_shown(self, node: dict[str, Any]) -> bool:
        """Return whether a node, in wire form, simulates just that many GPUs."""
        from gangline.devices.inventory import ADDED_ANNOTATION, RESOURCE, read_added
        from gangline.workloads.gpu_source import SOURCE_LABEL

        is_simulated = (node["metadata"].get("labels") or {}).get(SOURCE_LABEL) == "simulated"
        shown = (node.get("status", {}).get("capacity") or {}).get(RESOURCE, "0") if is_simulated else "0"
        added = read_added((node["metadata"].get("annotations") or {}).get(ADDED_ANNOTATION, ""))
        return str(shown) == str(max([self.gpus, *added.values()]))

    def in_words(self) -> str:
        """``8 simulated GPUs on each node (v100-dgx1)``, ``the machine's own GPUs``."""
        from gangline.workloads.gpu_source import gpus_in_words

        model = f" ({self.model})" if self.model else ""
        if not self.gpus:
            return "the machine's own GPUs"
        return f"{gpus_in_words(self.gpus, 'simulated')} on each node{model}"


def refuse_another(facts: ClusterFacts, wanted: Simulation) -> None:
    """Refuse to change the GPUs of a cluster that is up: its pods may hold them.

    Raises:
        UserError: with what differs and the ways on.
    """
    has = Simulation.of(facts)
    if wanted == has or (wanted.gpus == has.gpus and not wanted.model):
        return
    raise UserError(
        f"cluster `{facts.name}` is up with {has.in_words()}, {wanted.in_words()} are asked for",
        hint=f"stop it first with `gangline down --cluster {facts.name}`, or use another one: --cluster NAME",
    )
