"""Who we are to the server: tokens, token files that rotate, client certificates, credential plugins.

Source: client.authentication.k8s.io/v1 (and v1beta1), the published protocol of exec plugins.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from gangline.clock import parse_time
from gangline.kube.config import Connection, Credential, ExecPlugin
from gangline.kube.errors import KubeconfigError

token_file_age_max_s = 60.0
"""A token file is read again after this; kubelets rotate tokens at 80 % of their life."""

plugin_timeout_s = 60.0
"""A plugin may open a browser for its user; longer than this it is ended."""

_expiry_margin_s = 10.0


async def read_credential(connection: Connection) -> Credential:
    """Return what to show to the server now; runs the plugin when there is one.

    Raises:
        KubeconfigError: a file cannot be read, or the plugin failed.
    """
    if connection.exec_plugin:
        return await _run_plugin(connection, connection.exec_plugin)
    certificate, key = _content(connection.client_cert), _content(connection.client_key)
    if connection.token_file:
        token = _content(connection.token_file).decode("ascii", "replace").strip()
        expires_at_s = time.time() + token_file_age_max_s
        return Credential(f"Bearer {token}", certificate, key, expires_at_s)
    if connection.token:
        return Credential(f"Bearer {connection.token}", certificate, key)
    if connection.username:
        pair = base64.b64encode(f"{connection.username}:{connection.password}".encode()).decode()
        return Credential(f"Basic {pair}", certificate, key)
    return Credential("", certificate, key)


def is_renewable(connection: Connection) -> bool:
    """Whether reading the credential again may give another one, as after a 401."""
    return connection.exec_plugin is not None or connection.token_file is not None


def is_expired(credential: Credential) -> bool:
    """Whether the credential must be read again before use."""
    return credential.expires_at_s is not None and time.time() >= credential.expires_at_s - _expiry_margin_s


def _content(source: bytes | Path | None) -> bytes:
    if source is None:
        return b""
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{source} cannot be read: {error.strerror}", where=str(source)) from error


class _PluginStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _PluginAnswer(msgspec.Struct):
    status: _PluginStatus


async def _run_plugin(connection: Connection, plugin: ExecPlugin) -> Credential:
    name = plugin.command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            _program(plugin),
            *plugin.command[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,  # the plugin talks to the user
            env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(connection, plugin)},
        )
    except OSError as error:
        raise KubeconfigError(
            f"credential plugin `{name}` cannot be started: {error.strerror}", hint=plugin.install_hint
        ) from error
    try:
        async with asyncio.timeout(plugin_timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        raise KubeconfigError(
            f"credential plugin `{name}` took longer than {plugin_timeout_s:.0f} s"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise KubeconfigError(f"credential plugin `{name}` failed with exit code {process.returncode}")
    return _plugin_credential(name, output)


def _plugin_credential(name: str, output: bytes) -> Credential:
    try:
        status = msgspec.json.decode(output, type=_PluginAnswer).status
        expires = parse_time(status.expiration_timestamp) if status.expiration_timestamp else None
    except (msgspec.MsgspecError, ValueError) as error:
        raise KubeconfigError(f"credential plugin `{name}` printed no ExecCredential: {error}") from error
    return Credential(
        authorization=f"Bearer {status.token}" if status.token else "",
        client_cert=status.client_certificate_data.encode(),
        client_key=status.client_key_data.encode(),
        expires_at_s=expires.timestamp() if expires else None,
    )


def _program(plugin: ExecPlugin) -> str:
    """Return the program: one with a slash is relative to the kubeconfig, any other is looked up on PATH."""
    name = plugin.command[0]
    if os.sep in name:
        return str((plugin.folder or Path()) / name)
    import shutil  # late, as tempfile is: 3 ms that a start without plugins does not pay

    return shutil.which(name) or name


def _exec_info(connection: Connection, plugin: ExecPlugin) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {
            "server": connection.server,
            "insecure-skip-tls-verify": connection.insecure,
            "tls-server-name": connection.tls_server_name,
            "certificate-authority-data": base64.b64encode(connection.ca_data or b"").decode(),
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(info).decode()
