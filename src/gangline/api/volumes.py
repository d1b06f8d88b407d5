"""The volumes of a pod as Gangline reads them, and the fields of a pod that volumes and variables may show.

Source: the published Kubernetes API reference, v1.35, core/v1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.api.metadata import Wire


class KeyToPath(Wire, frozen=True, kw_only=True):
    """One projected key of a config map or secret."""

    key: str
    path: str
    mode: int | None = None


class ConfigMapVolume(Wire, frozen=True, kw_only=True):
    """Volume source ``configMap``."""

    name: str = ""
    items: list[KeyToPath] = []
    default_mode: int | None = None
    optional: bool = False


class SecretVolume(Wire, frozen=True, kw_only=True):
    """Volume source ``secret``."""

    secret_name: str = ""
    items: list[KeyToPath] = []
    default_mode: int | None = None
    optional: bool = False


class EmptyDirVolume(Wire, frozen=True, kw_only=True):
    """Volume source ``emptyDir``; medium ``Memory`` is a tmpfs."""

    medium: str = ""
    size_limit: str | int | None = None
    mode: int | None = None


class HostPathVolume(Wire, frozen=True, kw_only=True):
    """Volume source ``hostPath``."""

    path: str
    type: str = ""


class ObjectFieldSelector(Wire, frozen=True, kw_only=True):
    """``fieldRef``: a field of the pod."""

    field_path: str
    api_version: str = "v1"


class ResourceFieldSelector(Wire, frozen=True, kw_only=True):
    """``resourceFieldRef``: a request or limit of a container."""

    resource: str
    container_name: str = ""
    divisor: str | int = "0"


class DownwardItem(Wire, frozen=True, kw_only=True):
    """One file of a ``downwardAPI`` volume."""

    path: str
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardVolume(Wire, frozen=True, kw_only=True):
    """Volume source ``downwardAPI``."""

    items: list[DownwardItem] = []
    default_mode: int | None = None


class Volume(Wire, frozen=True, kw_only=True):
    """One volume of a pod; exactly one source is set. ``projected`` stays raw."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    projected: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None
