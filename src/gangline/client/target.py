"""Which cluster a command talks to: this user's own one on this machine, or one of a kubeconfig."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gangline.cluster.paths import DEFAULT_CLUSTER
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.cluster.paths import ClusterPaths
    from gangline.kube.client import Client
    from gangline.kube.config import Connection

USE_NOTED_EVERY_S = 60.0
"""Well within the ten minutes after which an unused cluster ends itself."""


class ClusterTarget(msgspec.Struct, frozen=True):
    """The cluster that a command talks to.

    Attributes:
        cluster: name of the one-machine cluster; used unless a context or kubeconfig is given.
        context: context of a kubeconfig, ``None`` for its current one.
        kubeconfig: the file, ``None`` for ``$KUBECONFIG`` or ``~/.kube/config``.
        namespace: as the user gave it; empty for the connection's own.
        given: a connection that no kubeconfig has, of a user of the page in a cluster.
        scheduler_namespace: where Gangline's scheduler has its Lease; empty for where it is installed.
    """

    cluster: str = DEFAULT_CLUSTER
    context: str | None = None
    kubeconfig: Path | None = None
    namespace: str = ""
    given: Connection | None = None
    scheduler_namespace: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is the one-machine cluster."""
        return self.context is None and self.kubeconfig is None and self.given is None

    @property
    def paths(self) -> ClusterPaths:
        """Files of the one-machine cluster.

        Raises:
            UserError: its folder cannot be used.
        """
        from gangline.client.home import usable_paths

        return usable_paths(self.cluster)

    @property
    def kept(self) -> ClusterPaths:
        """Where runs are kept: with the one-machine cluster; of another cluster what was followed from here.

        Raises:
            UserError: the folder cannot be used, or the kubeconfig cannot be read.
        """
        from gangline.cluster.paths import ClusterPaths

        return self.paths if self.is_local else ClusterPaths.of_server(self.connection().server)

    @property
    def title(self) -> str:
        """The cluster in words."""
        if self.is_local:
            return f"cluster `{self.cluster}`"
        if self.given is not None:
            return "the cluster of this page"
        return f"context `{self.context}`" if self.context else f"kubeconfig `{self.kubeconfig}`"

    @property
    def options(self) -> str:
        """The options that lead another command to the same cluster, with a space in front, or nothing."""
        words = ""
        if self.kubeconfig is not None:
            words += f" --kubeconfig {self.kubeconfig}"
        if self.context is not None:
            words += f" --context {self.context}"
        if self.is_local and self.cluster != DEFAULT_CLUSTER:
            words += f" --cluster {self.cluster}"
        return words + (" --context CONTEXT" if self.given is not None else "")

    @property
    def kube_options(self) -> str:
        """The options that lead kubectl and services there, with a space in front, or nothing."""
        return f" --kubeconfig $(gangline kubeconfig --path{self.options})" if self.is_local else self.options

    def connection(self) -> Connection:
        """Return how to reach it, with the namespace that the command means."""
        from msgspec.structs import replace

        from gangline.cluster.api_access import api_connection
        from gangline.kube.config import load_kubeconfig

        if self.is_local:
            found = api_connection(self.paths)
        elif self.given is not None:
            found = self.given
        else:
            found = load_kubeconfig(self.kubeconfig, self.context)
        return replace(found, namespace=self.namespace) if self.namespace else found

    def note_use(self) -> None:
        """Note that the one-machine cluster is in use; does nothing for another one."""
        from gangline.cluster.daemon.cluster_facts import note_use

        if self.is_local:
            note_use(self.paths)

    def is_up(self) -> bool:
        """Return whether this machine's server runs, or is back soon; another cluster is taken to."""
        from gangline.cluster.process_lock import read_lock

        if not self.is_local:
            return True
        found = read_lock(self.paths.lock("server")).state
        return found == "held" or (found == "killed" and self.wait_back())

    def wait_back(self) -> bool:
        """Wait for the server of the one-machine cluster that was killed; whether it answers."""
        from gangline.cluster.daemon.cluster import Cluster

        return Cluster(self.paths).wait_back()

    def check_up(self, job: str = "") -> None:
        """Refuse when the one-machine cluster is not up; a context is found out by its first request.

        Args:
            job: a name that no past run has.

        Raises:
            ClusterError: with the command that starts it.
        """
        from gangline.cluster.process_lock import read_lock

        if self.is_up():
            return
        found = read_lock(self.paths.lock("server"))
        how = "its server was killed" if found.state == "killed" else "it is not up"
        past = f"no past run is called `{job}`, and " if job else ""
        raise ClusterError(
            f"{past}cluster `{self.cluster}` cannot be reached: {how}",
            hint=f"start it with `gangline up{self.options}`; `gangline runs{self.options}` lists what ran",
        )


@asynccontextmanager
async def open_client(
    target: ClusterTarget, *, bring_back: Callable[[], object] | None = None
) -> AsyncIterator[Client]:
    """Open a client of the target's API server, which must be up.

    Args:
        target: the cluster.
        bring_back: starts this machine's server when it is killed meanwhile; by default it is waited for, as
            the node agent starts it.
    """
    import asyncio

    if bring_back is None:
        target.check_up()
    from gangline.kube.client import Client

    async def recover() -> None:
        with suppress(ClusterError):  # whoever asks finds out
            await asyncio.to_thread(bring_back or target.wait_back)

    own = recover if target.is_local else None
    async with Client(target.connection(), user_agent="gangline-cli", recover=own) as client:
        noting = asyncio.create_task(_note_use(target), name="note use")
        try:
            yield client
        finally:
            noting.cancel()
            target.note_use()


async def _note_use(target: ClusterTarget) -> None:
    """Note again and again that a command uses the cluster: it may wait for hours for a job without pods."""
    import asyncio

    while True:
        target.note_use()
        await asyncio.sleep(USE_NOTED_EVERY_S)
