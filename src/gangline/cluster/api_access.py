"""How clients reach the API of a cluster: kubectl by its kubeconfig, the cluster's processes each as itself.

The own server is reached over its socket, which only its owner can open; a server of Kubernetes over TLS, by
everybody with a certificate of his own.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from gangline.cluster.paths import ClusterPaths
from gangline.kube.config import Connection, load_kubeconfig

ADMIN = "kubernetes-admin"
SERVICE_SUBNET = "10.96.0.0/16"
"""Addresses of services; the first is among those of the API server's certificate."""


def identity_file(paths: ClusterPaths, identity: str) -> Path:
    """Return the kubeconfig of one of the cluster's own processes; the own server needs none."""
    return paths.certificates / f"{identity}.kubeconfig"


def api_connection(paths: ClusterPaths, identity: str = ADMIN) -> Connection:
    """Return how one of the cluster's own processes reaches the API; the one place that knows.

    Raises:
        KubeconfigError: its file is damaged.
    """
    file = identity_file(paths, identity)
    return load_kubeconfig(file) if file.exists() else Connection(server=f"unix://{paths.api_socket}")


def kubeconfig_text(
    cluster: str, port: int, authority_pem: bytes, token: str = "", pair: tuple[Path, Path] | None = None
) -> str:
    """Return a kubeconfig (YAML) for the server on 127.0.0.1.

    Args:
        cluster: name of the cluster.
        port: of HTTPS.
        authority_pem: certificate of the authority.
        token: of the user; or
        pair: files of the user's certificate and its key.
    """
    name = "gangline" if cluster == "default" else f"gangline-{cluster}"
    quoted = json.dumps(name)
    user = f"token: {json.dumps(token)}"
    if pair is not None:
        certificate, key = (_base64(path.read_bytes()) for path in pair)
        user = f"client-certificate-data: {certificate}\n    client-key-data: {key}"
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: {quoted}
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {_base64(authority_pem)}
contexts:
- name: {quoted}
  context:
    cluster: {quoted}
    user: {quoted}
current-context: {quoted}
users:
- name: {quoted}
  user:
    {user}
"""


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
