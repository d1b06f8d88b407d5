"""Read the manifests of a command and find everything that is wrong with them before anything is created."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.api.codec import Document, load_documents, load_file
from gangline.api.decode import similar_name
from gangline.api.mpijob import LAUNCHER
from gangline.api.mpijob_reading import read_mpijob
from gangline.api.pod_template import check_pod_template
from gangline.api.resources import (
    BUILT_IN,
    CONFIG_MAPS,
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOB_RESOURCES,
    JOBS,
    MPIJOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RUNTIMES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    TRAINJOBS,
    Resource,
)
from gangline.api.trainer.reading import read_train_job
from gangline.api.training.kinds import training_kind
from gangline.api.training.reading import read_training_job
from gangline.client.notices import Say, silent
from gangline.errors import FieldError, InvalidObjectError, UserError
from gangline.jobs.environment import launcher_environment
from gangline.launch.mpirun import ranks_asked_for
from gangline.workloads.kinds import KINDS, pod_templates

_KEPT = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
"""What runs or stays until it is deleted."""

KNOWN: dict[tuple[str, str], Resource] = {
    (resource.api_version, resource.kind): resource
    for resource in (*BUILT_IN, *JOB_RESOURCES, *RUNTIMES, *_KEPT)
}
WORKLOADS = tuple(kind.name for kind in KINDS if kind.is_job)
"""Kinds that end, and that ``gangline run`` waits for."""

OTHER_TRAININGS = ("PaddleJob", "XGBoostJob", "JAXJob", "RayJob")
"""Kinds of training jobs that people bring from other operators, and that nothing here runs."""

_OURS = {resource.kind for resource in JOB_RESOURCES}
_FIRST = tuple(
    resource.kind for resource in (NAMESPACES, CRDS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, SECRETS, CONFIG_MAPS)
)
_SUFFIXES = (".yaml", ".yml", ".json")

ImageCheck = Callable[[dict[str, Any]], str]
"""Returns why a container's image cannot be used, empty when it can."""


def read_manifests(files: Sequence[str]) -> list[Document]:
    """Return every object of the files in order; ``-`` is standard input, a folder means its manifests.

    Raises:
        ManifestError: with file, line and column.
        UserError: there is no object in them.
    """
    documents: list[Document] = []
    for file in files:
        if file == "-":
            documents += load_documents(sys.stdin.buffer.read())
        elif Path(file).is_dir():
            paths = [path for path in sorted(Path(file).iterdir()) if path.suffix in _SUFFIXES]
            if not paths:
                raise UserError(
                    f"no manifest in folder `{file}`: none of its files ends in {', '.join(_SUFFIXES)}",
                    hint="name a file, or a program behind `--`: gangline run -- python train.py",
                )
            for path in paths:
                documents += load_file(path)
        else:
            documents += load_file(file)
    if not documents:
        raise UserError(
            f"no object in `{'`, `'.join(files)}`", hint="a manifest has `apiVersion:` and `kind:`"
        )
    return documents


def in_order(documents: Sequence[Document]) -> list[Document]:
    """Return the documents in the order of creation: what others need first, what runs last."""

    def rank(document: Document) -> int:
        if document.kind in _FIRST:
            return _FIRST.index(document.kind)
        return 100 + WORKLOADS.index(document.kind) if document.kind in WORKLOADS else 50

    return sorted(documents, key=rank)


def with_namespace(documents: Sequence[Document], namespace: str) -> list[Document]:
    """Return the documents with the namespace filled in where they name none."""
    filled = []
    for document in documents:
        resource = KNOWN.get((document.api_version, document.kind))
        metadata = document.value.get("metadata")
        if (
            (resource and not resource.namespaced)
            or not isinstance(metadata, dict)
            or metadata.get("namespace")
        ):
            filled.append(document)
            continue
        value = {**document.value, "metadata": {**metadata, "namespace": namespace}}
        filled.append(replace(document, value=value))
    return filled


