"""Pods that ask for the same share what says so; whatever a pod asks otherwise is seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.placement import asked
from gangline.placement.snapshot import PodView

PLAIN: dict[str, Any] = {
    "schedulerName": "gangline-scheduler",
    "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}],
}
MAIN = PLAIN["containers"][0]
OTHERS: dict[str, dict[str, Any]] = {
    "amount": {"containers": [MAIN | {"resources": {"requests": {"cpu": "2"}}}]},
    "limit": {"containers": [MAIN | {"resources": {"limits": {"cpu": "3", "nvidia.com/gpu": "2"}}}]},
    "container": {"containers": [MAIN, MAIN | {"name": "second"}]},
    "name": {"containers": [MAIN | {"name": "other"}]},
    "sidecar": {"initContainers": [MAIN | {"name": "side", "restartPolicy": "Always"}]},
    "init container": {"initContainers": [MAIN | {"resources": {"requests": {"cpu": "9"}}}]},
    "port": {"containers": [MAIN | {"ports": [{"containerPort": 80, "hostPort": 80}]}]},
    "host network": {"hostNetwork": True, "containers": [MAIN | {"ports": [{"containerPort": 80}]}]},
    "pod level": {"resources": {"requests": {"cpu": "7"}}},
    "overhead": {"overhead": {"cpu": "250m"}},
    "selector": {"nodeSelector": {"pool": "a"}},
    "toleration": {"tolerations": [{"key": "a", "operator": "Exists"}]},
    "affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
                }
            }
        }
    },
    "unreadable": {"containers": [MAIN | {"resources": {"requests": {"cpu": "many"}}}]},
}


def view(**spec: Any) -> PodView:
    metadata = {"name": "p", "namespace": "team", "uid": "p"}
    return PodView.from_pod(msgspec.convert({"metadata": metadata, "spec": PLAIN | spec}, Pod))


@pytest.mark.parametrize("spec", OTHERS.values(), ids=OTHERS)
def test_what_is_remembered_of_others_changes_no_view(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked, "_known", {})
    alone = view(**spec)
    monkeypatch.setattr(asked, "_known", {})
    plain, after = view(), view(**spec)

    assert after == alone
    assert after != plain


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked, "_known", {})
    monkeypatch.setattr(asked, "KNOWN_MAX", 2)
    for cpu in range(5):
        view(overhead={"cpu": str(cpu)})

    assert len(asked._known) <= 2


def test_pods_that_ask_alike_share_it():
    one, other = view(), view()

    assert one.request is other.request
    assert one.shape is other.shape
