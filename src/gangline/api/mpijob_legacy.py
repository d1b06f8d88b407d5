"""What MPIJobs of v1, v1alpha2 and v1alpha1 have in their spec that v2beta1 has not.

The fields stand in the schema of every served version: objects are stored as v2beta1 without conversion, so
a field that only the old schema knew would be dropped on the way to the store. `mpijob_versions` gives them
their meaning.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gangline.api.core import Wire
from gangline.api.mpijob import CLEAN_POD_POLICIES, Int32, Int64

V1: Final = "v1"
V1ALPHA1: Final = "v1alpha1"
V1ALPHA2: Final = "v1alpha2"
V2BETA1: Final = "v2beta1"
OLD_VERSIONS: Final = (V1, V1ALPHA2, V1ALPHA1)
RESTART_POLICIES_SERVED: Final = ("Never", "OnFailure", "Always", "ExitCode")
"""The last two are of old versions; they are stored, and read as the nearest of the first two."""

IMPLEMENTATION_OF: Final = {"OpenMPI": "OpenMPI", "IntelMPI": "Intel", "MPICH": "MPICH"}
"""``mpiDistribution`` of v1alpha2 to ``mpiImplementation``."""


def _doc(versions: str, text: str, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=f"Only {versions}: {text}", extra_json_schema=schema or None)


class LegacyFields(Wire, frozen=True, kw_only=True):
    """The fields of ``spec`` that old versions have and v2beta1 has not."""

    clean_pod_policy: Annotated[
        str | None,
        _doc("v1 and v1alpha2", "as runPolicy.cleanPodPolicy, which wins.", enum=[*CLEAN_POD_POLICIES]),
    ] = None
    main_container: Annotated[
        str | None, _doc("v1 and v1alpha2", "the container of the workers in which ranks run.")
    ] = None
    mpi_distribution: Annotated[
        str | None, _doc("v1alpha2", "as mpiImplementation.", enum=[*IMPLEMENTATION_OF])
    ] = None
    backoff_limit: Annotated[
        Int32 | None, _doc("v1alpha2 and v1alpha1", "as runPolicy.backoffLimit, which wins.", minimum=0)
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None,
        _doc("v1alpha2 and v1alpha1", "as runPolicy.activeDeadlineSeconds, which wins.", minimum=0),
    ] = None
    gpus: Annotated[Int32 | None, _doc("v1alpha1", "GPUs of the whole job.", minimum=1)] = None
    gpus_per_node: Annotated[Int32 | None, _doc("v1alpha1", "GPUs of one worker; default 1.", minimum=1)] = (
        None
    )
    processing_units: Annotated[
        Int32 | None, _doc("v1alpha1", "GPUs or processors of the whole job.", minimum=1)
    ] = None
    processing_units_per_node: Annotated[
        Int32 | None, _doc("v1alpha1", "GPUs or processors of one worker; default 1.", minimum=1)
    ] = None
    processing_resource_type: Annotated[
        str | None, _doc("v1alpha1", "resource that is counted: nvidia.com/gpu (default) or cpu.")
    ] = None
    replicas: Annotated[
        Int32 | None, _doc("v1alpha1", "workers, instead of a number of GPUs or processors.", minimum=1)
    ] = None
    launcher_on_master: Annotated[
        bool | None, _doc("v1alpha1", "true runs the launcher on a control-plane node.")
    ] = None
    template: Annotated[dict[str, Any] | None, _doc("v1alpha1", "the pod of launcher and workers.")] = None


LEGACY_NAMES: Final = frozenset(field.encode_name for field in msgspec.structs.fields(LegacyFields))
V1ALPHA1_NAMES: Final = frozenset(
    {
        "gpus",
        "gpusPerNode",
        "processingUnits",
        "processingUnitsPerNode",
        "processingResourceType",
        "replicas",
        "launcherOnMaster",
        "template",
    }
)
SUCCESSORS: Final = {
    "cleanPodPolicy": "spec.runPolicy.cleanPodPolicy",
    "backoffLimit": "spec.runPolicy.backoffLimit",
    "activeDeadlineSeconds": "spec.runPolicy.activeDeadlineSeconds",
    "mpiDistribution": "spec.mpiImplementation",
}
"""Where v2beta1 has a legacy field."""
