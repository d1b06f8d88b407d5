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


def write_identities(paths: ClusterPaths, port: int, addresses: list[str], *, make: bool = True) -> bool:
    """Write what is missing or about to end; whether all is there. Cost: 0.2 s when all is made, else 2 ms.

    Args:
        paths: of the cluster.
        port: of the API server.
        addresses: further addresses at which the API server and the kubelet endpoint are reached.
        make: whether certificates may be made, which takes memory for good.
    """
    certificates = Certificates(paths.certificates, addresses)
    signing_key = paths.certificates / SIGNING_KEY
    wanted = {KUBELET: Identity("system:node", ("system:nodes",), ("127.0.0.1", *addresses))}
    wanted |= {name: Identity(name) for name in (KUBELET_CLIENT, FRONT_PROXY, *CLIENTS)}
    wanted[ADMIN] = Identity(ADMIN, ("system:masters",))
    if make:
        certificates.ensure()
        ensure_signing_key(signing_key)
    elif not certificates.are_current() or not signing_key.exists():
        return False
    for name, identity in wanted.items():
        if not make and not certificates.is_current(name, identity):
            return False
        pair = certificates.ensure_of(name, identity)
        if name in (ADMIN, *CLIENTS):
            text = kubeconfig_text(paths.name, port, certificates.authority_pem, pair=pair).encode()
            write_private(identity_file(paths, name), text)
            if name == ADMIN:
                write_private(paths.kubeconfig, text)
    return True


if __name__ == "__main__":
    write_identities(ClusterPaths.of(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
