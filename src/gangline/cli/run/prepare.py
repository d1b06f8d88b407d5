"""What stands before a run: the cluster up, and files checked against what it has, or made to run here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gangline.cli.options.images import ImageOptions, image_check_of
from gangline.client.run.gpus import GpuOptions
from gangline.client.target import ClusterTarget

if TYPE_CHECKING:
    from gangline.api.codec import Document
    from gangline.cluster.daemon.cluster import Cluster


class TryOptions(msgspec.Struct, frozen=True):
    """What the user typed of a first try.

    Attributes:
        line: the command without its options.
        is_tried: ``--try``.
        is_agreed: ``--yes``.
    """

    line: str
    is_tried: bool = False
    is_agreed: bool = False

    @property
    def way(self) -> str:
        """The command that tries it: with ``--yes`` where nobody could be asked."""
        return f"{self.line} --try" + ("" if sys.stdin.isatty() else " --yes")


def prepared(
    documents: list[Document],
    target: ClusterTarget,
    nodes: int,
    gpus: GpuOptions,
    images: ImageOptions,
    trial: TryOptions,
) -> tuple[list[Document], ImageOptions]:
    """Start the cluster and return documents and images with which they can run, in words what was changed.

    Raises:
        InvalidObjectError: a document breaks rules, or nothing serves its image.
        MissingError: all that is missing, with the command that runs it anyway.
    """
    from gangline.api.resources import NODES
    from gangline.cli.output import say
    from gangline.cli.run.refusal import refuse
    from gangline.client.manifests import check_manifests
    from gangline.client.run.start import start_cluster
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.trials import first_try, missing
    from gangline.errors import InvalidObjectError
    from gangline.workloads.gpu_demand import GpuDemand

    invalid: InvalidObjectError | None = None
    problem = image_check_of(target, images)
    try:
        check_manifests(documents, is_local=True, image_problem=problem, say=say)
    except InvalidObjectError as error:
        check_manifests(documents, is_local=True, say=say)  # what --try could not help is refused at once
        if not first_try.torch_containers(documents) and not any(
            GpuDemand.of(one.value).total for one in documents
        ):
            raise  # nothing else can be missing that a cluster would have to be asked about
        invalid = error
    cluster = Cluster(target.paths)
    start_cluster(cluster, nodes, gpus, say)
    shown = cluster.call(lambda client: client.list(NODES)).items
    absent = cluster.call(lambda client: missing.absent_objects(client, documents))
    found = missing.find_missing(documents, shown, absent, problem)
    if trial.is_tried:
        refuse(found, trial.way, is_tried=True)
        return _tried(cluster, documents, images, trial)
    if invalid is not None and not any(one.remedy for one in found):
        raise invalid
    if not all(one.is_amount for one in found):
        refuse(found, trial.way, is_tried=False)
    return documents, images


def _tried(
    cluster: Cluster, documents: Sequence[Document], images: ImageOptions, trial: TryOptions
) -> tuple[list[Document], ImageOptions]:
    from gangline.api.resources import NODES
    from gangline.cli.output import say
    from gangline.cli.run.torch_environment import find_torch, make_torch
    from gangline.cluster.trials import first_try
    from gangline.cluster.trials.added_gpus import settle_gpus

    problem = image_check_of(ClusterTarget(cluster=cluster.paths.name), images)
    if any(problem(one) for one in first_try.torch_containers(documents)):
        home = cluster.paths.state.parent
        folder = find_torch(home) or make_torch(home, is_agreed=trial.is_agreed, say=say)
        lent = tuple(f"{name}={folder}" for name in first_try.torch_images(documents))
        images = msgspec.structs.replace(images, texts=(*images.texts, *lent))
    settle_gpus(cluster)
    nodes = cluster.call(lambda client: client.list(NODES)).items
    changed = [first_try.adapted(document, nodes) for document in documents]
    made = first_try.make_absent(cluster, changed)
    if made:
        changed = [first_try.noted(one, f"empty {', '.join(made)}") for one in changed]
    changed = first_try.add_lacking_gpus(cluster, changed)
    for document in changed:
        if note := first_try.note_of(document.value):
            say(f"{document.kind} `{document.name}` is tried: {note}")
    return changed, images


def settle(target: ClusterTarget) -> None:
    """Take the GPUs away that were added for runs which are over."""
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.trials.added_gpus import settle_gpus

    settle_gpus(Cluster(target.paths))
