"""Which claims a pod names, of volumes and of devices, and which of its containers use the latter."""

from __future__ import annotations

from gangline.api.core import Pod, PodSpec


def volume_claims(pod: Pod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of all claims, and of those that are made for the pod: ``POD-VOLUME``."""
    named = tuple(
        volume.persistent_volume_claim.get("claimName", "")
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim
    )
    own = tuple(f"{pod.metadata.name}-{volume.name}" for volume in pod.spec.volumes if volume.ephemeral)
    return named + own, own


def device_claims(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Return (name in the pod, name of the object or empty while it is being made) of its claims."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    asked = pod.spec.resource_claims
    # Of a template no claim may be made: then there is no name, and nothing to wait for.
    found = [(one.name, made.get(one.name, one.resource_claim_name or "")) for one in asked]
    return tuple((name, made_name) for name, made_name in found if made_name is not None)


def claim_users(spec: PodSpec) -> tuple[tuple[str, str, str], ...]:
    """Return (container, name in the pod, request or empty for all) of the containers that use claims."""
    return tuple(
        (container.name, used["name"], used.get("request", ""))
        for container in (*spec.init_containers, *spec.containers)
        for used in container.resources.claims
    )
