"""Claims of devices that kube-scheduler and ours are both asked to allocate, on one node.

Devices are written ``name key=value ...``: an integer, a version (1.2.3) or a text; ``!key`` is a taint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]
DRIVER, NIC = "gpu.example.com", "nic.example.com"


def device(text: str, **more: Any) -> Obj:
    """Return a device of a slice."""
    name, *words = text.split()
    taints = [{"key": word[1:], "effect": "NoSchedule"} for word in words if word[0] == "!"]
    pairs = [word.split("=") for word in words if word[0] != "!"]
    attributes = {key: _value(said) for key, said in pairs if not said.endswith("Gi")}
    capacity = {key: {"value": said} for key, said in pairs if said.endswith("Gi")}
    found = {"name": name, "attributes": attributes, "capacity": capacity, "taints": taints}
    return {key: value for key, value in found.items() if value} | more


def _value(said: str) -> Obj:
    if said in ("true", "false"):
        return {"bool": said == "true"}
    if said.isdigit():
        return {"int": int(said)}
    return {"version": said} if said.count(".") == 2 and said[0].isdigit() else {"string": said}


def pool(*devices: str | Obj, driver: str = DRIVER, name: str = "p", **spec: Any) -> Obj:
    """Return the spec of a slice that is for the node, where ``spec`` says nothing else."""
    generation = {"generation": spec.pop("generation", 1), "resourceSliceCount": spec.pop("count", 1)}
    found = [device(one) if isinstance(one, str) else one for one in devices]
    where = (
        {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "NODE"}
    )
    return {
        "driver": driver,
        "pool": {"name": f"POOL-{name}", **generation},
        "devices": found,
        **where,
        **spec,
    }


def cel(text: str) -> list[Obj]:
    """Return selectors of one expression, in which ``a.`` stands for the attributes of the driver."""
    return [{"cel": {"expression": text.replace("a.", f'device.attributes["{DRIVER}"].')}}]


def request(name: str = "r", device_class: str = "gpu", **exactly: Any) -> Obj:
    """Return a request for exactly so many devices of a class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def one_of(name: str, *choices: Obj) -> Obj:
    """Return a request for the first of several that can be had."""
    return {"name": name, "firstAvailable": [{"name": one["name"], **one["exactly"]} for one in choices]}


def claim(*requests: Obj, **devices: Any) -> Obj:
    """Return what a claim asks for."""
    return {"requests": list(requests), **devices}


@dataclass
class Case:
    """What is published and asked for.

    Attributes:
        slices: specs of ResourceSlices, ``NODE`` for the name of the node, ``POOL`` for the test's own.
        pods: for each pod, one after another, what its claims ask for.
        gets: for each pod, the devices of its claims; None where it has to wait.
    """

    slices: list[Obj]
    pods: list[list[Obj]]
    gets: list[list[list[str]] | None] = field(default_factory=list)


CLASSES: dict[str, Obj] = {
    "gpu": {"selectors": cel(f'device.driver == "{DRIVER}"')},
    "nic": {"selectors": cel(f'device.driver == "{NIC}"')},
    "configured": {
        "selectors": cel(f'device.driver == "{DRIVER}"'),
        "config": [{"opaque": {"driver": DRIVER, "parameters": {"sharing": "none"}}}],
    },
}

FOUR = pool("d0 numa=0", "d1 numa=1", "d2 numa=0", "d3 numa=1")
MIXED = pool("d0 model=small memory=16Gi", "d1 model=large memory=80Gi", "d2 model=large memory=40Gi")
TAINTED = pool("d0 !bad", "d1", "d2 !bad")
SAME_NUMA = {"constraints": [{"matchAttribute": f"{DRIVER}/numa"}]}
OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"mode": "fast"}}}
LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
HERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
ELSEWHERE = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r2"]}]}]
}

