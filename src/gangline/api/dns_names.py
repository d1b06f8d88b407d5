"""The two notations of names that Kubernetes allows for one DNS label."""

from __future__ import annotations

import re
from typing import Final

LABEL_CHARACTERS_MAX: Final = 63
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def is_dns_1123_label(name: str) -> bool:
    """Whether the name is lower-case letters, digits and inner dashes, at most 63 characters (pods)."""
    return len(name) <= LABEL_CHARACTERS_MAX and _DNS_1123.fullmatch(name) is not None


def is_dns_1035_label(name: str) -> bool:
    """Whether the name is a DNS-1123 label that begins with a letter (Services)."""
    return len(name) <= LABEL_CHARACTERS_MAX and _DNS_1035.fullmatch(name) is not None
