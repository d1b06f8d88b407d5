"""Which of a pod's GPUs each of its containers gets, and the annotation that says so."""

from __future__ import annotations

from itertools import chain

import msgspec

from gangline.api.core import PodSpec
from gangline.workloads.requests import GPU, container_requests, round_up

ANNOTATION = "gangline.dev/gpus"
"""On a pod: JSON object, container -> UUIDs of its GPUs. Written by whoever places the pod."""

GPU_GROUP_ANNOTATION = "topology.kubernetes.io/gpu-group"
"""On a pod: indices of its GPUs on the node. Source: arena, which shows them."""

VISIBLE_ANNOTATION = "gangline.dev/visible-gpus"
"""On a pod: UUIDs with commas between, the only GPUs that it may get; without it any."""

_decoder = msgspec.json.Decoder(dict[str, list[str]])


def gpu_shares(spec: PodSpec) -> dict[str, range]:
    """Return which of the pod's GPUs, counted from 0, each container gets that asks for some.

    Containers and sidecars have theirs to themselves. Another init container ends before those after it
    start, and uses theirs; the last position of all is what the pod asks for.

    Raises:
        ValueError: a quantity cannot be parsed.

    Example: a sidecar with 1, an init container with 3 and a container with 2 get 0, 1 to 3 and 1 to 2.
    """
    shares: dict[str, range] = {}
    first = 0
    starting = {container.name for container in spec.init_containers if container.restart_policy != "Always"}
    for container in chain(spec.init_containers, spec.containers):
        last = first + round_up(container_requests(container).get(GPU, 0))
        if last > first:
            shares[container.name] = range(first, last)
        if container.name not in starting:
            first = last
    return shares


def read_gpus(text: str | None) -> dict[str, list[str]]:
    """Return the value of :data:`ANNOTATION` as container -> ids; an empty text chooses nothing.

    Raises:
        ValueError: it is not of that form.
    """
    if not text:
        return {}
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError:
        raise ValueError(
            f'annotation {ANNOTATION} must be a JSON object such as {{"worker": ["GPU-…"]}}, found `{text}`'
        ) from None