CASES: dict[str, Case] = {
    "a count": Case([FOUR], [[claim(request(count=3))]], [[["d0", "d1", "d2"]]]),
    "more than there are": Case([FOUR], [[claim(request(count=5))]], [None]),
    "what another claim holds": Case(
        [FOUR],
        [[claim(request(count=3))], [claim(request(count=2))], [claim(request())]],
        [[["d0", "d1", "d2"]], None, [["d3"]]],
    ),
    "several claims of one pod": Case(
        [FOUR],
        [[claim(request()), claim(request(count=2)), claim(request())]],
        [[["d0"], ["d1", "d2"], ["d3"]]],
    ),
    "a selector of text": Case([MIXED], [[claim(request(selectors=cel('a.model == "large"')))]], [[["d1"]]]),
    "a selector of capacity": Case(
        [MIXED], [[claim(request(selectors=cel(LARGE), count=2))]], [[["d1", "d2"]]]
    ),
    "a selector by a pattern": Case(
        [MIXED], [[claim(request(selectors=cel('a.model.upperAscii().matches("^L.R")')))]], [[["d1"]]]
    ),
    "a selector that binds a name": Case(
        [MIXED],
        [
            [
                claim(
                    request(
                        selectors=cel('cel.bind(x, device.attributes["gpu.example.com"], x.model != "small")')
                    )
                )
            ]
        ],
        [[["d1"]]],
    ),
    "a version": Case(
        [pool("d0 v=1.9.0", "d1 v=1.10.2")],
        [[claim(request(selectors=cel('a.v.isGreaterThan(semver("1.9.5"))')))]],
        [[["d1"]]],
    ),
    "a domain that no device has": Case(
        [FOUR], [[claim(request(selectors=cel('"x" in device.attributes["other.example.com"]')))]], [None]
    ),
    "an attribute that no device has": Case(
        [FOUR], [[claim(request(selectors=cel("a.nothing == 1")))]], [None]
    ),
    "all": Case([FOUR], [[claim(request(allocationMode="All"))]], [[["d0", "d1", "d2", "d3"]]]),
    "all that match": Case(
        [FOUR], [[claim(request(allocationMode="All", selectors=cel("a.numa == 1")))]], [[["d1", "d3"]]]
    ),
    "all of none": Case(
        [FOUR], [[claim(request(allocationMode="All", selectors=cel("a.numa == 7")))]], [None]
    ),
    "all where one is in use": Case(
        [FOUR], [[claim(request())], [claim(request(allocationMode="All"))]], [[["d0"]], None]
    ),
    "one attribute": Case([FOUR], [[claim(request(count=2), **SAME_NUMA)]], [[["d0", "d2"]]]),
    "one attribute of too many": Case([FOUR], [[claim(request(count=3), **SAME_NUMA)]], [None]),
    "one attribute over requests": Case(
        [FOUR],
        [[claim(request("a", selectors=cel("a.numa == 1")), request("b", count=1), **SAME_NUMA)]],
        [[["d1", "d3"]]],
    ),
    "one attribute of some requests": Case(
        [FOUR],
        [
            [
                claim(
                    request("a"),
                    request("b"),
                    request("c"),
                    constraints=[{"matchAttribute": f"{DRIVER}/numa", "requests": ["a", "c"]}],
                )
            ]
        ],
        [[["d0", "d1", "d2"]]],
    ),
    "one attribute of two drivers": Case(
        [
            pool("d0 std.example.com/root=a", "d1 std.example.com/root=b"),
            pool("n0 std.example.com/root=b", driver=NIC),
        ],
        [
            [
                claim(
                    request("g"),
                    request("n", "nic"),
                    constraints=[{"matchAttribute": "std.example.com/root"}],
                )
            ]
        ],
        [[["d1", "n0"]]],
    ),
    "an attribute that one lacks": Case(
        [pool("d0", "d1 numa=0")], [[claim(request(), **SAME_NUMA)]], [[["d1"]]]
    ),
    "different attributes": Case(
        [FOUR],
        [[claim(request(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/numa"}])]],
        [[["d0", "d1"]]],
    ),
    "too few different attributes": Case(
        [FOUR], [[claim(request(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/numa"}])]], [None]
    ),
    "the first of several": Case(
        [MIXED],
        [[claim(one_of("r", request("large", selectors=cel('a.model == "large"'), count=2), request("any")))]]
        * 2,
        [[["d1", "d2"]], [["d0"]]],
    ),
    "none of several": Case(
        [MIXED], [[claim(one_of("r", request("a", count=4), request("b", count=5)))]], [None]
    ),
    "a request before one of several": Case(
        [FOUR],
        [[claim(request("a", count=3), one_of("r", request("two", count=2), request("one")))]],
        [[["d0", "d1", "d2", "d3"]]],
    ),
    "a taint": Case([TAINTED], [[claim(request())], [claim(request())]], [[["d1"]], None]),
    "a taint that is tolerated": Case(
        [TAINTED],
        [[claim(request(count=3, tolerations=[{"key": "bad", "operator": "Exists"}]))]],
        [[["d0", "d1", "d2"]]],
    ),
    "another value of a taint": Case(
        [TAINTED], [[claim(request(count=2, tolerations=[{"key": "bad", "value": "x"}]))]], [None]
    ),
    "administrators": Case(
        [FOUR],
        [[claim(request(count=4))], [claim(request(count=2, adminAccess=True))], [claim(request())]],
        [[["d0", "d1", "d2", "d3"]], [["d0", "d1"]], None],
    ),
    "all for an administrator": Case(
        [FOUR],
        [[claim(request())], [claim(request(allocationMode="All", adminAccess=True))]],
        [[["d0"]], [["d0", "d1", "d2", "d3"]]],
    ),
    "configuration": Case(
        [FOUR],
        [
            [
                claim(
                    request("a", "configured"),
                    request("b", "configured"),
                    request("c"),
                    config=[OPAQUE, {"requests": ["a"], **OPAQUE}, {"requests": ["a", "b", "c"], **OPAQUE}],
                )
            ]
        ],
        [[["d0", "d1", "d2"]]],
    ),
    "configuration of one of several": Case(
        [MIXED],
        [
            [
                claim(
                    one_of("r", request("x", count=9), request("y", "configured")),
                    config=[
                        {"requests": ["r/x"], **OPAQUE},
                        {"requests": ["r/y"], **OPAQUE},
                        {"requests": ["r"], **OPAQUE},
                    ],
                )
            ]
        ],
        [[["d0"]]],
    ),
    "all nodes": Case(
        [pool("d0", allNodes=True)], [[claim(request())], [claim(request())]], [[["d0"]], None]
    ),
    "nodes of a label": Case([pool("d0", nodeSelector=HERE)], [[claim(request())]], [[["d0"]]]),
    "nodes of another label": Case([pool("d0", nodeSelector=ELSEWHERE)], [[claim(request())]], [None]),
    "devices that say their nodes": Case(
        [
            pool(
                device("d0", nodeName="elsewhere"),
                device("d1", nodeName="NODE"),
                device("d2", allNodes=True),
                perDeviceNodeSelection=True,
            )
        ],
        [[claim(request(count=2))]],
        [[["d1", "d2"]]],
    ),
    "a pool that lacks a slice": Case(
        [pool("d0", count=2), pool("e0", name="q")],
        [[claim(request())], [claim(request())]],
        [[["e0"]], None],
    ),
    "all of a pool that lacks a slice": Case(
        [pool("d0", count=2)], [[claim(request(allocationMode="All"))]], [None]
    ),
    "an old generation": Case(
        [pool("d0", generation=1), pool("d1", generation=2)],
        [[claim(request())], [claim(request())]],
        [[["d1"]], None],
    ),
    "pools in their order": Case(
        [pool("z0", name="z"), pool("a0", name="a"), pool("n0", driver=NIC)],
        [[claim(request(count=2), request("n", "nic"))]],
        [[["a0", "z0", "n0"]]],
    ),
    "more than a claim may have": Case(
        [pool(*(f"d{index:02}" for index in range(40)))],
        [[claim(request(count=20), request("s", count=20))]],
        [None],
    ),
    "a class that does not exist": Case([FOUR], [[claim(request(device_class="none"))]], [None]),
}
