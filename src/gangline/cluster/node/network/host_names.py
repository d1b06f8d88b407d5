"""Host names of pods: one hosts file for each scope, and links by which the remote shell finds shims.

A scope is a namespace, or one job whose pods run in its user's session. The hosts file is bind-mounted as
``/etc/hosts`` in every pod of the scope, so it is rewritten in place, never replaced. The links lie in a
folder that only pods of the scope see.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MANAGED = "# Kubernetes-managed hosts file.\n"
_MANAGED_OF_HOST = "# Kubernetes-managed hosts file (host network).\n"
"""First lines as the kubelet writes them; by the first, programs see that a pod's names are the cluster's."""
_LOCAL = """127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
"""
"""What every hosts file has first."""
_MAPPED = "::ffff:{address}\tip4-mapped-{name}\n"
"""Names an IPv4 peer of a socket of both families: torch warns of a peer that has no name."""


@dataclass(frozen=True, slots=True)
class PodHost:
    """One pod as a host.

    Attributes:
        address: its IPv4 address.
        name: the pod's name.
        hostname: what ``hostname`` prints in it.
        subdomain: the headless service that names it, may be empty.
        namespace: where it lives.
        scope: whose pods know it, a namespace's name or one of ``sessions.name_scope``.
        host_aliases: lines that the pod's own hosts file has beyond its scope's.
        host_network: whether its network is the machine's, as its own hosts file says.
        has_service: whether a headless Service of its name leads to it, as to a training job's replica.
    """

    address: str
    name: str
    hostname: str
    subdomain: str
    namespace: str
    scope: str
    host_aliases: tuple[str, ...] = ()
    host_network: bool = False
    has_service: bool = False

    @property
    def qualified(self) -> list[str]:
        """Every name of the host, most qualified first."""
        if not self.subdomain and not self.has_service:
            return [self.hostname]
        if not self.subdomain:
            own = f"{self.hostname}.{self.namespace}"
            return [f"{own}.svc.cluster.local", f"{own}.svc", own, self.hostname]
        short = f"{self.hostname}.{self.subdomain}"
        service = f"{short}.{self.namespace}.svc"
        return [f"{service}.cluster.local", service, f"{short}.{self.namespace}", short, self.hostname]

    @property
    def aliases(self) -> set[str]:
        """Names under which the remote shell finds the pod."""
        return {self.name, self.address, *self.qualified}


def hosts_text(hosts: Iterable[PodHost]) -> str:
    """Return the hosts file of a namespace, sorted by address."""
    sorted_hosts = sorted(hosts, key=lambda host: host.address)
    lines = [f"{host.address}\t{' '.join(host.qualified)}\n" for host in sorted_hosts]
    named = [("127.0.0.1", "localhost"), *((host.address, host.hostname) for host in sorted_hosts)]
    mapped = [_MAPPED.format(address=address, name=name) for address, name in dict.fromkeys(named)]
    return "".join([_MANAGED, _LOCAL, *lines, *mapped])


def rewrite_in_place(path: Path, text: str) -> None:
    """Set a file's content, keeping its inode; readers never see it empty."""
    data = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


class NameRegistry:
    """Who is called what, in files: ``HOSTS/SCOPE`` and ``NAMES/SCOPE/ALIAS``.

    A pod with host aliases, or the network of the machine, has a hosts file of its own, ``PODS/UID/hosts``.
    """

    def __init__(self, *, hosts_folder: Path, names_folder: Path, pods: Path) -> None:
        self._hosts_folder = hosts_folder
        self._pods = pods
        self._names_folder = names_folder
        self._hosts: dict[str, dict[str, PodHost]] = {}

    def hosts(self) -> list[PodHost]:
        """Return all pods of all namespaces."""
        return [host for hosts in self._hosts.values() for host in hosts.values()]

    def hosts_file(self, scope: str) -> Path:
        """Return the scope's hosts file; it exists."""
        path = self._hosts_folder / scope
        if not path.exists():
            self._hosts_folder.mkdir(parents=True, exist_ok=True)
            rewrite_in_place(path, hosts_text(()))
            path.chmod(0o644)
        return path

    def folder(self, scope: str) -> Path:
        """Return the scope's folder of names; it exists."""
        path = self._names_folder / scope
        path.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, uid: str, host: PodHost) -> None:
        """Add a pod to the hosts file. Cost: one write of the whole file, 30 µs with 100 pods."""
        self._hosts.setdefault(host.scope, {})[uid] = host
        self._write(host.scope)

    def link(self, host: PodHost, remote_shell_socket: Path) -> None:
        """Make the names of a pod lead to its shim; the socket exists."""
        folder = self.folder(host.scope)
        for alias in host.aliases:
            path = folder / alias
            path.unlink(missing_ok=True)
            try:
                path.hardlink_to(remote_shell_socket)  # works inside a pod that sees this folder alone
            except OSError:
                path.symlink_to(remote_shell_socket)

    def remove(self, uid: str, scope: str) -> None:
        """Take a pod out of the hosts file and remove its names, unless another pod has taken them over.

        With the last pod of a scope its files go too.
        """
        host = self._hosts.get(scope, {}).pop(uid, None)
        if host is None:
            return
        if not self._hosts[scope]:
            del self._hosts[scope]
            (self._hosts_folder / scope).unlink(missing_ok=True)
            shutil.rmtree(self._names_folder / scope, ignore_errors=True)
            return
        self._write(scope)
        taken = {alias for other in self._hosts[scope].values() for alias in other.aliases}
        for alias in host.aliases - taken:
            (self._names_folder / scope / alias).unlink(missing_ok=True)

    def take_over(self, hosts: Iterable[tuple[str, PodHost]]) -> int:
        """Register the pods (uid, host) that run on, all at once; remove what belongs to none of them.

        Returns:
            How many names were removed.
        """
        for uid, host in hosts:
            self._hosts.setdefault(host.scope, {})[uid] = host
        for scope in self._hosts:
            self._write(scope)
        removed = 0
        for folder in list(self._names_folder.iterdir()) if self._names_folder.is_dir() else []:
            known = {alias for host in self._hosts.get(folder.name, {}).values() for alias in host.aliases}
            for entry in list(folder.iterdir()):
                if entry.name not in known:
                    entry.unlink()
                    removed += 1
        for path in list(self._hosts_folder.iterdir()) if self._hosts_folder.is_dir() else []:
            if path.name not in self._hosts:
                path.unlink()
        return removed

    def _write(self, scope: str) -> None:
        text = hosts_text(self._hosts[scope].values())
        rewrite_in_place(self.hosts_file(scope), text)
        for uid, host in self._hosts[scope].items():
            if (host.host_aliases or host.host_network) and (folder := self._pods / uid).is_dir():
                own = text.replace(_MANAGED, _MANAGED_OF_HOST, 1) if host.host_network else text
                if host.host_aliases:
                    own += "\n".join(("# Entries added by HostAliases.", *host.host_aliases, ""))
                rewrite_in_place(folder / "hosts", own)
