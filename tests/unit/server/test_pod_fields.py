"""Every field of a pod has an answer: honoured, refused by name, or taken with a warning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.resources import JOBS, MPIJOBS, PODS, SERVICES
from gangline.api.wire_types import message
from gangline.cluster.node.isolation import MODES
from gangline.cluster.server.rules.pod_fields import POD_SPEC, answers, pod_specs, refusals, warnings


def short(name: str) -> str:
    return name.rpartition(".")[2]


def fields_below(name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield message and name of every field of the schema below which nothing has been said yet."""
    if name in seen:
        return
    seen.add(name)
    for field in message(name).by_name.values():
        yield short(name), field.name
        answer = answers().get(short(name), {}).get(field.name)
        if field.is_message and not (answer and answer.is_whole):
            yield from fields_below(field.type, seen)


def test_every_field_of_the_schema_has_one_answer_and_no_answer_is_left_over() -> None:
    schema = set(fields_below(POD_SPEC, set()))
    table = {(name, field) for name, fields in answers().items() for field in fields}

    assert sorted(schema - table) == []
    assert sorted(table - schema) == []


def test_answers_say_something_and_name_modes_that_exist() -> None:
    for name, fields in answers().items():
        for field, answer in fields.items():
            assert bool(answer.says) == (answer.verdict != "honoured"), f"{name}.{field}"
            assert set(answer.isolations) < set(MODES), f"{name}.{field}"
            assert not (answer.isolations and answer.verdict == "refused"), f"{name}.{field}"


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({"isolation": "plain"}))
    return path


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"hostPID": True}, "spec.hostPID"),
        ({"volumes": [{"name": "v", "nfs": {"server": "a", "path": "/b"}}]}, "spec.volumes[0].nfs"),
        ({"volumes": [{"name": "v", "csi": {}}]}, "spec.volumes[0].csi"),
        ({"os": {"name": "windows"}}, "spec.os.name"),
        (
            {"containers": [{"livenessProbe": {"grpc": {"port": 9000, "mode": "TLS"}}}]},
            "spec.containers[0].livenessProbe.grpc.mode",
        ),
    ],
)
def test_what_is_refused_is_named(spec: dict[str, Any], place: str) -> None:
    errors = refusals(pod(**spec)["spec"], "spec")

    assert [(error.reason, error.path) for error in errors] == [("Forbidden", place)]


@pytest.mark.parametrize("spec", [{"hostPID": False}, {"os": {"name": "linux"}}, {"volumes": None}])
def test_a_field_that_asks_for_nothing_is_not_refused(spec: dict[str, Any]) -> None:
    assert refusals(pod(**spec)["spec"], "spec") == []


def test_a_warning_names_the_field_of_the_template_that_has_it(report: Path) -> None:
    template = {"template": pod(hostUsers=False)}

    assert warnings(JOBS, {"spec": template}, report) == [
        "spec.template.spec.hostUsers: pods share the user namespace of the node agent"
    ]
    job = {"spec": {"mpiReplicaSpecs": {"Worker": template}}}
    assert [path for path, _ in pod_specs(MPIJOBS, job)] == ["spec.mpiReplicaSpecs.Worker.template.spec"]
    assert len(warnings(MPIJOBS, job, report)) == 1
    assert warnings(SERVICES, {"spec": {"hostUsers": False}}, report) == []


def test_what_only_some_modes_pass_over_is_warned_of_in_those(report: Path) -> None:
    wanted = pod(securityContext={"runAsUser": 0})

    assert [text.partition(":")[0] for text in warnings(PODS, wanted, report)] == [
        "spec.securityContext.runAsUser"
    ]
    report.write_text(json.dumps({"isolation": "network"}))
    assert warnings(PODS, wanted, report) == []


def test_a_field_may_be_fine_beside_another_one(report: Path) -> None:
    report.write_text(json.dumps({"isolation": "network"}))
    ports = [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]

    assert len(warnings(PODS, pod(containers=ports), report)) == 1
    assert warnings(PODS, pod(containers=ports, hostNetwork=True), report) == []
    shm = {"medium": "Memory", "sizeLimit": "1Gi"}
    assert warnings(PODS, pod(volumes=[{"name": "shm", "emptyDir": shm}]), report) == []
    assert len(warnings(PODS, pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]), report)) == 1


@pytest.mark.parametrize("wrong", [[[1, 2]], ["x"], [None], {"x": [3]}, "x", 7])
def test_values_of_a_wrong_type_are_left_to_the_check_of_types(wrong: Any) -> None:
    for name in ("containers", "initContainers", "volumes", "securityContext", "affinity"):
        assert refusals({name: wrong}, "spec") == []
