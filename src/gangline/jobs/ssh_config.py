"""What ssh is told in the pods of a job, as ``config`` beside the keys.

A pod's name gets its address only once its node has reported that it runs, so a launcher that starts with its
workers asks too early. ssh tries connections again (``ConnectionAttempts``), names never: mpirun would fail,
and the launcher would start again, or be lost where its restart policy is ``Never``.
"""

from __future__ import annotations

from typing import Final

_HOSTS: Final = "*.svc,*.svc.*"


def ssh_config(hosts: str = _HOSTS) -> str:
    """Return the file for hosts of these patterns, as ssh writes a list of them."""
    return (
        "# The name of a host is known once its pod runs: wait for it, a minute at most.\n"
        f'Match host {hosts} exec "'
        "command -v getent >/dev/null || exit 0; n=0; "
        "until getent hosts %h >/dev/null || [ $n -ge 600 ]; do n=$((n+1)); sleep 0.1; done"
        '"\n'
        "  ConnectionAttempts 10\n"
    )
