"""What is asked about GPUs, and what follows from it before a job runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gangline.client.notices import Say, silent
from gangline.errors import UnschedulableError, UserError

if TYPE_CHECKING:
    from gangline.api.codec import Document
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.daemon.cluster_facts import ClusterFacts
    from gangline.cluster.daemon.simulation import Simulation
    from gangline.workloads.gpu_demand import GpuDemand, GpuRoom

COMMAND_LINE = "the command line"
"""In place of a file's name: the document was written for a program."""

_DRIVER = Path("/dev/nvidiactl")


class GpuOptions(msgspec.Struct, frozen=True):
    """What was written on the command line.

    Attributes:
        per_rank: GPUs of each rank of a program; None if not given.
        total: GPUs of all its ranks together; None if not given.
        simulate: GPUs to simulate on each node; None if not given.
        model: name of the machine that they belong to, empty if not given.
        fit: whether a job that is too large is made smaller.
    """

    per_rank: int | None = None
    total: int | None = None
    simulate: int | None = None
    model: str = ""
    fit: bool = False

    @property
    def simulation(self) -> Simulation | None:
        """What the cluster is to simulate; None for whatever it has.

        Raises:
            UserError: a model without a number of GPUs.
        """
        from gangline.cluster.daemon.simulation import Simulation

        if self.simulate is None:
            if self.model:
                raise UserError(
                    "--gpu-model names simulated GPUs, and none are asked for", hint="add --simulate-gpus 8"
                )
            return None
        return Simulation(self.simulate, self.model)

    def check(self, *, is_local: bool, is_program: bool) -> None:
        """Refuse what cannot go together.

        Raises:
            UserError: with the option and the way on.
        """
        given = [
            option
            for option, value in (
                ("--simulate-gpus", self.simulate is not None),
                ("--gpu-model", self.model),
                ("--fit", self.fit),
            )
            if value
        ]
        if given and not is_local:
            raise UserError(
                f"{given[0]} belongs to the one-machine cluster; another one has the GPUs that it has",
                hint="leave it out, or leave --context and --kubeconfig out",
            )
        if self.per_rank is not None and self.per_rank < 1:
            raise UserError(f"--gpus-per-rank must be at least 1 (found `{self.per_rank}`)")
        if (self.per_rank is not None or self.total is not None) and not is_program:
            option = "--gpus" if self.per_rank is None else "--gpus-per-rank"
            raise UserError(
                f"{option} belongs to programs behind `--`; a manifest says its GPUs itself",
                hint="set `resources: {limits: {nvidia.com/gpu: 1}}` in the manifest",
            )
        if self.simulation is not None:
            self.simulation.check()


def simulated(facts: ClusterFacts) -> str:
    """Return what a start line says of a cluster's simulated GPUs, a comma in front; empty for none."""
    from gangline.cluster.daemon.simulation import Simulation

    return f", {Simulation.of(facts).in_words()}" if facts.simulated_gpus else ""


def fitting(
    cluster: Cluster, documents: Sequence[Document], options: GpuOptions, *, say: Say = silent
) -> list[Document]:
    """Return the documents, with ``--fit`` those made smaller that ask more GPUs than there will ever be.

    Says what was changed, and tells of real GPUs that nobody asked for. Nothing is created.

    Raises:
        UnschedulableError: one asks more, with the ways on.
    """
    from gangline.api.resources import NODES
    from gangline.devices.visible_gpus import VARIABLE, visible_gpus, with_visible_gpus
    from gangline.workloads.gpu_demand import GpuDemand, GpuRoom
    from gangline.workloads.gpu_fit import fit_object

    demands = [GpuDemand.of(document.value) for document in documents]
    if not any(demand.total for demand in demands):
        if _DRIVER.exists() and any(document.file == COMMAND_LINE for document in documents):
            say("no GPU is asked for, so the ranks see none; --gpus-per-rank 1 gives each rank one")
        return list(documents)
    nodes = cluster.call(lambda client: client.list(NODES)).items
    text = os.environ.get(VARIABLE)
    fitted = []
    for document, demand in zip(documents, demands, strict=True):
        room, limit = GpuRoom.of(nodes, demand.resource), ""
        if text is not None and demand.total and document.file == COMMAND_LINE:
            visible = visible_gpus(text, nodes)
            document = replace(document, value=with_visible_gpus(document.value, visible))
            room = msgspec.structs.replace(room, nodes=tuple(map(len, visible.values())))
            limit = f" in your {VARIABLE}=`{text}`"
        shortage = demand.shortage(room)
        shortage += limit if shortage else ""
        if shortage and not options.fit:
            raise UnschedulableError(
                f"cannot run {document.kind.lower()} `{document.name}`: {shortage}",
                hint=_ways_on(cluster, document, demand, room, options.per_rank or 1),
            )
        if shortage:
            value, changes = fit_object(document.value, room)
            say(f"{document.kind.lower()} `{document.name}` made to fit: {', '.join(changes)}")
            document = replace(document, value=value)
        fitted.append(document)
    return fitted


def _ways_on(cluster: Cluster, document: Document, demand: GpuDemand, room: GpuRoom, per_rank: int) -> str:
    """Return the ways on: a smaller job, simulated GPUs, another cluster."""
    from gangline.cluster.paths import DEFAULT_CLUSTER
    from gangline.workloads.gpu_demand import nodes_for
    from gangline.workloads.gpu_fit import fit_object

    ways = []
    is_spread = demand.total <= room.total and demand.pods == 1 and per_rank <= room.largest
    if is_spread and document.file == COMMAND_LINE:
        ways.append(f"`--nodes {-(-demand.each // room.largest)}` spreads the ranks over nodes")
    try:
        ways.append(f"`--fit` shrinks it: {', '.join(fit_object(document.value, room)[1])}")
    except UnschedulableError:
        pass
    if document.file != COMMAND_LINE:
        named = f" --cluster {cluster.paths.name}" if cluster.paths.name != DEFAULT_CLUSTER else ""
        ways.append(f"`gangline run {document.file}{named} --try` simulates them for this run")
    each, count = nodes_for(demand)
    nodes = f" --nodes {count}" if count > 1 else ""
    other = "simulated-2" if cluster.paths.name == "simulated" else "simulated"
    ways.append(f"`--simulate-gpus {each}{nodes} --cluster {other}` simulates them in a cluster of its own")
    ways.append("`--context CONTEXT` runs it on a cluster that has them")
    return "\n      ".join(ways)
