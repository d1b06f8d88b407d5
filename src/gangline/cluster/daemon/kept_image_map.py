"""The image map of a cluster, read and written from outside: up or down."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from gangline.cluster.images.image_map import MAP_NAME, MAP_NAMESPACE, ImageMap, UserImage
from gangline.cluster.process_lock import read_lock
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster import Cluster

_FOLDER = f"/api/v1/namespaces/{MAP_NAMESPACE}/configmaps"
_ROW = "SELECT value FROM object WHERE collection = '/configmaps' AND namespace = ? AND name = ?"
ATTEMPTS_MAX = 5


def load_image_map(cluster: Cluster) -> ImageMap:
    """Return the cluster's map; of one that is down or still starting from its store, as it is."""
    if read_lock(cluster.paths.lock("server")).state == "held":
        with suppress(ClusterError):  # another command has just started it: it does not listen yet
            status, answer = cluster.request("GET", f"{_FOLDER}/{MAP_NAME}")
            return ImageMap.from_object(answer) if status == 200 else ImageMap()
    try:
        store = sqlite3.connect(f"{cluster.paths.store.as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return ImageMap()
    try:
        row = store.execute(_ROW, (MAP_NAMESPACE, MAP_NAME)).fetchone()
        return ImageMap.from_object(json.loads(row[0])) if row else ImageMap()
    except (sqlite3.Error, ValueError):
        return ImageMap()  # no store yet, or one that a server has just opened
    finally:
        store.close()


def change_image_map(
    cluster: Cluster,
    images: Mapping[str, UserImage | None],
    runtime: str | None,
    bench_limits: str | None = None,
) -> ImageMap:
    """Change the map of a cluster that is up, and return it; see ``ImageMap.changed``.

    Raises:
        ClusterError: the server refuses, or others change the map all the time.
    """
    status, answer = 0, None
    for _ in range(ATTEMPTS_MAX):
        status, found = cluster.request("GET", f"{_FOLDER}/{MAP_NAME}")
        before = ImageMap.from_object(found) if status == 200 else ImageMap()
        after = before.changed(images, runtime, bench_limits)
        if after == before:
            return after
        wanted = after.to_object()
        if status == 200:
            wanted["metadata"] = found["metadata"]
            status, answer = cluster.request("PUT", f"{_FOLDER}/{MAP_NAME}", wanted)
        else:
            status, answer = cluster.request("POST", _FOLDER, wanted)
        if status < 300:
            return after
        if status != 409:
            break
    message = answer.get("message") if isinstance(answer, dict) else answer
    raise ClusterError(f"cannot keep the image map of cluster `{cluster.paths.name}`: {message or status}")
