"""What a controller sees of one job: the objects that carry its label, by kind and name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.api.core import ConfigMap, Job, ObjectMeta, Pod, Secret, Service
from gangline.api.pod_group import PodGroup
from gangline.api.trainer.job import Runtime
from gangline.api.trainer.job_set import JobSet
from gangline.api.training.autoscaler import Autoscaler


@dataclass(frozen=True, slots=True)
class ObservedChildren:
    """The objects in the job's namespace that carry its label, whoever owns them.

    Attributes:
        services: by name; so are ``config_maps``, ``secrets``, ``jobs``, ``pods`` and ``autoscalers``.
        pod_groups: by name; empty without gang scheduling, as is ``priorities``.
        priorities: value of each PriorityClass of the cluster.
        serves_pod_groups: whether the cluster has the kind of PodGroup that the gang scheduler reads.
        rejected: what the API server said to objects of this job that it will never take; empty
            when all were taken.
        runtimes: what a TrainJob may name, by kind and name.
        job_sets: by name.
        serves_job_sets: whether the cluster has the kind.
        refused: what it said to the last one that it did not take yet, as a quota makes it; empty then too.
    """

    services: Mapping[str, Service] = field(default_factory=dict)
    config_maps: Mapping[str, ConfigMap] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    pod_groups: Mapping[str, PodGroup] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    serves_pod_groups: bool = True
    rejected: tuple[str, ...] = ()
    refused: str = ""
    runtimes: Mapping[tuple[str, str], Runtime] = field(default_factory=dict)
    autoscalers: Mapping[str, Autoscaler] = field(default_factory=dict)
    job_sets: Mapping[str, JobSet] = field(default_factory=dict)
    serves_job_sets: bool = False


def is_controlled_by(meta: ObjectMeta, uid: str) -> bool:
    """Whether the object's controller is the one with this uid."""
    controller = meta.controller
    return controller is not None and controller.uid == uid
