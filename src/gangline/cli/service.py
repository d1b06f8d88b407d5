"""Which API server a service talks to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangline.kube.config import Connection


def service_connection(kubeconfig: Path | None, context: str | None) -> Connection:
    """Return the connection of the named kubeconfig, inside a cluster of the pod's own account."""
    from gangline.kube.config import in_cluster, load_kubeconfig

    if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return load_kubeconfig(kubeconfig, context)
