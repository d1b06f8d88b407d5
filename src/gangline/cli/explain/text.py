"""What ``gangline explain`` prints for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.cli.output import Column, print_command, print_field, print_table, print_text
from gangline.clock import now, parse_time
from gangline.topology import WireRates
from gangline.units import format_age, plural

PLACEMENT_COLUMNS = (
    Column("PLACEMENT"),
    Column("RING", least=16),
    Column("BUS GB/s", rank=1),
    Column("ALL-REDUCE", rank=2),
    Column("STEP"),
    Column("BY", rank=4),
    Column("SCARCEST LINK", rank=3),
)


def print_report(value: dict[str, Any]) -> None:
    """Print the report for people."""
    failure = value.get("message") if value["state"] == "failed" else ""
    reason = f": {value.get('reason') or failure}" if value.get("reason") or failure else ""
    print_text(f"{value['job']} {value['state']}{reason}")
    for gate in value["gates"]:
        print_field("gate", f"{gate['kind']}: {gate['message']}")
    for one in value.get("schedulers", ()):
        print_field("scheduler", f"{one['name']} {one['message']}")
        if one["start"]:
            print_command("start it", one["start"])
    if verdict := value.get("verdict"):
        print_field("it said", f"{verdict['type']}: {verdict['message']}")
    for message in value.get("definitions", ()):
        print_field("definition", message)
    for entry in value["unhealthy"]:
        print_field("unhealthy", f"GPU {entry['index']} of {entry['node']}, which {entry['pod']} holds")
    if len(models := value.get("models", {})) > 1:
        named = "; ".join(f"{model} on {', '.join(nodes)}" for model, nodes in models.items())
        print_field("devices", f"of {len(models)} models, the slowest sets the pace: {named}")
    if "gang" not in value:
        if value.get("message") and not failure:
            print_field("why", value["message"])
        if value.get("lacking") and value["state"] == "waits":
            print_field("not seen", f"whatever needs the right to {', or to '.join(value['lacking'])}")
        if not value["gates"] and value["state"] in ("runs", "starts"):
            print(f"  {plural(value['pods'], 'pod')} on nodes; nothing of it waits for room")
        return
    if answered := value.get("answered"):
        age_s = max(0.0, (now() - parse_time(answered["asOf"])).total_seconds())
        print_field("as seen by", f"{answered['by']}, {format_age(age_s)} ago")
    print_field("gang", f"{value['gang']}{_others(value['otherGangs'])}")
    print_field("why", value["message"])
    if value["fix"]:
        print_field("nearest fix", value["fix"])
    for fix in [fix for fix in value["fixes"] if fix["kind"] not in ("quota", "never")][2:]:
        print_field("", fix["line"])
    if any(fix["speed"] is not None for fix in value["fixes"]):
        print_field("", f"(speed of a training step of {value['predictedFor']}, predicted; see --model)")
    if value["position"]:
        place = f"place {value['position']} of {value['waitingInQueue']}"
        print_field("queue", f"{value['queue']}, {place}")
    for one in value.get("blockers", ()):
        said = _blocker(one["gang"], one["state"], one["priority"], one["ageSeconds"])
        print_field("holds room" if one["state"] == "runs" else "before it", said)
    for one in value.get("suspended", ()):
        when = f"its pods end by {one['endsBy']}" if one["endsBy"] else "its pods are about to end"
        when = when if one["isBegun"] else "from the scheduler's next pass on"
        print_field("gives way", f"{one['gang']}, until there is room for it again; {when}")
    if value.get("mayPass"):
        print_field("may pass", value["mayPass"])
    if value["mayStart"]:
        print_field("may start", f"{value['mayStart']} at the latest, by the limits of the jobs that run")
    elif value.get("mayStartAbout"):
        late = value.get("mayStartByNineOfTen") or ""
        print_field("may start", _estimate(value["mayStartAbout"], late, value["estimatedBy"]))


def _blocker(gang: str, state: str, priority: int, age_s: float | None) -> str:
    """Return ``team/x waits for 12m, priority 5``."""
    age = f" for {format_age(age_s)}" if age_s is not None else ""
    return f"{gang} {state}{age}, priority {priority}"


def _estimate(about: str, late: str, known_by: str) -> str:
    """Return when a job may start, and by what that is known."""
    if known_by == "progress":
        return f"about {about}, by the progress that running jobs report"
    by = f", and by {late} in 9 of 10 cases" if late else ""
    return f"about {about}{by}: so long jobs of the same namespace and size took"


def _others(count: int) -> str:
    return f" (and {plural(count, 'gang')} more of it)" if count else ""


def print_placement(value: dict[str, Any]) -> None:
    """Print where a job's GPUs are and what that is worth."""
    simulated = "simulated " if value["simulated"] else ""
    gpus = f"{value['gpus']} {simulated}GPU{'' if value['gpus'] == 1 else 's'}"
    if value["isOver"]:
        print("\nPlacement: its pods are over and hold no GPU any more")
        return
    if not value["gpus"]:
        print("\nPlacement: no pod of it asks for a GPU")
        return
    if not value["isPlaced"]:
        print(f"\nPlacement: not placed yet ({gpus} asked for)")
        return
    if value["chosen"] is None:
        where = f" of {', '.join(value['nodesByPlugin'])}" if value["nodesByPlugin"] else ""
        print()
        print_text(
            f"Placement: {gpus}; which ones, or their links, is known to the device plugin{where} alone"
        )
        _print_measured(value)
        return
    print(f"\nPlacement of {gpus}:\n")
    rows = [
        _row(title, value[key])
        for title, key in (("chosen", "chosen"), ("best, if all were free", "best"), ("first fit", "naive"))
        if value[key] is not None
    ]
    print_table(PLACEMENT_COLUMNS, rows)
    step = value["oneGpuStepSeconds"] * 1000
    if value["speedOfBest"] is not None and value["speedOfBest"][0] < 0.995:
        least, most = value["speedOfBest"]
        share = _range(least, most, ".2f")
        print()
        print_text(f"It runs at {share} of the speed that it would have on the best GPUs.")
    print()
    print_text(f"Predicted, not measured: {value['predictedFor']}, {step:.0f} ms a step on one GPU alone;")
    print_text("from all of the all-reduce that the backward pass can hide, to none of it hidden.")
    for way, nodes in _ways_of_rates(value["rates"]).items():
        print_text(f"Measured rates of {', '.join(nodes)}: {way}.")
    for way, nodes in value["ways"].items():
        print_text(f"GPUs of {', '.join(nodes)} are chosen {way}.")
    for guess in value["assumed"]:
        print_text(f"Assumed: {guess}.")
    _print_measured(value)


