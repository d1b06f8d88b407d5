"""What holds for every job of one operator, as values for the pure code."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.api.training.job import StatusEndpoint


@dataclass(frozen=True, slots=True)
class Settings:
    """How an operator was started.

    Attributes:
        cluster_domain: appended to host names in host lists, for example ``cluster.local``; usually empty.
        gang_scheduling: ``volcano``, ``kubernetes``, or the name of a scheduler that reads scheduler-plugins'
            PodGroups; empty places pods one by one.
        has_remote_shell: whether every pod can be entered without an ssh server, as on the one-machine
            cluster.
        status_endpoint: where pods of TrainJobs tell how far they are; None where nobody listens.
        agent_programs: name and text of what the rank agent consists of.
    """

    cluster_domain: str = ""
    gang_scheduling: str = ""
    has_remote_shell: bool = False
    status_endpoint: StatusEndpoint | None = None
    agent_programs: tuple[tuple[str, str], ...] = ()
