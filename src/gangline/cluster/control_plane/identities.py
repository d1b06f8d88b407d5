"""Who is who under Kubernetes' control plane: certificates of its parts, kubeconfigs of its clients.

``python -m gangline.cluster.control_plane.identities CLUSTER PORT ADDRESS ...`` writes them, in a process of
its own: see ``cluster/certificates.py``. What each may do is in ``roles.yaml``.
"""

from __future__ import annotations

import sys

from gangline.cluster.api_access import ADMIN, identity_file, kubeconfig_text
from gangline.cluster.certificates import Certificates, Identity, ensure_signing_key
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.private_files import write_private

SIGNING_KEY = "service-accounts.key"
"""Signs the tokens of service accounts."""

KUBELET = "kubelet"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
FRONT_PROXY = "front-proxy-client"
CONTROLLER_MANAGER = "system:kube-controller-manager"
AGENT = "gangline-agent"
CONTROLLERS = "gangline-controllers"
OPERATOR = "gangline-operator"
SCHEDULER = "gangline-scheduler"

CLIENTS = (CONTROLLER_MANAGER, AGENT, CONTROLLERS, OPERATOR, SCHEDULER)
"""Each with a kubeconfig of its own, and the rights that are bound to its name."""


def write_identities(paths: ClusterPaths, port: int, addresses: list[str]) -> None:
    """Write what is missing or about to end. Cost: 0.1 s when all is made.

    Args:
        paths: of the cluster.
        port: of the API server.
        addresses: further addresses at which the API server and the kubelet endpoint are reached.
    """
    certificates = Certificates(paths.certificates, addresses)
    certificates.ensure()
    ensure_signing_key(paths.certificates / SIGNING_KEY)
    nodes = Identity("system:node", ("system:nodes",), ("127.0.0.1", *addresses))
    certificates.ensure_of(KUBELET, nodes)
    for name in (KUBELET_CLIENT, FRONT_PROXY):
        certificates.ensure_of(name, Identity(name))
    authority = certificates.authority_pem
    for name in (ADMIN, *CLIENTS):
        identity = Identity(name, ("system:masters",) if name == ADMIN else ())
        text = kubeconfig_text(paths.name, port, authority, pair=certificates.ensure_of(name, identity))
        write_private(identity_file(paths, name), text.encode())
        if name == ADMIN:
            write_private(paths.kubeconfig, text.encode())


if __name__ == "__main__":
    write_identities(ClusterPaths.of(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
