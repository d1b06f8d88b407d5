"""What ``gangline explain`` prints for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.cli.output import Column, print_table
from gangline.topology import WireRates
from gangline.units import plural

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
    print(f"{value['job']} {value['state']}{reason}")
    for gate in value["gates"]:
        print(f"  gate          {gate['kind']}: {gate['message']}")
    for one in value.get("schedulers", ()):
        print(f"  scheduler     {one['name']} {one['message']}")
        if one["start"]:
            print(f"  start it      {one['start']}")
    if verdict := value.get("verdict"):
        print(f"  it said       {verdict['type']}: {verdict['message']}")
    for message in value.get("definitions", ()):
        print(f"  definition    {message}")
    for entry in value["unhealthy"]:
        print(f"  unhealthy     GPU {entry['index']} of {entry['node']}, which {entry['pod']} holds")
    if len(models := value.get("models", {})) > 1:
        named = "; ".join(f"{model} on {', '.join(nodes)}" for model, nodes in models.items())
        print(f"  devices       of {len(models)} models, the slowest sets the pace: {named}")
    if "gang" not in value:
        if value.get("message") and not failure:
            print(f"  why           {value['message']}")
        if value.get("lacking") and value["state"] == "waits":
            print(f"  not seen      whatever needs the right to {', or to '.join(value['lacking'])}")
        if not value["gates"] and value["state"] in ("runs", "starts"):
            print(f"  {plural(value['pods'], 'pod')} on nodes; nothing of it waits for room")
        return
    print(f"  gang          {value['gang']}{_others(value['otherGangs'])}")
    print(f"  why           {value['message']}")
    if value["fix"]:
        print(f"  nearest fix   {value['fix']}")
    for fix in [fix for fix in value["fixes"] if fix["kind"] not in ("quota", "never")][2:]:
        print(f"                {fix['line']}")
    if any(fix["speed"] is not None for fix in value["fixes"]):
        print(
            f"                (speed of a training step of {value['predictedFor']}, predicted; see --model)"
        )
    if value["position"]:
        place = f"place {value['position']} of {value['waitingInQueue']}"
        print(f"  queue         {value['queue']}, {place}")
    if value["mayStart"]:
        print(f"  may start     {value['mayStart']} at the latest, by the limits of the jobs that run")
    elif value.get("mayStartAbout"):
        print(f"  may start     about {value['mayStartAbout']}, by the progress that running jobs report")


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
        print(f"\nPlacement: {gpus}; which ones, or their links, is known to the device plugin{where} alone")
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
        print(f"\nIt runs at {share} of the speed that it would have on the best GPUs.")
    print(f"\nPredicted, not measured: {value['predictedFor']}, {step:.0f} ms a step on one GPU alone;")
    print("from all of the all-reduce that the backward pass can hide, to none of it hidden.")
    for way, nodes in _ways_of_rates(value["rates"]).items():
        print(f"Measured rates of {', '.join(nodes)}: {way}.")
    for way, nodes in value["ways"].items():
        print(f"GPUs of {', '.join(nodes)} are chosen {way}.")
    for guess in value["assumed"]:
        print(f"Assumed: {guess}.")
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
        print(
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
    print(f"{value['job']} {_VERBS.get(value['state'], value['state'])}{why}")
    ended = f", ended {value['ended']}" if value["ended"] else ""
    print(f"it began {value['began']}{ended}; `gangline logs {name}{options}` shows its log")


_VERBS = {"cancelled": "was cancelled", "lost": "was lost", "pending": "never started"}
