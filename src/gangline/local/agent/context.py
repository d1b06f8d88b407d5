"""What all pods of one agent share, and how they look up the objects they refer to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import ConfigMap, Pod, Secret
from gangline.api.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from gangline.kube.errors import ApiError, NotFound
from gangline.local.agent.env import Lookup, PodFacts
from gangline.local.agent.isolation import Isolation
from gangline.local.agent.volumes import TokenSource

if TYPE_CHECKING:
    from gangline.kube.cache import Cache
    from gangline.kube.client import Client
    from gangline.kube.events import Recorder
    from gangline.local.agent.addresses import AddressPool
    from gangline.local.agent.names import NameRegistry
    from gangline.local.agent.network import Network
    from gangline.local.agent.shim_client import Nursery
    from gangline.local.images import LocalImages
    from gangline.local.paths import ClusterPaths

TOKEN_AGE_MAX_S = 1800.0


class Objects:
    """Config maps, secrets and tokens: from the caches, and asked for where those lag behind."""

    def __init__(
        self, client: Client, config_maps: Cache[ConfigMap], secrets: Cache[Secret], certificate: Path
    ) -> None:
        self._client = client
        self._config_maps = config_maps
        self._secrets = secrets
        self._certificate = certificate
        self._asked: dict[tuple[str, str], ConfigMap | Secret] = {}
        self._tokens: dict[tuple[str, str], tuple[str, float]] = {}

    async def ensure(self, pod: Pod) -> None:
        """Ask for what the pod refers to and the caches do not have yet; missing objects are no error."""
        config_maps, secrets, needs_token = references(pod)
        namespace = pod.metadata.namespace
        for name in config_maps:
            if self._config_maps.get(f"{namespace}/{name}") is None:
                await self._ask(CONFIG_MAPS, ConfigMap, namespace, name)
        for name in secrets:
            if self._secrets.get(f"{namespace}/{name}") is None:
                await self._ask(SECRETS, Secret, namespace, name)
        if needs_token:
            await self._ensure_token(namespace, pod.spec.service_account_name or "default")

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
        key = (pod.metadata.namespace, pod.spec.service_account_name or "default")
        return TokenSource(
            lambda: self._tokens[key][0] if key in self._tokens else None, self._read_certificate
        )

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

    async def _ensure_token(self, namespace: str, account: str) -> None:
        known = self._tokens.get((namespace, account))
        if known is not None and time.monotonic() - known[1] < TOKEN_AGE_MAX_S:
            return
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        try:
            answer = await self._client.create_subresource(
                SERVICE_ACCOUNTS, account, "token", body, namespace
            )
            self._tokens[namespace, account] = (answer["status"]["token"], time.monotonic())
        except (ApiError, KeyError):
            return  # the volume says what it waits for

    def forget(self, kind: str, key: str) -> None:
        """Drop what was asked for, once the cache tells of the object itself."""
        self._asked.pop((kind, key), None)


def references(pod: Pod) -> tuple[set[str], set[str], bool]:
    """Return the names of the config maps and secrets that a pod refers to, and whether it needs a token."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    needs_token = False
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            config_maps.add(volume.config_map.name)
        if volume.secret is not None:
            secrets.add(volume.secret.secret_name)
        for source in (volume.projected or {}).get("sources", []):
            config_maps.add(source.get("configMap", {}).get("name", ""))
            secrets.add(source.get("secret", {}).get("name", ""))
            needs_token |= "serviceAccountToken" in source
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for bulk in container.env_from:
            config_maps.add(bulk.config_map_ref.name if bulk.config_map_ref else "")
            secrets.add(bulk.secret_ref.name if bulk.secret_ref else "")
        for source in (variable.value_from for variable in container.env):
            if source is not None and source.config_map_key_ref is not None:
                config_maps.add(source.config_map_key_ref.name)
            if source is not None and source.secret_key_ref is not None:
                secrets.add(source.secret_key_ref.name)
    return config_maps - {""}, secrets - {""}, needs_token


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
    images: LocalImages
    objects: Objects
    host_ip: str
    api_host: str
    api_port: int
    allocatable: dict[str, str]
    bin: Path
    resolv: Path | None
    hide: tuple[str, ...]
    guard: str
    log: Any
    now_s: Callable[[], float] = time.time
    host_mounts: Callable[[], tuple[str, ...]] = field(default=lambda: ())

    def facts(self, address: str) -> PodFacts:
        """Return what the downward API can tell about a pod with that address."""
        return PodFacts(pod_ip=address, host_ip=self.host_ip, allocatable=dict(self.allocatable))


def affected(pods: Iterable[Pod], kind: str, key: str) -> list[Pod]:
    """Return the pods that refer to a config map (``cm``) or secret by its key."""
    namespace, _, name = key.partition("/")
    found = []
    for pod in pods:
        if pod.metadata.namespace == namespace:
            config_maps, secrets, _ = references(pod)
            if name in (config_maps if kind == "cm" else secrets):
                found.append(pod)
    return found
