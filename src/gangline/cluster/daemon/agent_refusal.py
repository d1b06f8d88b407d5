"""Why the node agent refuses to work: noted by the agent, told by whoever waits for it."""

from __future__ import annotations

import json
from contextlib import suppress

from gangline.cluster.paths import ClusterPaths
from gangline.errors import UserError

_FILE = "agent.refused"


def note_refusal(paths: ClusterPaths, error: UserError) -> None:
    """Note what the agent refuses; it will refuse it again."""
    (paths.state / _FILE).write_text(json.dumps({"message": error.message, "hint": error.hint}))


def forget_refusal(paths: ClusterPaths) -> None:
    """Take away what an agent noted that is started anew."""
    (paths.state / _FILE).unlink(missing_ok=True)


def check_refusal(paths: ClusterPaths) -> None:
    """Raise what the agent refused, if it has noted something.

    Raises:
        UserError: with the agent's own words.
    """
    with suppress(FileNotFoundError, ValueError):  # ValueError: it is being written
        noted = json.loads((paths.state / _FILE).read_text())
        raise UserError(
            f"cannot start the node agent of cluster `{paths.name}`: {noted['message']}", hint=noted["hint"]
        )
