"""A manifest that a Python program hands in: a file, a folder, or objects; read and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gangline.api.codec import Document
from gangline.client.manifests import check_manifests, read_manifests, with_namespace
from gangline.client.notices import Say
from gangline.client.run.images import image_check, isolation_of
from gangline.client.target import ClusterTarget
from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.daemon.kept_image_map import load_image_map
from gangline.errors import UserError

Manifest = str | os.PathLike[str] | Mapping[str, object] | Sequence[Mapping[str, object]]
"""A path, an object, or several objects."""


def documents_of(manifest: Manifest) -> list[Document]:
    """Return the objects of a manifest.

    Raises:
        ManifestError: a file cannot be read as one.
        UserError: it is no manifest.
    """
    if isinstance(manifest, str | os.PathLike):
        return read_manifests([os.fspath(manifest)])
    objects = [manifest] if isinstance(manifest, Mapping) else list(manifest)
    if not objects or not all(isinstance(one, Mapping) for one in objects):
        found = type(manifest).__name__
        raise UserError(f"a manifest is a path, an object or several objects (found {found})")
    return [Document(dict(one), file="the call") for one in objects]


def checked(target: ClusterTarget, documents: list[Document], say: Say) -> list[Document]:
    """Return documents with their namespace, checked against the rules; nothing is created.

    Raises:
        InvalidObjectError: with every error.
    """
    namespace = target.namespace or ("default" if target.is_local else target.connection().namespace)
    documents = with_namespace(documents, namespace or "default")
    if not target.is_local:
        check_manifests(documents, is_local=False, say=say)
        return documents
    cluster = Cluster(target.paths)
    problem = image_check(load_image_map(cluster), isolation_of(cluster))
    check_manifests(documents, is_local=True, image_problem=problem, say=say)
    return documents