def check_manifests(
    documents: Sequence[Document],
    *,
    is_local: bool,
    image_problem: ImageCheck = lambda container: "",
    say: Say = silent,
) -> None:
    """Refuse documents that break rules, with every error of all of them.

    Args:
        documents: what was read.
        is_local: for the one-machine cluster only its own kinds and images count as known.
        image_problem: asked for each container when ``is_local``.
        say: is told which fields have no meaning any more.

    Raises:
        InvalidObjectError: nothing was created.
    """
    errors: list[FieldError] = []
    subjects: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    hints: list[str] = []
    for document in documents:
        found = check_document(document, is_local=is_local)
        if not found and is_local:
            found = _check_images(document, image_problem, hints)
        key = (document.kind, str(_metadata(document).get("namespace") or ""), document.name)
        if key in seen and document.name:
            found.append(
                FieldError(
                    "Duplicate", "metadata.name", "the same object is in the files twice", document.name
                )
            )
        seen.add(key)
        if found:
            subjects.append(_title(document))
            errors += document.place(found)
    if errors:
        raise InvalidObjectError(
            " and ".join(dict.fromkeys(subjects)), errors, hint=hints[0] if hints else ""
        )
    for document in documents:
        _say_what_is_passed_over(document, say)


def _say_what_is_passed_over(document: Document, say: Say) -> None:
    """Name the fields of an old version that have no meaning any more."""
    if document.kind == MPIJOBS.kind:
        for warning in document.place(read_mpijob(document.value).warnings):
            say(f"warning: mpijob/{document.name}: {warning}")


def check_document(document: Document, *, is_local: bool) -> list[FieldError]:
    """Return every error of one document: its kind, its name, its types and rules."""
    if errors := _check_kind(document, is_local=is_local):
        return errors
    errors = _check_name(document)
    if document.kind == MPIJOBS.kind:
        read = read_mpijob(document.value)
        others = [error for error in read.errors if not (errors and error.path == "metadata.name")]
        return errors + others or _check_ranks(document)
    if training := training_kind(document.kind):
        found = read_training_job(training, document.value).errors
        return errors + [error for error in found if not (errors and error.path == "metadata.name")]
    if document.kind == TRAINJOBS.kind:
        found = read_train_job(document.value).errors
        return errors + [error for error in found if not (errors and error.path == "metadata.name")]
    spec = document.value.get("spec")
    if document.kind == PODS.kind:
        errors += _check_pod(document.value, "")
    elif document.kind == JOBS.kind:
        template = spec.get("template") if isinstance(spec, dict) else None
        errors += _check_pod(template, "spec.template")
        policy = (template or {}).get("spec", {}).get("restartPolicy") if isinstance(template, dict) else None
        if not errors and policy not in ("Never", "OnFailure"):
            rule = "a Job's pods need `Never` or `OnFailure`"
            path = "spec.template.spec.restartPolicy"
            errors.append(
                FieldError("Required" if policy is None else "NotSupported", path, rule, policy or "")
            )
    return errors


def _check_kind(document: Document, *, is_local: bool) -> list[FieldError]:
    errors = [
        FieldError("Required", name, "every object of a manifest has it")
        for name in ("apiVersion", "kind")
        if not isinstance(document.value.get(name), str)
    ]
    if errors or (document.api_version, document.kind) in KNOWN:
        return errors
    versions = [version for version, kind in KNOWN if kind == document.kind]
    if versions and (is_local or document.kind in _OURS):
        rule = f"{document.kind} is served in version {', '.join(f'`{version}`' for version in versions)}"
        return [FieldError("NotSupported", "apiVersion", rule, document.api_version)]
    if not is_local:
        return []
    if document.kind in OTHER_TRAININGS:
        rule = (
            f"nothing here runs a {document.kind}: it needs its own operator. Its program runs as an MPIJob "
            "(mpirun starts the ranks; examples/published has some), or with `gangline run -n 4 -- PROGRAM`; "
            "--context CONTEXT uses a cluster with that operator"
        )
        return [FieldError("NotSupported", "kind", rule)]
    meant = similar_name(document.kind, {kind for _, kind in KNOWN})
    advice = f"; did you mean `{meant}`?" if meant else ""
    return [FieldError("NotSupported", "kind", f"this cluster does not know the kind{advice}", document.kind)]


