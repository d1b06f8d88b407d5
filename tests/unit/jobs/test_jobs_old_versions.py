"""Jobs of old versions from spec to plan: workers without an ssh server, and where that can work.

In scope: what is made for them. Out of scope: how their fields are read
(tests/unit/api/test_api_versions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangline.api.core import ObjectMeta, Secret
from gangline.api.mpijob import MPIJob
from gangline.jobs.names import published_labels
from gangline.jobs.plan import Create, EnsureKeyPair
from gangline.jobs.settings import Settings
from gangline.operator.key_pair import certify, generate_key_pair

AGENT = (("rank_agent.py", "the agent"),)
Build = Callable[..., Any]


def old(scene: Build, *, here: bool = True, **spec: Any) -> Any:
    one = scene(cleanPodPolicy="Running", **spec)
    one.settings = Settings(has_remote_shell=here, agent_programs=AGENT)
    return one


def made(one: Any, kind: str) -> list[dict[str, Any]]:
    found = [action.object for action in one.plan().actions if isinstance(action, Create)]
    return [obj for obj in found if obj["kind"] == kind]


def test_workers_sleep_where_a_remote_shell_reaches_them(scene: Build) -> None:
    workers = made(old(scene), "Pod")

    assert [pod["spec"]["containers"][0]["command"] for pod in workers] == [["sleep"], ["sleep"]]
    assert [pod["spec"]["containers"][0]["args"] for pod in workers] == [["365d"], ["365d"]]


def test_the_script_that_old_files_name_is_there_for_both_roles(scene: Build) -> None:
    one = old(scene)
    (config_map,) = made(one, "ConfigMap")
    (launcher,) = made(one, "Job")

    assert 'exec gangline-rsh "$@"\n' in config_map["data"]["kubexec.sh"]
    for pod in (launcher["spec"]["template"], *made(one, "Pod")):
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "mpi-job-config")
        assert {"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555} in volume["configMap"]["items"]
        assert {"name": "mpi-job-config", "mountPath": "/etc/mpi"} in pod["spec"]["containers"][0][
            "volumeMounts"
        ]


def test_elsewhere_each_worker_serves_the_rank_agent_beside_its_own_command(scene: Build) -> None:
    one = old(scene, here=False)

    workers, (launcher,), (config_map,) = (made(one, kind) for kind in ("Pod", "Job", "ConfigMap"))

    agent = ["python3", "-I", "/etc/gangline/agent/rank_agent.py", "serve", "--", "sleep", "365d"]
    assert [pod["spec"]["containers"][0]["command"] for pod in workers] == [agent, agent]
    assert "args" not in workers[0]["spec"]["containers"][0]
    assert config_map["data"]["rank_agent.py"] == "the agent"
    for pod in (launcher["spec"]["template"], *workers):
        (volume,) = (v["projected"] for v in pod["spec"]["volumes"] if v["name"] == "rank-agent")
        assert volume["sources"][0]["secret"]["items"] == [
            {"key": "ssh-privatekey", "path": "agent.key"},
            {"key": "agent-certificate", "path": "agent.crt"},
        ]
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "rank-agent", "mountPath": "/etc/gangline/agent"} in mounts
    variables = {
        one["name"]: one["value"] for one in launcher["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert variables["OMPI_MCA_plm_rsh_agent"] == variables["PRTE_MCA_plm_ssh_agent"] == "/etc/mpi/kubexec.sh"


def test_the_key_of_a_job_with_an_agent_has_a_certificate_and_no_other_has(scene: Build) -> None:
    def is_certified(one: Any) -> bool:
        (action,) = (found for found in one.plan().actions if isinstance(found, EnsureKeyPair))
        return bool(action.has_certificate)

    assert is_certified(old(scene, here=False))
    assert not is_certified(old(scene))


def test_a_certificate_alone_that_is_missing_is_made_for_the_key_that_pods_have(scene: Build) -> None:
    one = old(scene, here=False)
    (action,) = (found for found in one.plan().actions if isinstance(found, EnsureKeyPair))
    pair = generate_key_pair()
    data = {**action.secret["data"], **pair}
    one.secrets["pi-ssh"] = Secret(metadata=one.child_meta("pi-ssh"), data=data)

    (again,) = (found for found in one.plan().actions if isinstance(found, EnsureKeyPair))
    mended = certify(again.private_key)

    assert set(mended) == {"agent-certificate"}
    one.secrets["pi-ssh"] = Secret(metadata=one.child_meta("pi-ssh"), data={**data, **mended})
    assert not [found for found in one.plan().actions if isinstance(found, EnsureKeyPair)]
    one.settings = Settings(has_remote_shell=True)  # the agent is not needed any more
    assert not [found for found in one.plan().actions if isinstance(found, EnsureKeyPair)]
    assert set(certify("bm8ga2V5")) == {"ssh-privatekey", "ssh-publickey", "agent-certificate"}


@pytest.mark.parametrize("said", ["agent", "ssh"])
def test_a_job_of_today_may_ask_for_the_agent(scene: Build, said: str) -> None:
    one = scene()
    one.settings = Settings(agent_programs=AGENT)
    one.meta = ObjectMeta(
        name="pi", namespace="ns", uid=one.meta.uid, annotations={"gangline.dev/rank-transport": said}
    )

    commands = [str(pod["spec"]["containers"][0]["command"]) for pod in made(one, "Pod")]

    assert ["rank_agent.py" in command for command in commands] == [said == "agent"] * 2
    assert ["sshd" in command for command in commands] == [said == "ssh"] * 2


def test_an_ssh_server_of_the_users_own_opens_the_way(scene: Build) -> None:
    one = old(scene, here=False)
    one.settle_status()
    one.main("Worker")["command"] = ["/usr/sbin/sshd", "-De"]

    plan = one.plan()

    assert "Blocked" not in one.conditions(plan)
    assert len(made(one, "Pod")) == 2


def test_a_launcher_alone_needs_no_way_to_workers(scene: Build) -> None:
    assert len(made(old(scene, here=False, workers=None), "Job")) == 1


def test_what_was_passed_over_is_said_once(scene: Build) -> None:
    (warning,) = old(scene, colour="red").plan().warnings

    assert warning.reason == "FieldsIgnored"
    assert "spec.colour" in warning.message


def test_a_job_of_v1alpha1_becomes_the_same_objects(scene: Build) -> None:
    one = scene()
    template = one.role("Launcher")["template"]
    template["spec"]["containers"][0]["command"] = ["mpirun", "true"]
    one.spec = {"gpus": 4, "gpusPerNode": 2, "template": template}
    one.settings = Settings(has_remote_shell=True)

    workers, (launcher,), (config_map,) = (made(one, kind) for kind in ("Pod", "Job", "ConfigMap"))

    assert [pod["spec"]["containers"][0]["resources"]["limits"] for pod in workers] == [
        {"nvidia.com/gpu": 2}
    ] * 2
    assert launcher["spec"]["template"]["spec"]["containers"][0]["command"] == ["mpirun", "true"]
    assert config_map["data"]["hostfile"] == (
        "pi-worker-0.pi.ns.svc slots=2\npi-worker-1.pi.ns.svc slots=2\n"
    )


@pytest.mark.parametrize(
    ("version", "labels"),
    [
        ("v1alpha1", {"group_name": "kubeflow.org", "mpi_job_name": "pi", "mpi_role_type": "worker"}),
        ("v1alpha2", {"group_name": "kubeflow.org", "mpi_job_name": "pi", "mpi_role_type": "worker"}),
        ("v1", {"group-name": "kubeflow.org", "mpi-job-name": "pi", "mpi-job-role": "worker"}),
        ("v2beta1", {}),
    ],
)
def test_pods_have_the_labels_by_which_guides_of_their_version_find_them(
    version: str, labels: dict[str, str]
) -> None:
    job = replace(MPIJob(metadata=ObjectMeta(name="pi")), version=version)

    assert published_labels(job, "worker") == labels


def test_both_roles_of_an_old_job_can_be_selected_by_its_guide(scene: Build) -> None:
    one = old(scene)
    (launcher,) = made(one, "Job")

    assert launcher["spec"]["template"]["metadata"]["labels"]["mpi_role_type"] == "launcher"
    assert {pod["metadata"]["labels"]["mpi_role_type"] for pod in made(one, "Pod")} == {"worker"}
