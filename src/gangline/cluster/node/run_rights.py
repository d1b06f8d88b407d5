"""What programs of published flows may do to this machine from a pod: clear its page caches, if allowed."""

from __future__ import annotations

from collections.abc import Mapping

from gangline.cluster.paths import ClusterPaths

ALLOW_VARIABLE = "GANGLINE_ALLOW_DROP_CACHES"
"""Read by ``gangline.bench.netapp_run``."""


def set_drop_caches(paths: ClusterPaths, allowed: bool) -> None:
    """Allow programs in pods that start from now on to clear page caches, or forbid it again; kept."""
    file = paths.state / "allow-drop-caches"
    if allowed:
        file.touch(mode=0o600)
    else:
        file.unlink(missing_ok=True)


def writable_in_proc(rights: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files of /proc that a pod with these variables may write."""
    return ("/proc/sys/vm/drop_caches",) if rights.get(ALLOW_VARIABLE) == "1" else ()


def right_variables(paths: ClusterPaths) -> dict[str, str]:
    """Return the variables that tell a pod's programs what is allowed."""
    return {ALLOW_VARIABLE: "1"} if (paths.state / "allow-drop-caches").exists() else {}
