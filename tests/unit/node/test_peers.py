"""What a pod is told of the others of its job where all have one address."""

from __future__ import annotations

import json

from gangline.api.core import ObjectMeta, OwnerReference, Pod
from gangline.cluster.node.pods.peers import FIRST_PORT, PORTS, with_addresses

ROLES = {"chief": 1, "ps": 2, "worker": 40, "evaluator": 1}


def pod(uid: str = "a") -> Pod:
    owner = OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name="cnn", uid=uid)
    labels = {"training.kubeflow.org/job-name": "cnn"}
    return Pod(metadata=ObjectMeta(name="cnn-worker-0", labels=labels, owner_references=[owner]))


def hosts(role: str) -> list[str]:
    return [f"cnn-{role}-{index}.default.svc:2222" for index in range(ROLES[role])]


def told(config: object, uid: str = "a") -> dict[str, object]:
    return json.loads(with_addresses(pod(uid), {"TF_CONFIG": json.dumps(config)})["TF_CONFIG"])


def test_every_replica_of_a_tfjob_has_a_port_of_its_own():
    config = {"cluster": {role: hosts(role) for role in ROLES}, "task": {"type": "worker", "index": 3}}

    found = told(config)

    addresses = [address for of in found["cluster"].values() for address in of]
    assert len(set(addresses)) == len(addresses) == sum(ROLES.values())
    ports = [int(address.removeprefix("127.0.0.1:")) for address in addresses]
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)
    assert found["task"] == config["task"]


def test_a_sparse_configuration_names_the_same_addresses_as_a_whole_one():
    whole = told({"cluster": {role: hosts(role) for role in ROLES}, "task": {}})["cluster"]

    sparse = told({"cluster": {"worker": {"7": hosts("worker")[7]}, "ps": hosts("ps")}, "task": {}})[
        "cluster"
    ]

    assert sparse == {"worker": {"7": whole["worker"][7]}, "ps": whole["ps"]}


def test_two_jobs_of_one_name_have_other_ports():
    config = {"cluster": {"worker": hosts("worker")}, "task": {}}
    assert not set(told(config)["cluster"]["worker"]) & set(told(config, "b")["cluster"]["worker"])


def test_what_the_user_wrote_stays():
    mine = {"cluster": {"worker": ["elsewhere:2222", "cnn-other-0:1"]}, "task": {}}
    assert told(mine) == mine
    for text in ("", "{", "[]", '{"cluster": 3}'):
        assert with_addresses(pod(), {"TF_CONFIG": text}) == {"TF_CONFIG": text}
