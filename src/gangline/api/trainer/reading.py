"""From a manifest or an object of the API to a checked TrainJob; its runtime is looked up later."""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.api.core import ObjectMeta
from gangline.api.decode import decode, is_deeper, read_head, show
from gangline.api.dns_names import is_dns_1035_label
from gangline.api.mpijob_reading import DEPTH_MAX
from gangline.api.mpijob_validation import one_of
from gangline.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from gangline.api.trainer.job import MANAGERS, TrainJobSpec, TrainJobStatus
from gangline.errors import FieldError

RESERVED_PREFIX = "PET_"


class ReadTrainJob(msgspec.Struct, frozen=True):
    """A TrainJob, and what is wrong with it by itself.

    Attributes:
        metadata, spec, status: of the job.
        errors: broken rules.
        warnings: what was passed over.
    """

    metadata: ObjectMeta
    spec: TrainJobSpec
    status: TrainJobStatus
    errors: list[FieldError]
    warnings: list[FieldError] = []


def read_train_job(document: dict[str, Any]) -> ReadTrainJob:
    """Return the job of a manifest with every error: types, unknown fields, rules."""
    meta, errors = read_head(document)
    return _read(meta, document.get("spec"), TrainJobStatus(), errors, is_strict=True)


def read_observed_train_job(metadata: ObjectMeta, spec: Any, status: Any) -> ReadTrainJob:
    """Return the job that a cache holds; a bad status counts as none."""
    return _read(metadata, spec, _status(status), [], is_strict=False)


def renew_train_job(read: ReadTrainJob, metadata: ObjectMeta, status: Any) -> ReadTrainJob:
    """Return what was read with the metadata and status of now; its spec must be the same."""
    return ReadTrainJob(metadata, read.spec, _status(status), read.errors, read.warnings)


def _read(
    metadata: ObjectMeta, raw: Any, status: TrainJobStatus, errors: list[FieldError], *, is_strict: bool
) -> ReadTrainJob:
    if is_deeper(raw, DEPTH_MAX):
        deep = FieldError("Invalid", "spec", f"is nested in more than {DEPTH_MAX} levels")
        return ReadTrainJob(metadata, TrainJobSpec(), status, [*errors, deep])
    spec, found = decode(raw, TrainJobSpec, path="spec", unknown="error" if is_strict else "ignore")
    return ReadTrainJob(metadata, spec, status, [*errors, *found, *_check(metadata, spec)])


def _check(metadata: ObjectMeta, spec: TrainJobSpec) -> list[FieldError]:
    errors = []
    if not is_dns_1035_label(metadata.name):
        rule = "must be lower-case letters, digits and inner dashes, at most 63, and begin with a letter"
        errors.append(FieldError("Invalid", "metadata.name", rule, show(metadata.name)))
    at = "spec.runtimeRef"
    if not spec.runtime_ref.name:
        errors.append(
            FieldError("Required", f"{at}.name", "must name a runtime, torch-distributed for example")
        )
    kinds = (CLUSTER_TRAINING_RUNTIMES.kind, TRAINING_RUNTIMES.kind)
    errors += one_of(spec.runtime_ref.kind, kinds, f"{at}.kind")
    errors += one_of(spec.runtime_ref.api_group, (CLUSTER_TRAINING_RUNTIMES.group,), f"{at}.apiGroup")
    if spec.managed_by is not None:
        errors += one_of(spec.managed_by, MANAGERS, "spec.managedBy")
    for index, variable in enumerate(spec.trainer.env):
        if str(variable.get("name", "")).startswith(RESERVED_PREFIX):
            rule = "is set by the controller for torchrun"
            errors.append(
                FieldError("Forbidden", f"spec.trainer.env[{index}].name", rule, show(variable["name"]))
            )
    return errors


def _status(status: Any) -> TrainJobStatus:
    try:
        return msgspec.convert(status or {}, TrainJobStatus)
    except msgspec.ValidationError:
        return TrainJobStatus()
