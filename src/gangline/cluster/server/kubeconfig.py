"""The kubeconfig that lets kubectl in."""

from __future__ import annotations

import base64
import json


def kubeconfig_text(cluster: str, port: int, authority_pem: bytes, token: str) -> str:
    """Return a kubeconfig (YAML) of the administrator for the server on 127.0.0.1."""
    name = "gangline" if cluster == "default" else f"gangline-{cluster}"
    quoted = json.dumps(name)
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: {quoted}
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {base64.b64encode(authority_pem).decode()}
contexts:
- name: {quoted}
  context:
    cluster: {quoted}
    user: {quoted}
current-context: {quoted}
users:
- name: {quoted}
  user:
    token: {json.dumps(token)}
"""
