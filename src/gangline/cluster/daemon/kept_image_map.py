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
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, NotFound

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster import Cluster

_FOLDER = f"/api/v1/namespaces/{MAP_NAMESPACE}/configmaps"
_ROW = "SELECT value FROM object WHERE collection = '/configmaps' AND namespace = ? AND name = ?"
ATTEMPTS_MAX = 5


def load_image_map(cluster: Cluster) -> ImageMap:
    """Return the cluster's map; of one that is down or still starting from its store, as it is."""
    if read_lock(cluster.paths.lock("server")).state == "held":
        with suppress(ClusterError):  # another command has just started it: it does not listen yet
            try:
                return ImageMap.from_object(cluster.request("GET", f"{_FOLDER}/{MAP_NAME}"))
            except NotFound:
                return ImageMap()
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
    failure: ApiError | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            found = cluster.request("GET", f"{_FOLDER}/{MAP_NAME}")
        except NotFound:
            found = {}
        before = ImageMap.from_object(found) if found else ImageMap()
        after = before.changed(images, runtime, bench_limits)
        if after == before:
            return after
        wanted = after.to_object()
        try:
            if found:
                wanted["metadata"] = found["metadata"]
                cluster.request("PUT", f"{_FOLDER}/{MAP_NAME}", wanted)
            else:
                cluster.request("POST", _FOLDER, wanted)
            return after
        except (Conflict, AlreadyExists) as error:
            failure = error
        except ApiError as error:
            failure = error
            break
    raise ClusterError(f"cannot keep the image map of cluster `{cluster.paths.name}`: {failure}") from failure
