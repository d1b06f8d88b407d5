"""The objects of an MPIJob that are no pods: Service, ConfigMap and Secret; what each should be.

Only fields that Gangline owns are compared, so defaults that a server adds are never taken for a difference.
"""

from __future__ import annotations

import base64
from typing import Any

from gangline.api.core import ConfigMap, Secret, Service
from gangline.api.mpijob import MPIJob
from gangline.api.resources import CONFIG_MAPS, SECRETS, SERVICES
from gangline.jobs.hostfile import next_discover_hosts, render_hostfile
from gangline.jobs.names import (
    CERTIFICATE_KEY,
    DISCOVER_HOSTS_KEY,
    HOSTFILE_KEY,
    PRIVATE_KEY,
    PUBLIC_KEY,
    SSH_CONFIG_KEY,
    Names,
    child_metadata,
    other_child_labels,
    selector_labels,
)
from gangline.jobs.plan import Action, Create, EnsureKeyPair, Patch, merge_patch_between
from gangline.jobs.remote_access import KUBEXEC_KEY, KUBEXEC_SCRIPT
from gangline.jobs.settings import Settings
from gangline.jobs.ssh_config import ssh_config

Object = dict[str, Any]


def ensure_service(job: MPIJob, service: Service | None) -> list[Action]:
    """Return what makes the headless Service right; it selects the pods of both roles and has no ports."""
    names = Names.of(job)
    selector = selector_labels(names.job)
    # A launcher with ranks waits for its own name, which is published only when it is ready, unless so.
    publish = job.spec.run_launcher_as_worker
    if service is None:
        spec: Object = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": publish}
        return [Create(SERVICES, _child(job, "Service", names.service) | {"spec": spec})]
    before: Object = {
        "selector": service.spec.selector,
        "publishNotReadyAddresses": service.spec.publish_not_ready_addresses,
    }
    patch = merge_patch_between(before, {"selector": selector, "publishNotReadyAddresses": publish})
    return [Patch(SERVICES, names.namespace, names.service, {"spec": patch})] if patch else []


def ensure_config_map(
    job: MPIJob, config_map: ConfigMap | None, running: set[str], settings: Settings
) -> list[Action]:
    """Return what makes the host lists right."""
    names, domain = Names.of(job), settings.cluster_domain
    data = config_map.data if config_map else {}
    wanted = {
        HOSTFILE_KEY: render_hostfile(job, domain),
        DISCOVER_HOSTS_KEY: next_discover_hosts(job, running, data.get(DISCOVER_HOSTS_KEY), domain),
    }
    if job.needs_exec:
        wanted[KUBEXEC_KEY] = KUBEXEC_SCRIPT
    if job.has_agent:
        wanted |= dict(settings.agent_programs)
    if config_map is None:
        return [Create(CONFIG_MAPS, _child(job, "ConfigMap", names.config_map) | {"data": wanted})]
    changed = {key: text for key, text in wanted.items() if data.get(key) != text}
    return [Patch(CONFIG_MAPS, names.namespace, names.config_map, {"data": changed})] if changed else []


def ensure_secret(job: MPIJob, secret: Secret | None) -> list[Action]:
    """Return what gives the job an ssh key pair and ssh its configuration; a pair that is there is kept."""
    names = Names.of(job)
    config = {SSH_CONFIG_KEY: base64.b64encode(ssh_config().encode()).decode()}
    kept = secret.data if secret is not None else {}
    has_pair = set(kept) - set(config) - {CERTIFICATE_KEY} == {PRIVATE_KEY, PUBLIC_KEY}
    if has_pair and (CERTIFICATE_KEY in kept or not job.has_agent):
        is_current = kept.get(SSH_CONFIG_KEY) == config[SSH_CONFIG_KEY]
        return [] if is_current else [Patch(SECRETS, names.namespace, names.secret, {"data": config})]
    wanted = _child(job, "Secret", names.secret) | {"type": "kubernetes.io/ssh-auth", "data": config}
    # Where another operator had the job for a while, pods have the pair, and only its certificate is gone.
    private_key = kept[PRIVATE_KEY] if has_pair else ""
    return [EnsureKeyPair(wanted, secret is not None, job.has_agent, private_key)]


def _child(job: MPIJob, kind: str, name: str) -> Object:
    metadata = child_metadata(job.metadata, name, other_child_labels(job.metadata.name))
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
