"""What serves the image of a container on this machine, and why it cannot."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.images.image_map import ImageMap, UserImage

PLAIN_WAYS = "use isolation `user` or `network` (`gangline up --isolation`), or a virtual environment"


def isolation_of(cluster: Cluster) -> str:
    """Return the isolation that a cluster has or was given, empty when neither is known."""
    from gangline.cluster.daemon.cluster_facts import load_facts

    facts = load_facts(cluster.paths)
    return cluster.isolation_in_use() or (facts.isolation if facts else "")


def plain_problem(image: UserImage, isolation: str) -> str:
    """Return why a folder cannot serve an image with that isolation, empty when it can."""
    if isolation != "plain" or image.kind == "venv":
        return ""
    return "isolation `plain` has no mounts, so that no pod could see the folder's files at their places"


def image_check(known: ImageMap, isolation: str = "") -> Callable[[dict[str, Any]], str]:
    """Return what says why a container's image cannot be used, and a hint on a second line; empty for yes."""
    from gangline.cluster.images.image_map import nothing_serves
    from gangline.cluster.images.local_images import BASE_IMAGE, image_name

    def problem(container: dict[str, Any]) -> str:
        image = str(container.get("image") or "")
        folder = known.find(image) if image else None
        if folder is not None and (refusal := plain_problem(folder, isolation)):
            return f"{refusal}\n{PLAIN_WAYS}"
        if not image or served_by(image, known):
            return _program_problem(container, folder, known)
        rule, hint = nothing_serves(image)
        if get_close_matches(image_name(image), [BASE_IMAGE], cutoff=0.7):
            hint = f"did you mean `{BASE_IMAGE}`?"
        return f"{rule}\n{hint}"

    return problem


def _program_problem(container: dict[str, Any], folder: UserImage | None, known: ImageMap) -> str:
    """Return why what a container runs in a local image cannot work; empty for nothing known."""
    from gangline.cluster.images.local_images import local_image_of
    from gangline.cluster.images.program_check import why_not
    from gangline.cluster.images.shipped_images import SHIPPED, config_of

    image = str(container.get("image") or "")
    is_served_here = folder.kind == "venv" if folder else not known.runtime and bool(local_image_of(image))
    if not is_served_here:
        return ""
    environment = {str(one.get("name")): str(one.get("value") or "") for one in container.get("env") or []}
    lent = f"{folder.path}/bin" if folder else ""
    path = os.pathsep.join(filter(None, [lent, os.environ.get("PATH", ""), str(Path(sys.executable).parent)]))
    if environment.get("PATH"):
        path = environment["PATH"]
    elif mpirun := shutil.which("mpirun", path=path):
        path = os.pathsep.join(
            filter(None, [lent, str(Path(mpirun).parent), str(Path(sys.executable).parent)])
        )
    if folder:
        environment = {"VIRTUAL_ENV": folder.path} | environment
    config = config_of(name) if (name := local_image_of(image)) in SHIPPED else None
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    start = str(container.get("workingDir") or "") or (config.working_dir if config else "")
    refusal = why_not(image, words or (config.command if config else ()), start, path, environment)
    return "\n".join(refusal) if refusal else ""


def served_by(image: str, known: ImageMap) -> str:
    """Return what serves an image, in words; empty when nothing does."""
    from gangline.cluster.images.image_map import repository
    from gangline.cluster.images.local_images import local_image_of
    from gangline.cluster.images.shipped_images import SHIPPED, own_programs

    local = local_image_of(image)
    limits = f", limited to {known.bench_limits}" if known.bench_limits and local in SHIPPED else ""
    if found := known.find(image):
        return f"{found}{limits if found.kind == 'venv' else ''}"
    if local in SHIPPED and not known.runtime:
        return own_programs(local, repository(image).removeprefix("docker.io/")) + limits
    if local and (local.startswith("gangline/") or not known.runtime):
        return f"local image {local}"
    return known.runtime


def substitutions(objects: Iterable[dict[str, Any]], known: ImageMap) -> list[str]:
    """Return a line for each image of workloads that something else than its namesake serves."""
    from gangline.workloads.kinds import pod_templates

    images: dict[str, None] = {}
    for obj in objects:
        for _, template in pod_templates(obj):
            spec = template.get("spec") or {}
            for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
                images[str(container.get("image") or "")] = None
    return [f"image {image} served by {by}" for image in images if (by := _substitute(image, known))]


def _substitute(image: str, known: ImageMap) -> str:
    by = served_by(image, known) if image else ""
    return "" if by == f"local image {image.partition(':')[0]}" else by
