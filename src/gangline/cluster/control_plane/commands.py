"""The command lines of a control plane's programs for one machine. Pure.

etcd waits for the disk as in production, and listens on sockets that only their owner can open.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gangline.cluster.account_tokens import ISSUER
from gangline.cluster.api_access import SERVICE_SUBNET
from gangline.cluster.control_plane import identities
from gangline.cluster.control_plane.programs import API_SERVER, CONTROLLERS, ETCD

UNUSED_URL = "http://127.0.0.1:1"
"""etcd wants to tell its peers a URL; there are none."""

NOT_RUN = (
    "persistentvolume-binder-controller",
    "ephemeral-volume-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
)
"""Controllers whose work is done here: volumes of this machine are folders."""


class PlaneFiles(msgspec.Struct, frozen=True):
    """Where a control plane has its files.

    Attributes:
        pki: folder of certificates and keys.
        data: folder of etcd.
        sockets: short folder of its sockets.
    """

    pki: Path
    data: Path
    sockets: Path

    @property
    def etcd_socket(self) -> Path:
        """Where etcd serves."""
        return self.sockets / "etcd.sock"


def command_lines(files: PlaneFiles, port: int, address: str) -> dict[str, list[str]]:
    """Return the options of each program, in the order in which they are started.

    Args:
        files: of the control plane.
        port: of HTTPS on loopback.
        address: at which pods reach it.
    """
    return {
        ETCD: _etcd(files),
        API_SERVER: _api_server(files, port, address),
        CONTROLLERS: _controllers(files),
    }


def _etcd(files: PlaneFiles) -> list[str]:
    return [
        f"--data-dir={files.data}",
        f"--listen-client-urls=unix://{files.etcd_socket}",
        f"--advertise-client-urls={UNUSED_URL}",
        f"--listen-peer-urls=unix://{files.sockets / 'etcd-peer.sock'}",
        f"--initial-advertise-peer-urls={UNUSED_URL}",
        f"--initial-cluster=default={UNUSED_URL}",
        "--log-level=warn",
    ]


def _api_server(files: PlaneFiles, port: int, address: str) -> list[str]:
    pki = files.pki
    return [
        f"--etcd-servers=unix://{files.etcd_socket}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--advertise-address={address}",
        "--endpoint-reconciler-type=none",  # loopback may be no endpoint, the bridge's address is told by us
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--profiling=false",
        f"--service-cluster-ip-range={SERVICE_SUBNET}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki / identities.SIGNING_KEY}",
        f"--service-account-signing-key-file={pki / identities.SIGNING_KEY}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / f'{identities.KUBELET_CLIENT}.crt'}",
        f"--kubelet-client-key={pki / f'{identities.KUBELET_CLIENT}.key'}",
        # Servers of further APIs and webhooks are reached at their pods, with or without cluster IPs.
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        f"--requestheader-allowed-names={identities.FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / f'{identities.FRONT_PROXY}.crt'}",
        f"--proxy-client-key-file={pki / f'{identities.FRONT_PROXY}.key'}",
    ]


def _controllers(files: PlaneFiles) -> list[str]:
    pki = files.pki
    return [
        f"--kubeconfig={pki / f'{identities.CONTROLLER_MANAGER}.kubeconfig'}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--profiling=false",
        f"--controllers=*,{','.join(f'-{name}' for name in NOT_RUN)}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / identities.SIGNING_KEY}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
