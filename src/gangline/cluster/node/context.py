"""What all pods of one agent share, and how they look up the objects they refer to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import ConfigMap, Pod, Secret, Service, all_containers
from gangline.api.resources import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RUNTIME_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    TOKEN_REVIEWS,
)
from gangline.api.volumes import HostPathVolume
from gangline.cluster.account_tokens import API_AUDIENCE, LIFETIME_S, AccountToken, TokenKey, renew_at_s
from gangline.cluster.certificates import TOKEN_KEY_FILE
from gangline.cluster.node.isolation import Isolation
from gangline.cluster.node.network.egress.resolver import of_the_machine
from gangline.cluster.node.pods.container_env import Lookup, PodFacts
from gangline.cluster.node.pods.volumes import (
    TokenSource,
    claim_of,
)
from gangline.cluster.node.shim import processes
from gangline.errors import ClusterError
from gangline.kube.errors import Conflict, Forbidden, NotFound

if TYPE_CHECKING:
    from gangline.cluster.node.device_plugins import DevicePlugins
    from gangline.cluster.node.ends import PodEnds
    from gangline.cluster.node.gpus import AgentGpus
    from gangline.cluster.node.image_sources import ImageSources
    from gangline.cluster.node.network.addresses import AddressPool
    from gangline.cluster.node.network.host_names import NameRegistry
    from gangline.cluster.node.network.pod_network import PodNetwork
    from gangline.cluster.node.rank_reports import RankReports
    from gangline.cluster.node.sessions import Sessions
    from gangline.cluster.node.shim_client import ForkServer
    from gangline.cluster.paths import ClusterPaths
    from gangline.kube.cache import Cache
    from gangline.kube.events import Recorder
    from gangline.kube.verbs import ObjectClient


OCI_HANDLER = "runc"
"""Handler of a RuntimeClass that means the runtime of containers with images of their own."""


class Objects:
    """Config maps and secrets: from the caches, and asked for where those lag behind; tokens of pods.

    Args:
        client: of the API.
        config_maps, secrets: all of the cluster.
        certificates: the cluster's folder of certificates and keys.
        now_s: the wall clock, in seconds since 1970.
        services: all of the cluster; None where no pod is told of them.
    """

    def __init__(
        self,
        client: ObjectClient,
        config_maps: Cache[ConfigMap],
        secrets: Cache[Secret],
        certificates: Path,
        now_s: Callable[[], float] = time.time,
        services: Cache[Service] | None = None,
    ) -> None:
        self._services = services
        self._client = client
        self._config_maps = config_maps
        self._secrets = secrets
        self._certificate = certificates / "ca.crt"
        self._key_file = certificates / TOKEN_KEY_FILE
        self._key = TokenKey(self._key_file)
        self._now_s = now_s
        self._tokens: dict[tuple[str, int, str], tuple[str, float]] = {}
        """Tokens by pod uid, lifetime and audience, and when each is to be renewed."""
        self._asked: dict[tuple[str, str], ConfigMap | Secret] = {}
        self._claims: dict[str, HostPathVolume | str] = {}

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
        for name in filter(None, (claim_of(pod, volume) for volume in pod.spec.volumes)):
            self._claims[f"{namespace}/{name}"] = await self._folder_of(namespace, name)
        if not self._key_file.exists():
            await self._ask_tokens(pod)

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

        def services() -> list[Service]:
            known = self._services.items() if self._services is not None else ()
            return [one for one in known if one.metadata.namespace == namespace]

        def claim(name: str) -> HostPathVolume | str:
            return self._claims.get(f"{namespace}/{name}", "its claim was not asked for yet")

        return Lookup(config_map, secret, claim, services)

    async def check_runtime(self, pod: Pod, isolation: Isolation) -> None:
        """Check that the runtime class of a pod means what runs here.

        Raises:
            ClusterError: it does not.
        """
        if not (name := pod.spec.runtime_class_name):
            return
        try:
            handler = (await self._client.get(RUNTIME_CLASSES, name)).get("handler", "")
        except NotFound:
            raise ClusterError(f'RuntimeClass "{name}" is not there any more') from None
        if handler not in (isolation, OCI_HANDLER):
            raise ClusterError(
                f'no runtime for "{handler}" is configured: pods of this cluster run as `{isolation}`, '
                f"containers of images by `{OCI_HANDLER}`"
            )

    def tokens(self, pod: Pod) -> TokenSource:
        """Return the pod's token and the certificate authority, as far as they are known."""
        return TokenSource(partial(self._token, pod), self._read_certificate)

    async def renewed_tokens(self, pods: Iterable[Pod]) -> list[Pod]:
        """Forget tokens that end soon, or ask for others; return the pods whose volumes get new ones."""
        pods, now_s = list(pods), self._now_s()
        living = {pod.metadata.uid for pod in pods}
        self._tokens = {key: kept for key, kept in self._tokens.items() if key[0] in living}
        if not self._key_file.exists():
            return [pod for pod in pods if await self._ask_tokens(pod)]
        ending = {key for key, (_, renew_s) in self._tokens.items() if renew_s <= now_s}
        self._tokens = {key: kept for key, kept in self._tokens.items() if key not in ending}
        due = {uid for uid, *_ in ending}
        return [pod for pod in pods if pod.metadata.uid in due]

    async def _ask_tokens(self, pod: Pod) -> bool:
        """Ask the API server for the tokens that a pod's volumes are to hold; whether there are new ones."""
        sources = [
            source for volume in pod.spec.volumes for source in (volume.projected or {}).get("sources", [])
        ]
        asked = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
        wanted = {(int(one.get("expirationSeconds") or LIFETIME_S), one.get("audience", "")) for one in asked}
        meta, now_s, is_new = pod.metadata, self._now_s(), False
        for lifetime_s, audience in wanted:
            key = meta.uid, lifetime_s, audience
            if now_s < self._tokens.get(key, ("", 0.0))[1]:
                continue
            bound = {"apiVersion": "v1", "kind": PODS.kind, "name": meta.name, "uid": meta.uid}
            spec = {
                "audiences": [audience] if audience else [],
                "expirationSeconds": lifetime_s,
                "boundObjectRef": bound,
            }
            request = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenRequest", "spec": spec}
            with suppress(NotFound, Conflict, Forbidden):  # account, pod or namespace are gone or going
                answer = await self._client.create_subresource(
                    SERVICE_ACCOUNTS, _account(pod), "token", request, meta.namespace
                )
                self._tokens[key] = (answer["status"]["token"], renew_at_s(now_s, lifetime_s))
                is_new = True
        return is_new

    def _token(self, pod: Pod, lifetime_s: int, audience: str = "") -> str | None:
        now_s, meta = self._now_s(), pod.metadata
        found, renew_s = self._tokens.get((meta.uid, lifetime_s, audience), ("", 0.0))
        if now_s < renew_s or not self._key_file.exists():
            return found or None
        expires_s = int(now_s) + lifetime_s
        claims = AccountToken(
            meta.namespace,
            _account(pod),
            expires_s,
            pod=meta.name,
            pod_uid=meta.uid,
            issued_s=int(now_s),
            audiences=(audience,) if audience else (API_AUDIENCE,),
            id=str(uuid.uuid4()),
        )
        token = self._key.sign(claims)
        self._tokens[meta.uid, lifetime_s, audience] = (token, renew_at_s(now_s, lifetime_s))
        return token

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

    async def _folder_of(self, namespace: str, claim: str) -> HostPathVolume | str:
        """Return the folder of a claim's volume, or why there is none (yet)."""
        try:
            found = await self._client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace)
            if (found.get("status") or {}).get("phase") != "Bound":
                return f'persistentvolumeclaim "{claim}" is not bound yet'
            name = found["spec"]["volumeName"]
            spec = (await self._client.get(PERSISTENT_VOLUMES, name)).get("spec") or {}
        except NotFound:
            return f'persistentvolumeclaim "{claim}" or its volume not found'
        if host := spec.get("hostPath"):
            return HostPathVolume(path=host.get("path", ""), type=host.get("type") or "")
        if local := spec.get("local"):
            return HostPathVolume(path=local.get("path", ""), type="Directory")
        return f"volume {name} is no folder of this machine: only hostPath and local volumes are served"

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
    for container in all_containers(pod.spec):
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
    """What a pod runner needs of its agent. ``now_s`` is the wall clock, in seconds since 1970.

    ``own_fork_server`` has entered no namespace; it is the same one but for ``user`` isolation.
    """

    paths: ClusterPaths
    cluster_id: str
    isolation: Isolation
    client: ObjectClient
    recorder: Recorder
    fork_server: ForkServer
    own_fork_server: ForkServer
    sessions: Sessions
    network: PodNetwork | None
    addresses: AddressPool
    names: NameRegistry
    images: ImageSources
    objects: Objects
    gpus: AgentGpus
    plugins: DevicePlugins
    ends: PodEnds
    api_host: str
    api_port: int
    allocatable: dict[str, str]
    bin: Path
    hide: tuple[str, ...]
    private: tuple[str, ...]
    start_folders: str
    log: Any
    rank_reports: RankReports
    now_s: Callable[[], float] = time.time
    host_mounts: Callable[[], tuple[str, ...]] = field(default=lambda: ())

    def resolv_of(self, address: str) -> Path | None:
        """Return the ``resolv.conf`` of a pod with that address, None for the one that it sees anyway."""
        if self.isolation == "plain":
            return None
        if self.network is None or address == self.network.gateway:  # it is on the machine's own network
            return of_the_machine()
        return self.network.way_out.resolv

    def sweep(self, uid: str) -> None:
        """Kill what a pod left whose shim was killed; blocks up to 2 s."""
        processes.sweep(uid)
        self.fork_server.sweep()
        if (
            self.own_fork_server is not self.fork_server
        ):  # from inside a user namespace no mark can be read outside
            self.own_fork_server.sweep(uid)

    def host_ip(self, node: str) -> str:
        """Return the address of a node."""
        return self.api_host if self.network is None else self.network.node_address(node)

    def facts(self, address: str, node: str) -> PodFacts:
        """Return what the downward API can tell about a pod with that address."""
        return PodFacts(pod_ip=address, host_ip=self.host_ip(node), allocatable=dict(self.allocatable))


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
