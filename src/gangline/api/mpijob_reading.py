"""From a manifest or an object of the API to a checked MPIJob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from gangline.api.core import ObjectMeta, Wire
from gangline.api.decode import decode, join_path, similar_name
from gangline.api.mpijob import MPIJob, MPIJobSpec, MPIJobStatus
from gangline.api.mpijob_defaults import apply_defaults
from gangline.api.mpijob_validation import validate_mpijob
from gangline.errors import FieldError

_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A job with defaults applied, and what is wrong with it (empty: it can be run)."""

    job: MPIJob
    errors: list[FieldError]


class _Metadata(Wire, frozen=True, kw_only=True):
    """What a user may write into ``metadata``; unknown fields are the API server's concern."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


def read_mpijob(document: dict[str, Any]) -> ReadJob:
    """Return the MPIJob of a manifest with every error: types, unknown fields, rules.

    Cost: about 100 microseconds for a usual job.
    """
    metadata, errors = decode(document.get("metadata"), _Metadata, path="metadata", unknown="ignore")
    spec, spec_errors = decode(document.get("spec"), MPIJobSpec, path="spec")
    if "spec" not in document:
        spec_errors.append(FieldError("Required", "spec", "must be set"))
    for name in document:
        if name not in _TOP_LEVEL:
            meant = similar_name(str(name), _TOP_LEVEL)
            advice = f"; did you mean `{meant}`?" if meant else ""
            errors.append(FieldError("Invalid", join_path("", str(name)), f"unknown field{advice}"))
    meta = ObjectMeta(**{name: getattr(metadata, name) for name in _Metadata.__struct_fields__})
    job = apply_defaults(MPIJob(metadata=meta, spec=spec))
    return ReadJob(job, _merge(errors + spec_errors, validate_mpijob(job, unknown="similar")))


def read_observed(metadata: ObjectMeta, spec: Any, status: Any) -> ReadJob:
    """Return the MPIJob that a cache holds; unknown fields are passed over, a bad status counts as none."""
    typed, errors = decode(spec, MPIJobSpec, path="spec", unknown="ignore")
    job = apply_defaults(MPIJob(metadata=metadata, spec=typed, status=read_status(status)))
    return ReadJob(job, _merge(errors, validate_mpijob(job)))


def renew(read: ReadJob, metadata: ObjectMeta, status: Any) -> ReadJob:
    """Return what was read with the metadata and status of now; its spec must be the same."""
    return ReadJob(replace(read.job, metadata=metadata, status=read_status(status)), read.errors)


def read_status(status: Any) -> MPIJobStatus:
    """Return a status as typed values; what cannot be read counts as never written."""
    try:
        return msgspec.convert(status or {}, MPIJobStatus)
    except msgspec.ValidationError:
        return MPIJobStatus()


def _merge(types: list[FieldError], rules: list[FieldError]) -> list[FieldError]:
    """Join both lists; a rule about a field whose type is already wrong says nothing new."""
    wrong = {error.path for error in types}

    def is_news(path: str) -> bool:
        inner, outer = (f"{path}.", f"{path}["), [(f"{bad}.", f"{bad}[") for bad in wrong]
        return path not in wrong and not any(
            bad.startswith(inner) or path.startswith(around) for bad, around in zip(wrong, outer, strict=True)
        )

    return types + [rule for rule in rules if is_news(rule.path)]