def _ways_of_rates(rates: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the nodes by how their rates were measured, and on which day."""
    found: dict[str, list[str]] = {}
    for node, value in rates.items():
        measured = msgspec.convert(value, WireRates)
        what = "links" if measured.network is None else "links and network" if measured.sets else "network"
        found.setdefault(f"{what}; {measured.way}; {measured.at[:10]}", []).append(node)
    return found


def _range(low: float, high: float, form: str) -> str:
    """Return both ends, or one where they read the same."""
    first, last = format(low, form), format(high, form)
    return first if first == last else f"{first} to {last}"


def _print_measured(value: dict[str, Any]) -> None:
    found = value["measured"]
    if found is not None:
        print_text(
            f"Measured, by what its training reports: {found['stepSeconds'] * 1000:.1f} ms a step, "
            f"the mean of {plural(found['overSteps'], 'step')}."
        )


def _row(title: str, found: dict[str, Any]) -> list[str]:
    ring = "; ".join(f"{entry['node']}: {' '.join(map(str, entry['ring']))}" for entry in found["nodes"])
    bus = found["busGBPerSecond"]
    return [
        title,
        ring,
        f"{bus:.1f}" if bus is not None else "-",
        f"{found['allReduceSeconds'] * 1000:.1f} ms",
        _range(found["hiddenStepSeconds"] * 1000, found["stepSeconds"] * 1000, ".1f") + " ms",
        found["algorithm"] or "-",
        found["bottleneck"],
    ]


def print_past(value: dict[str, Any], name: str, options: str) -> None:
    """Print how a run ended, of which only the record is left."""
    why = f": {value['message']}" if value["message"] else ""
    print_text(f"{value['job']} {_VERBS.get(value['state'], value['state'])}{why}")
    ended = f", ended {value['ended']}" if value["ended"] else ""
    print_text(f"it began {value['began']}{ended}; `gangline logs {name}{options}` shows its log")


_VERBS = {"cancelled": "was cancelled", "lost": "was lost", "pending": "never started"}
