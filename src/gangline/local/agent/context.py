"""What all pods of one agent share, and how they look up the objects they refer to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import ConfigMap, Pod, Secret
from gangline.api.resources import CONFIG_MAPS, SECRETS
from gangline.kube.errors import NotFound
from gangline.local.account_tokens import KEY_FILE, sign
from gangline.local.agent.egress.resolver import of_the_machine
from gangline.local.agent.env import Lookup, PodFacts
from gangline.local.agent.isolation import Isolation
from gangline.local.agent.volumes import DEFAULT_MODE, ProjectedFile, TokenSource, write_projection

if TYPE_CHECKING:
    from gangline.kube.cache import Cache
    from gangline.kube.client import Client
    from gangline.kube.events import Recorder
    from gangline.local.agent.addresses import AddressPool
    from gangline.local.agent.ends import PodEnds
    from gangline.local.agent.gpus import AgentGpus
    from gangline.local.agent.image_sources import ImageSources
    from gangline.local.agent.names import NameRegistry
    from gangline.local.agent.network import Network
    from gangline.local.agent.shim_client import Nursery
    from gangline.local.paths import ClusterPaths


class Objects:
    """Config maps and secrets: from the caches, and asked for where those lag behind; service accounts.

    Args:
        client: of the API.
        config_maps, secrets: all of the cluster.
        certificates: the cluster's folder of certificates and keys.
        accounts: folder for the files that pods of a service account are given.
    """

    def __init__(
        self,
        client: Client,
        config_maps: Cache[ConfigMap],
        secrets: Cache[Secret],
        certificates: Path,
        accounts: Path,
    ) -> None:
        self._client = client
        self._config_maps = config_maps
        self._secrets = secrets
        self._certificate = certificates / "ca.crt"
        self._key_file = certificates / KEY_FILE
        self._key = b""
        self._accounts = accounts
        self._written: dict[Path, int] = {}
        self._asked: dict[tuple[str, str], ConfigMap | Secret] = {}

    async def ensure(self, pod: Pod) -> None:
        """Ask for what the pod refers to and the caches do not have yet; missing objects are no error."""
        config_maps, secrets = references(pod)
        namespace = pod.metadata.namespace
        for name in config_maps:
            if self._config_maps.get(f"{namespace}/{name}") is None:
                await self._ask(CONFIG_MAPS, ConfigMap, namespace, name)
        for name in secrets:
            if self._secrets.get(f"{namespace}/{name}") is None:
                await self._ask(SECRETS, Secret, namespace, name)

    def lookup(self, namespace: str) -> Lookup:
        """Return how to find objects of one namespace, without waiting."""

        def config_map(name: str) -> ConfigMap | None:
            found = self._config_maps.get(f"{namespace}/{name}") or self._asked.get(
                ("cm", f"{namespace}/{name}")
            )
            return found if isinstance(found, ConfigMap) else None

        def secret(name: str) -> Secret | None:
            found = self._secrets.get(f"{namespace}/{name}") or self._asked.get(
                ("secret", f"{namespace}/{name}")
            )
            return found if isinstance(found, Secret) else None

        return Lookup(config_map, secret)

    def tokens(self, pod: Pod) -> TokenSource:
        """Return the pod's token and the certificate authority, as far as they are known."""
        return TokenSource(lambda: self._token(pod), self._read_certificate)

    def account_folder(self, pod: Pod) -> Path | None:
        """Return the folder of what the pod's service account is given, None if the pod is to have none.

        All pods of an account share it: its token is no secret among them. Cost: one ``stat``, and for the
        first pod of an account 1 ms; the token is signed here, not asked for.

        Raises:
            OSError: it cannot be written.
        """
        token = self._token(pod)
        if pod.spec.automount_service_account_token is False or token is None:
            return None
        if not self._certificate.exists():
            return None
        namespace = pod.metadata.namespace
        folder = self._accounts / namespace / _account(pod)
        changed_ns = self._certificate.stat().st_mtime_ns
        if self._written.get(folder) != changed_ns:
            contents = {"token": token, "ca.crt": self._certificate.read_text(), "namespace": namespace}
            files = {name: ProjectedFile(text.encode(), DEFAULT_MODE) for name, text in contents.items()}
            write_projection(folder, files)
            self._written[folder] = changed_ns
        return folder

    def _token(self, pod: Pod) -> str | None:
        if not self._key and self._key_file.exists():
            self._key = self._key_file.read_bytes().strip()
        return sign(self._key, pod.metadata.namespace, _account(pod)) if self._key else None

    def _read_certificate(self) -> bytes | None:
        return self._certificate.read_bytes() if self._certificate.exists() else None

    async def _ask(
        self, resource: Any, type_: type[ConfigMap] | type[Secret], namespace: str, name: str
    ) -> None:
        key = ("cm" if type_ is ConfigMap else "secret", f"{namespace}/{name}")
        try:
            raw = await self._client.get(resource, name, namespace)
            self._asked[key] = msgspec.convert(raw, type_)
        except NotFound:
            self._asked.pop(key, None)

    def forget(self, kind: str, key: str) -> None:
        """Drop what was asked for, once the cache tells of the object itself."""
        self._asked.pop((kind, key), None)


