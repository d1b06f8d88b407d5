"""MPIJobs that are broken at random: good ones of every version, changed in one to four places.

Changes know the structure: they replace, remove, add and repeat parts, put numbers at their limits, and
values of any type, size, depth and alphabet anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gangline.api.codec import load_file

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "published"

RICH: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {
        "name": "rich",
        "labels": {"a": "b"},
        "annotations": {
            "gangline.dev/on-worker-failure": "restart-gang",
            "scheduling.volcano.sh/queue-name": "q",
        },
    },
    "spec": {
        "slotsPerWorker": 2,
        "runLauncherAsWorker": True,
        "mpiImplementation": "Intel",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runPolicy": {
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": 5,
            "activeDeadlineSeconds": 60,
            "backoffLimit": 2,
            "suspend": True,
            "managedBy": "kubeflow.org/mpi-operator",
            "schedulingPolicy": {"minAvailable": 2, "minResources": {"cpu": "1"}, "priorityClass": "high"},
        },
        "mpiReplicaSpecs": {
            role: {
                "replicas": replicas,
                "restartPolicy": "Never",
                "template": {
                    "metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}},
                    "spec": {
                        "hostNetwork": True,
                        "restartPolicy": "Never",
                        "nodeSelector": {"a": "b"},
                        "tolerations": [{"key": "a"}],
                        "schedulerName": "mine",
                        "priorityClassName": "low",
                        "dnsConfig": {"searches": ["here"]},
                        "volumes": [{"name": "data", "emptyDir": {}}],
                        "initContainers": [{"name": "init", "image": "i"}],
                        "containers": [
                            {
                                "name": "main",
                                "image": "i",
                                "command": ["mpirun", "true"],
                                "env": [{"name": "A", "value": "b"}],
                                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                                "resources": {
                                    "limits": {"cpu": "1", "memory": "1Gi"},
                                    "requests": {"cpu": 1},
                                },
                            },
                            {"name": "side", "image": "i"},
                        ],
                    },
                },
            }
            for role, replicas in (("Launcher", 1), ("Worker", 2))
        },
    },
}
GOOD = [RICH, *(load_file(path)[0].value for path in sorted(FOLDER.glob("*.yaml")))]

WORDS = st.sampled_from(
    [
        *(
            "",
            "a",
            "x-1",
            "Running",
            "OnFailure",
            "kubeflow.org/mpi-operator",
            "sshd",
            "/etc/mpi",
            "null",
            "None",
        ),
        *(
            "1Gi",
            "-1",
            "1e99",
            "1e-99",
            "1e999999",
            "1e",
            "1.5.5",
            "0x10",
            "+5",
            " 1",
            "1E",
            "1e3Ki",
            "9" * 40,
        ),
        *(
            "\0",
            "ü",
            "１",
            "😀",
            "\u202e",
            "a\nb",
            "$(A)",
            "nan",
            "2026-05-01T12:00:00Z",
            "0000-00-00T00:00:00Z",
        ),
        *("x" * 300, "x" * 70_000),
    ]
)
NAMES = st.sampled_from(
    [
        *("name", "image", "command", "env", "spec", "template", "replicas", "gpus", "Worker", "Launcher"),
        *("mainContainer", "cleanPodPolicy", "containers", "mpiReplicaSpecs", "nodeSelector", "gangline", ""),
    ]
)
NUMBERS = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 64, 1000, 2**31 - 1, 2**31, 2**63, 2**70])
SCALARS = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.sampled_from([0.5, 1e300, float("inf"), float("nan")])
    | WORDS
    | st.text(max_size=8)
)


def nested(depth: int) -> Any:
    """Return lists and objects in one another."""
    value: Any = {}
    for level in range(depth):
        value = [value] if level % 2 else {"spec": value}
    return value


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
) | st.builds(nested, st.sampled_from([40, 150]))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything inside a document."""
    found = [path] if path else []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found += places(value[key], (*path, key))
    return found


def copied(value: Any) -> Any:
    """Return a deep copy of a document; `copy.deepcopy` takes three calls for each level."""
    return json.loads(json.dumps(value))


def at(document: Any, path: Iterable[Any]) -> Any:
    """Return the part of a document at a path."""
    for key in path:
        document = document[key]
    return document


def is_number(document: Any, path: tuple[Any, ...]) -> bool:
    value = at(document, path)
    return isinstance(value, int) and not isinstance(value, bool)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A good job, broken in one to four places."""
    document = copied(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(places(document)))
        holder = at(document, path[:-1])
        match draw(st.sampled_from(["replace", "remove", "add", "repeat", "count"])):
            case "replace":
                holder[path[-1]] = draw(VALUES)
            case "remove" if len(places(document)) > 1:
                del holder[path[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(NAMES)] = draw(VALUES)
            case "count" if numbers := [one for one in places(document) if is_number(document, one)]:
                *before, last = draw(st.sampled_from(numbers))
                at(document, before)[last] = draw(NUMBERS)
            case "repeat" if isinstance(holder, list):
                holder.append(copied(holder[path[-1]]))
    return document
