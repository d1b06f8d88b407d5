"""From a manifest or an object of the API to a checked MPIJob, whatever version it was written in."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from gangline.api.core import ObjectMeta
from gangline.api.decode import decode, is_deeper, read_head, unknown_field
from gangline.api.mpijob import JobMeta, MPIJob, MPIJobSpec, MPIJobStatus
from gangline.api.mpijob_defaults import apply_defaults
from gangline.api.mpijob_legacy import LEGACY_NAMES, OLD_VERSIONS, SUCCESSORS
from gangline.api.mpijob_validation import validate_mpijob
from gangline.api.mpijob_versions import Normalised, normalise, version_of, written_version
from gangline.errors import FieldError

DEPTH_MAX = 100
"""Levels of objects and lists; far more than any field of a pod, and far from where Python's calls end."""

_TOO_DEEP = FieldError("Invalid", "spec", f"is nested in more than {DEPTH_MAX} levels")


class ReadJob(msgspec.Struct, frozen=True):
    """A job with defaults applied, and what is wrong with it.

    Attributes:
        job: in the shape of v2beta1.
        errors: broken rules; empty for a job that can be run. Paths are those that the user wrote.
        warnings: what was passed over; only in jobs of old versions.
    """

    job: MPIJob
    errors: list[FieldError]
    warnings: list[FieldError] = []


def read_mpijob(document: dict[str, Any]) -> ReadJob:
    """Return the MPIJob of a manifest with every error: types, unknown fields, rules.

    Unknown fields are errors in v2beta1 and warnings in old versions.

    Cost: about 100 microseconds for a usual job.
    """
    if is_deeper(document, DEPTH_MAX):
        document = {**document, "spec": None}
        read = read_mpijob(document) if not is_deeper(document, DEPTH_MAX) else ReadJob(MPIJob(), [])
        return ReadJob(read.job, [_TOO_DEEP])
    meta, errors = read_head(document)
    version = version_of(document.get("apiVersion"))
    if version in OLD_VERSIONS:
        return _read(meta, normalise(document.get("spec"), version), errors)
    spec, spec_errors = decode(document.get("spec"), MPIJobSpec, path="spec")
    job = apply_defaults(MPIJob(metadata=meta, spec=spec))
    found = errors + [_advise(error) for error in spec_errors]
    return ReadJob(job, _merge(found, validate_mpijob(job, unknown="error")))


def read_observed(metadata: ObjectMeta, spec: Any, status: Any) -> ReadJob:
    """Return the MPIJob that a cache holds, of whichever version; a bad status counts as none.

    Unknown fields are passed over; in jobs of old versions with a warning.
    """
    if is_deeper(spec, DEPTH_MAX):
        job = MPIJob(metadata=metadata, status=read_status(status))
        return ReadJob(apply_defaults(job), [_TOO_DEEP])
    read = _read(metadata, normalise(spec, written_version(metadata)), [])
    return ReadJob(replace(read.job, status=read_status(status)), read.errors, read.warnings)


def current_spec(document: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of an MPIJob in wire form as v2beta1 would say it, without defaults.

    For readers that want one thing of it. What cannot be read is left out; the document stays as it is.
    Cost: 10 microseconds for a job of v2beta1.
    """
    version = version_of(document.get("apiVersion"))
    if version not in OLD_VERSIONS:  # served under the stored version's name, whichever it was written in
        try:
            version = written_version(msgspec.convert(document.get("metadata") or {}, JobMeta))
        except msgspec.ValidationError:
            version = ""
    spec = normalise(document.get("spec"), version).spec
    return spec if isinstance(spec, dict) else {}


def _read(metadata: ObjectMeta, normalised: Normalised, errors: list[FieldError]) -> ReadJob:
    """Read a spec in which unknown fields are no errors: passed over, and in old versions said."""
    is_old = normalised.version in OLD_VERSIONS
    spec, found = decode(normalised.spec, MPIJobSpec, path="spec", unknown="error" if is_old else "ignore")
    job = apply_defaults(MPIJob(metadata=metadata, spec=spec))
    if is_old:
        job = replace(job, version=normalised.version, needs_exec=normalised.needs_exec)
    broken = normalised.as_written(validate_mpijob(job, unknown="error" if is_old else "ignore"))
    everything = [*errors, *normalised.errors, *normalised.as_written(found)]
    known = [error for error in everything if not error.is_unknown]
    strange = [error for error in [*everything, *broken] if error.is_unknown]
    rules = [error for error in broken if not error.is_unknown]
    return ReadJob(job, _merge(known, rules), [*normalised.warnings, *strange])


def _advise(error: FieldError) -> FieldError:
    """Say where v2beta1 has a field of an old version."""
    name = error.path.removeprefix("spec.")
    if not error.is_unknown or name not in LEGACY_NAMES:
        return error
    successor = SUCCESSORS.get(name)
    advice = f"; in v2beta1 it is `{successor}`" if successor else ""
    return unknown_field(error.path, f"it belongs to older versions{advice}")


def renew(read: ReadJob, metadata: ObjectMeta, status: Any) -> ReadJob:
    """Return what was read with the metadata and status of now; its spec must be the same."""
    job = replace(read.job, metadata=metadata, status=read_status(status))
    return ReadJob(job, read.errors, read.warnings)


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