def _check_name(document: Document) -> list[FieldError]:
    """Refuse an object without a name, and say which key was probably meant to be it."""
    if document.name:
        return []
    meant = next((key for key in _metadata(document) if similar_name(str(key), {"name"})), "")
    advice = f"; did you mean `name` instead of `{meant}`?" if meant else ""
    return [FieldError("Required", "metadata.name", f"an object needs a name{advice}")]


def _check_pod(pod: Any, path: str) -> list[FieldError]:
    prefix = f"{path}.spec" if path else "spec"
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
        return [FieldError("Required", prefix, "must say what the pod is made of")]
    errors = check_pod_template(
        {"metadata": pod.get("metadata") or {}, "spec": pod["spec"]}, path, unknown="similar"
    )
    if not pod["spec"].get("containers"):
        errors.append(FieldError("Required", f"{prefix}.containers", "must have at least one container"))
    return errors


def _check_ranks(document: Document) -> list[FieldError]:
    """Refuse an mpirun line for more ranks than there are slots, and a launcher without a line."""
    job = read_mpijob(document.value).job
    launcher = job.spec.replica(LAUNCHER)
    if launcher is None:
        return []
    container = launcher.containers[0]
    is_old = "mpiReplicaSpecs" not in document.value["spec"]  # v1alpha1 has one template for both roles
    path = f"spec.{'' if is_old else 'mpiReplicaSpecs[Launcher].'}template.spec.containers[0]"
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    if not words and str(container.get("image", "")).startswith("gangline/"):
        rule = "the image has no program of its own: say which mpirun line the launcher runs"
        return [FieldError("Required", f"{path}.command", rule)]
    asked = ranks_asked_for(words)
    slots = job.worker_count * (job.spec.slots_per_worker or 1)
    if job.spec.run_launcher_as_worker:
        slots += job.spec.slots_per_worker or 1
    if asked is None or asked <= slots or slots == 0:
        return []
    rule = (
        f"mpirun is asked for {asked} ranks, but {job.worker_count} workers with "
        f"{job.spec.slots_per_worker} slots each have room for {slots}"
    )
    return [FieldError("Invalid", f"{path}.command", rule, str(asked))]


def _check_images(document: Document, image_problem: ImageCheck, hints: list[str]) -> list[FieldError]:
    errors = []
    for path, template in pod_templates(document.value):
        spec = template.get("spec") or {}
        for field in ("initContainers", "containers"):
            for index, container in enumerate(spec.get(field) or []):
                problem = image_problem(_as_started(document, path, container))
                if problem:
                    rule, _, hint = problem.partition("\n")
                    where = f"{path}spec.{field}[{index}].image"
                    errors.append(FieldError("NotSupported", where, rule, str(container.get("image"))))
                    hints += [hint] if hint else []
    return errors


def _as_started(document: Document, path: str, container: dict[str, Any]) -> dict[str, Any]:
    """Return a container with the variables that the operator adds, for a launcher those about its hosts."""
    if document.kind != MPIJOBS.kind or "[Worker]" in path:
        return container
    own = list(container.get("env") or [])
    return container | {"env": [*own, *launcher_environment(read_mpijob(document.value).job, own)]}


def _title(document: Document) -> str:
    """Return the object in words: its kind as it is spelt, and its name if it has one."""
    kind = document.kind or "object"
    return f"{kind} `{document.name}`" if document.name else f"{kind} without a name"


def _metadata(document: Document) -> dict[str, Any]:
    metadata = document.value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
