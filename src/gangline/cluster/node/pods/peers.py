"""Where a pod finds the others of its torch job if names lead nowhere, as with isolation ``plain``. Pure.

There all pods have the address of the machine, so that is what their names stand for. TF_CONFIG stays as it
is: its replicas have one port all, which one of them alone could open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api.core import Pod
from gangline.jobs.names import JOB_NAME_LABEL

ADDRESS: Final = "127.0.0.1"
_VARIABLES: Final = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")


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
    return found
