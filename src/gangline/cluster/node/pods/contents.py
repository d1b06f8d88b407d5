"""The keys of config maps and secrets as bytes. Pure."""

from __future__ import annotations

import base64

from gangline.api.core import ConfigMap, Secret


def config_map_contents(config_map: ConfigMap) -> dict[str, bytes]:
    """Return every key, text and binary."""
    contents = {key: value.encode() for key, value in config_map.data.items()}
    return contents | {key: base64.b64decode(value) for key, value in config_map.binary_data.items()}


def secret_contents(secret: Secret) -> dict[str, bytes]:
    """Return every key, decoded."""
    return {key: base64.b64decode(value or "") for key, value in secret.data.items()}
