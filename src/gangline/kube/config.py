"""Which API server to talk to and as whom: kubeconfig files, the pod's own account, or a given connection.

Reads only; a credential plugin named by a kubeconfig is run by :mod:`gangline.kube.credentials`.
Source: the published kubeconfig v1 format and its merge rules.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import msgspec

from gangline.kube.errors import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, CA and namespace."""


class ExecPlugin(msgspec.Struct, frozen=True):
    """A program that prints credentials (``client.authentication.k8s.io``).

    Attributes:
        command: program and arguments.
        env: added to the environment.
        api_version: the version that the program is to speak.
        folder: where a relative command is looked up.
        install_hint: what to say when the program is missing.
        provide_cluster_info: whether the program wants to know the server.
    """

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    folder: Path | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class Connection(msgspec.Struct, frozen=True):
    """How to reach one API server. Immutable; secrets are not shown by ``repr``-based logging of ours.

    Attributes:
        server: ``https://HOST:PORT[/PREFIX]``, ``http://…`` or ``unix:///PATH/api.sock``.
        ca_data: PEM of the CAs to trust; None means the system's.
        token: bearer token.
        token_file: file with the token; read again every minute, and wins over ``token``.
        client_cert: PEM of the client certificate, or its file.
        client_key: PEM of its key, or its file.
        insecure: accept any server certificate.
        namespace: used where a request names none.
        username: for basic authentication, with ``password``.
        exec_plugin: program that prints credentials.
        proxy_url: HTTP proxy.
        tls_server_name: name to expect in the server's certificate instead of the host.
    """

    server: str
    ca_data: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    client_cert: bytes | Path | None = None
    client_key: bytes | Path | None = None
    insecure: bool = False
    namespace: str = "default"
    username: str = ""
    password: str = ""
    exec_plugin: ExecPlugin | None = None
    proxy_url: str = ""
    tls_server_name: str = ""

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, namespace={self.namespace!r})"


class Credential(msgspec.Struct, frozen=True):
    """What is shown to the server, read from files and plugins: at most one of the two ways.

    Attributes:
        authorization: value of the header ``Authorization``; empty for none.
        client_cert: PEM of a client certificate.
        client_key: PEM of its key.
        expires_at_s: Unix time at which it must be read again; None means never.
    """

    authorization: str = ""
    client_cert: bytes = b""
    client_key: bytes = b""
    expires_at_s: float | None = None

    def __repr__(self) -> str:
        return f"Credential(expires_at_s={self.expires_at_s})"


class _Entry(msgspec.Struct, rename="kebab"):
    """Base of the named parts of a kubeconfig."""