def _account(pod: Pod) -> str:
    return pod.spec.service_account_name or "default"


def references(pod: Pod) -> tuple[set[str], set[str]]:
    """Return the names of the config maps and of the secrets that a pod refers to."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            config_maps.add(volume.config_map.name)
        if volume.secret is not None:
            secrets.add(volume.secret.secret_name)
        for source in (volume.projected or {}).get("sources", []):
            config_maps.add(source.get("configMap", {}).get("name", ""))
            secrets.add(source.get("secret", {}).get("name", ""))
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for bulk in container.env_from:
            config_maps.add(bulk.config_map_ref.name if bulk.config_map_ref else "")
            secrets.add(bulk.secret_ref.name if bulk.secret_ref else "")
        for source in (variable.value_from for variable in container.env):
            if source is not None and source.config_map_key_ref is not None:
                config_maps.add(source.config_map_key_ref.name)
            if source is not None and source.secret_key_ref is not None:
                secrets.add(source.secret_key_ref.name)
    return config_maps - {""}, secrets - {""}


@dataclass
class AgentContext:
    """What a pod runner needs of its agent. ``now_s`` is the wall clock, in seconds since 1970."""

    paths: ClusterPaths
    cluster_id: str
    isolation: Isolation
    client: Client
    recorder: Recorder
    nursery: Nursery
    network: Network | None
    addresses: AddressPool
    names: NameRegistry
    images: ImageSources
    objects: Objects
    gpus: AgentGpus
    ends: PodEnds
    host_ip: str
    api_host: str
    api_port: int
    allocatable: dict[str, str]
    bin: Path
    hide: tuple[str, ...]
    guard: str
    log: Any
    now_s: Callable[[], float] = time.time
    host_mounts: Callable[[], tuple[str, ...]] = field(default=lambda: ())

    def resolv_of(self, address: str) -> Path | None:
        """Return the ``resolv.conf`` of a pod with that address, None for the one that it sees anyway."""
        if self.isolation == "plain":
            return None
        if self.network is None or address == self.host_ip:  # it is on the machine's own network
            return of_the_machine()
        return self.network.way_out.resolv

    def facts(self, address: str) -> PodFacts:
        """Return what the downward API can tell about a pod with that address."""
        return PodFacts(pod_ip=address, host_ip=self.host_ip, allocatable=dict(self.allocatable))


def affected(pods: Iterable[Pod], kind: str, key: str) -> list[Pod]:
    """Return the pods that refer to a config map (``cm``) or secret by its key."""
    namespace, _, name = key.partition("/")
    found = []
    for pod in pods:
        if pod.metadata.namespace == namespace:
            config_maps, secrets = references(pod)
            if name in (config_maps if kind == "cm" else secrets):
                found.append(pod)
    return found
