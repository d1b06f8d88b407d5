"""Options of a launch whose number of ranks changes while they train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.launch.elastic.elastic_start import ElasticOptions

F = TypeVar("F", bound=Callable[..., Any])
RESTARTS = 3

_OPTIONS = (
    click.option(
        "--min-ranks", type=click.IntRange(1), metavar="N", help="Elastic: train on with so many or more."
    ),
    click.option(
        "--max-ranks", type=click.IntRange(1), metavar="N", help="Elastic: never more.  [default: -n]"
    ),
    click.option(
        "--max-restarts",
        type=click.IntRange(0),
        metavar="K",
        help=f"Elastic: failures of ranks that are survived.  [default: {RESTARTS}]",
    ),
    click.option(
        "--host-discovery-script",
        metavar="FILE",
        help="Elastic: a program that prints HOST or HOST:SLOTS lines now.",
    ),
    click.option(
        "--rendezvous",
        metavar="HOST:PORT",
        help="Elastic: hosts come by themselves, each with this command; HOST leads.  "
        "[default: $PET_RDZV_ENDPOINT, without --hosts]",
    ),
    click.option(
        "--cool-down",
        type=click.FloatRange(0),
        default=30.0,
        show_default=True,
        metavar="S",
        help="Elastic: a host whose rank failed gets none for so long.",
    ),
)


def elastic_options(function: F) -> F:
    """Add ``--min-ranks --max-ranks --max-restarts --host-discovery-script --rendezvous --cool-down``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class ElasticWords:
    """What the command line says, None where it says nothing."""

    min_ranks: int | None
    max_ranks: int | None
    max_restarts: int | None
    host_discovery_script: str | None
    rendezvous: str | None
    cool_down: float


def read_elastic(
    words: ElasticWords,
    environment: Mapping[str, str],
    *,
    ranks: int | None,
    per_node: int | None,
    has_hosts: bool,
) -> ElasticOptions | None:
    """Return how the number of ranks may change, None where it may not.

    Where neither hosts nor a way to find them are given, what the operator of a PyTorchJob with
    ``elasticPolicy`` has set in its pods says it (``PET_RDZV_ENDPOINT`` and its relatives, torchrun's words).

    Args:
        words: of the command line.
        environment: of this process.
        ranks: at most.
        per_node: ranks of a host for which no number is told.
        has_hosts: whether the command line names hosts.

    Raises:
        UserError: what says where hosts meet is malformed, or hosts are found in two ways.
    """
    from gangline.launch.elastic.elastic_start import ElasticOptions
    from gangline.launch.elastic.joined_hosts import Rendezvous

    script, meeting = words.host_discovery_script, words.rendezvous
    if meeting and (script or has_hosts):
        raise UserError(
            "--rendezvous takes the hosts that come, and others are named too",
            hint="leave --hosts, --hostfile and --host-discovery-script out",
        )
    if script and has_hosts:
        raise UserError(
            "--host-discovery-script names the hosts, and --hosts or --hostfile name others",
            hint="leave --hosts and --hostfile out",
        )
    told: Mapping[str, str] = {}
    if not (meeting or script or has_hosts) and environment.get("PET_RDZV_ENDPOINT"):
        told, meeting = environment, environment["PET_RDZV_ENDPOINT"]
    if not (words.min_ranks or script or meeting):
        return None
    slots = per_node or _number(told, "PET_NPROC_PER_NODE") or 1
    hosts_min = _number({"least": told.get("PET_NNODES", "").partition(":")[0]}, "least") or 1
    restarts = (words.max_restarts, _number(told, "PET_MAX_RESTARTS"), RESTARTS)
    return ElasticOptions(
        ranks_min=words.min_ranks or hosts_min * slots,
        ranks_max=words.max_ranks or ranks,
        restarts_max=next(one for one in restarts if one is not None),
        discovery=(script,) if script else (),
        discovered_slots=slots,
        cool_down_s=words.cool_down,
        rendezvous=Rendezvous.parse(meeting, environment.get("PET_RDZV_ID", "")) if meeting else None,
    )


def _number(environment: Mapping[str, str], name: str) -> int | None:
    """Return a number; None for ``auto`` and the like."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None