class _Cluster(_Entry, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""
    tls_server_name: str = ""


class _EnvVar(msgspec.Struct):
    name: str
    value: str


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class _User(_Entry, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: Any = None


class _Context(_Entry, rename="kebab"):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


def load_kubeconfig(path: Path | None = None, context: str | None = None) -> Connection:
    """Return the connection of a context.

    Args:
        path: the file; None means the list in ``$KUBECONFIG``, else ``~/.kube/config``. In a list the first
            file that defines a name wins, and files that do not exist are skipped.
        context: name of the context; None means the current one.

    Raises:
        KubeconfigError: no file, no such context, or something in it cannot be used.
    """
    files = [(file, _read(file)) for file in _paths(path) if file.exists()]
    if not files:
        raise KubeconfigError(
            f"no kubeconfig at {', '.join(map(str, _paths(path)))}",
            hint="set KUBECONFIG or name a file; for the cluster of this machine no kubeconfig is needed",
        )
    chosen = context or next((content.current_context for _, content in files if content.current_context), "")
    if not chosen:
        raise KubeconfigError("the kubeconfig has no current context", hint="name one with --context")
    names = [entry.name for _, content in files for entry in content.contexts or []]
    _, named = _find(files, "contexts", chosen, f"known contexts: {', '.join(names) or 'none'}")
    return _connection(files, named.context)


def in_cluster(*, with_account: bool = True) -> Connection:
    """Return the connection that every pod is given.

    Args:
        with_account: as the pod's own account; else as nobody, for a pod that has no token.

    Raises:
        KubeconfigError: this is no pod with a service account.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    # Where pods share the machine's files, nothing can be mounted at the usual place.
    folder = Path(os.environ.get("GANGLINE_SERVICE_ACCOUNT") or SERVICE_ACCOUNT)
    token = folder / "token"
    if not host or (with_account and not token.exists()):
        raise KubeconfigError(
            "this process is in no pod with a service account", hint="KUBERNETES_SERVICE_HOST is unset"
        )
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_data=_read_bytes(folder / "ca.crt"),
        token_file=token if with_account else None,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _paths(path: Path | None) -> list[Path]:
    if path:
        return [path]
    if listed := os.environ.get("KUBECONFIG"):
        return [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
    return [Path.home() / ".kube" / "config"]


def _read(file: Path) -> _File:
    try:
        return msgspec.yaml.decode(file.read_bytes() or b"{}", type=_File, strict=False)
    except (msgspec.MsgspecError, OSError) as error:
        raise KubeconfigError(f"{file} cannot be read as a kubeconfig: {error}", where=str(file)) from error


def _find(files: list[tuple[Path, _File]], part: str, name: str, hint: str = "") -> tuple[Path, Any]:
    """Return the first entry of that name and the folder that its relative paths start from."""
    for file, content in files:
        for entry in getattr(content, part) or []:
            if entry.name == name:
                return file.parent, entry
    raise KubeconfigError(f"the kubeconfig has no {part.removesuffix('s')} `{name}`", hint=hint)


def _connection(files: list[tuple[Path, _File]], context: _Context) -> Connection:
    cluster_folder, named = _find(files, "clusters", context.cluster)
    cluster: _Cluster = named.cluster
    user, user_folder = _User(), Path()
    if context.user:
        user_folder, named_user = _find(files, "users", context.user)
        user = named_user.user or user
    if user.auth_provider and not (user.token or user.exec):
        raise KubeconfigError(
            f"user `{context.user}` has an auth-provider, which Kubernetes has removed",
            hint="use an exec credential plugin of your cloud instead",
        )
    if not cluster.server:
        raise KubeconfigError(f"cluster `{context.cluster}` names no server")
    authority = _data_or_file(
        cluster.certificate_authority_data, cluster.certificate_authority, cluster_folder
    )
    return Connection(
        server=cluster.server,
        ca_data=_read_bytes(authority) if isinstance(authority, Path) else authority,
        token=user.token or None,
        token_file=(user_folder / user.token_file) if user.token_file else None,
        client_cert=_data_or_file(user.client_certificate_data, user.client_certificate, user_folder),
        client_key=_data_or_file(user.client_key_data, user.client_key, user_folder),
        insecure=cluster.insecure_skip_tls_verify,
        namespace=context.namespace or "default",
        username=user.username,
        password=user.password,
        exec_plugin=_exec_plugin(user.exec, user_folder) if user.exec else None,
        proxy_url=cluster.proxy_url,
        tls_server_name=cluster.tls_server_name,
    )


def _exec_plugin(plugin: _Exec, folder: Path) -> ExecPlugin:
    return ExecPlugin(
        command=(plugin.command, *(plugin.args or [])),
        env=tuple((variable.name, variable.value) for variable in plugin.env or []),
        api_version=plugin.api_version,
        folder=folder,
        install_hint=plugin.install_hint,
        provide_cluster_info=plugin.provide_cluster_info,
    )


def _data_or_file(data: str, file: str, folder: Path) -> bytes | Path | None:
    """Return inline data, which wins, or the path of the file."""
    if data:
        try:
            return base64.b64decode(data, validate=False)
        except (binascii.Error, ValueError) as error:
            raise KubeconfigError(f"certificate data is no base64: {error}") from error
    return folder / file if file else None


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{file} cannot be read: {error.strerror}", where=str(file)) from error
