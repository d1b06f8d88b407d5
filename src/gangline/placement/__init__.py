"""Where pods go: ``(snapshot, pods) -> Decisions``, and why not. Pure.

::

    from gangline.placement import Policy, read_snapshot, schedule

    seen = read_snapshot(Path("snapshot.yaml").read_text())
    decisions = schedule(seen.snapshot, seen.waiting, now=now, policy=seen.policy(), groups=seen.groups)

What a user of the library needs is imported from here, on first use; the modules behind it may change.
Reading order: ``snapshot`` (what is seen), ``gangs``, ``policy``, ``decisions`` (what comes out), ``cycle``
(one pass), ``fit`` (places for one gang), ``explanation`` (why not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.placement.affinity.namespaces import Namespaces as Namespaces
    from gangline.placement.claims.demands import ClaimRefused as ClaimRefused
    from gangline.placement.claims.device_claims import DeviceClaims as DeviceClaims
    from gangline.placement.claims.volumes import Storage as Storage
    from gangline.placement.cycle import SchedulingCycle as SchedulingCycle
    from gangline.placement.cycle import schedule as schedule
    from gangline.placement.decisions import Binding as Binding
    from gangline.placement.decisions import Decisions as Decisions
    from gangline.placement.decisions import Eviction as Eviction
    from gangline.placement.decisions import Suspension as Suspension
    from gangline.placement.decisions import Unschedulable as Unschedulable
    from gangline.placement.decisions import Wait as Wait
    from gangline.placement.explanation import Explanation as Explanation
    from gangline.placement.explanation import explain as explain
    from gangline.placement.gangs import Gang as Gang
    from gangline.placement.gangs import Group as Group
    from gangline.placement.gangs import Groups as Groups
    from gangline.placement.node_table import NodeTable as NodeTable
    from gangline.placement.policy import Policy as Policy
    from gangline.placement.policy import Queue as Queue
    from gangline.placement.policy import SuspensionBounds as SuspensionBounds
    from gangline.placement.prediction import Comparison as Comparison
    from gangline.placement.prediction import Outlook as Outlook
    from gangline.placement.prediction import Workload as Workload
    from gangline.placement.prediction import compare as compare
    from gangline.placement.prediction import outlook as outlook
    from gangline.placement.preemption.disruption import DisruptionBudget as DisruptionBudget
    from gangline.placement.service import AttainedService as AttainedService
    from gangline.placement.snapshot import NodeView as NodeView
    from gangline.placement.snapshot import PodView as PodView
    from gangline.placement.snapshot import Snapshot as Snapshot
    from gangline.placement.snapshot_file import Situation as Situation
    from gangline.placement.snapshot_file import read_snapshot as read_snapshot
    from gangline.placement.waiting.next_moment import next_moment as next_moment

_HOMES = {
    "AttainedService": "service",
    "Binding": "decisions",
    "ClaimRefused": "claims.demands",
    "Comparison": "prediction",
    "Decisions": "decisions",
    "DeviceClaims": "claims.device_claims",
    "DisruptionBudget": "preemption.disruption",
    "Eviction": "decisions",
    "Explanation": "explanation",
    "Gang": "gangs",
    "Group": "gangs",
    "Groups": "gangs",
    "Namespaces": "affinity.namespaces",
    "NodeTable": "node_table",
    "NodeView": "snapshot",
    "Outlook": "prediction",
    "PodView": "snapshot",
    "Policy": "policy",
    "Queue": "policy",
    "SchedulingCycle": "cycle",
    "Situation": "snapshot_file",
    "Snapshot": "snapshot",
    "Storage": "claims.volumes",
    "Suspension": "decisions",
    "SuspensionBounds": "policy",
    "Unschedulable": "decisions",
    "Wait": "decisions",
    "Workload": "prediction",
    "compare": "prediction",
    "explain": "explanation",
    "next_moment": "waiting.next_moment",
    "outlook": "prediction",
    "read_snapshot": "snapshot_file",
    "schedule": "cycle",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - from one table; a test holds what it says


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
