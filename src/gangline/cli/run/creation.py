"""Know an object again whose creation got no answer: the server may have kept it before it was killed."""

from __future__ import annotations

import os
from typing import Any

Obj = dict[str, Any]

CREATION_ANNOTATION = "gangline.dev/creation"
CREATIONS_MAX = 5
"""Times that a creation is tried when the server is killed under it."""


def with_creation_mark(obj: Obj) -> Obj:
    """Return the object with a mark by which this very creation is known again."""
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), CREATION_ANNOTATION: os.urandom(16).hex()}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def is_same_creation(live: Obj, marked: Obj) -> bool:
    """Whether an object is what a creation without an answer has left."""
    found = (live["metadata"].get("annotations") or {}).get(CREATION_ANNOTATION)
    return bool(found == marked["metadata"]["annotations"][CREATION_ANNOTATION])
