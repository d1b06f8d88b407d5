"""Where a pod finds the others of its training job if names lead nowhere, as with isolation ``plain``. Pure.

There all pods have the address of the machine, so that is what their names stand for; and what each replica
of a TFJob opens, the same port everywhere, becomes a port of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from gangline.api.core import Pod
from gangline.jobs.names import JOB_NAME_LABEL

ADDRESS: Final = "127.0.0.1"
FIRST_PORT: Final = 20_000
PORTS: Final = 12_000
"""Ports from the first on that replicas are given: below those that Linux gives to connections, 32768 on."""
_VARIABLES: Final = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_TF_CONFIG: Final = "TF_CONFIG"
_ROLES: Final = ("chief", "master", "ps", "worker", "evaluator")


def with_addresses(pod: Pod, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with an address in place of the names of pods of the same job.

    Example:
        >>> pod = Pod(metadata=ObjectMeta(labels={JOB_NAME_LABEL: "digits"}))
        >>> with_addresses(pod, {"PET_RDZV_ENDPOINT": "digits-worker-0:23456", "MASTER_ADDR": "other"})
        {'PET_RDZV_ENDPOINT': '127.0.0.1:23456', 'MASTER_ADDR': 'other'}
    """
    job = pod.metadata.labels.get(JOB_NAME_LABEL)
    found = dict(env)
    for name in _VARIABLES if job else ():
        host, colon, port = found.get(name, "").partition(":")
        if host.startswith(f"{job}-"):
            found[name] = f"{ADDRESS}{colon}{port}"
    if job and _TF_CONFIG in found:
        owner = next((ref.uid for ref in pod.metadata.owner_references), pod.metadata.namespace)
        found[_TF_CONFIG] = _with_own_ports(found[_TF_CONFIG], job, owner)
    return found


def _with_own_ports(text: str, job: str, owner: str) -> str:
    """Return ``TF_CONFIG`` with the same address and port for a replica in whatever pod it is read.

    Replicas of one job never share a port; those of two jobs do so once in some hundred pairs of jobs, and
    then the second ends as any program whose port is taken. A text that is no such configuration stays.
    """
    try:
        config: Any = json.loads(text)
        cluster = config["cluster"]
        for role, hosts in cluster.items():
            pairs = hosts.items() if isinstance(hosts, dict) else enumerate(hosts)
            told = {key: _address(host, job, owner) for key, host in pairs}
            cluster[role] = told if isinstance(hosts, dict) else list(told.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    return json.dumps(config, separators=(",", ":"))


def _address(host: str, job: str, owner: str) -> str:
    role, _, index = host.partition(".")[0].removeprefix(f"{job}-").rpartition("-")
    if role not in _ROLES or not index.isdigit() or not host.startswith(f"{job}-"):
        return host
    place = crc32(owner.encode()) + int(index) * len(_ROLES) + _ROLES.index(role)
    return f"{ADDRESS}:{FIRST_PORT + place % PORTS}"
