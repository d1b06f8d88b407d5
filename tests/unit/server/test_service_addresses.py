"""Ports of the nodes for Services.

Expected values: Kubernetes documentation, "Service" ("type: NodePort", "Choosing your own port"), and the
answers of kube-apiserver 1.35.
"""

import pytest

from gangline.cluster.server.service_addresses import with_node_ports


def spec(*ports, kind="NodePort", **more):
    return {"type": kind, "ports": [dict(port) for port in ports], **more}


def numbers(*args, **more):
    ports, errors = with_node_ports(*args, **more)
    assert errors == []
    return [port.get("nodePort") for port in ports]


def refusals(*args):
    return [(error.reason, error.path, error.message) for error in with_node_ports(*args)[1]]


def test_each_port_gets_one_of_its_own_within_the_range():
    found = numbers(spec({"port": 1}, {"port": 2}, kind="LoadBalancer"), {}, (), "uid")

    assert len(set(found)) == 2
    assert all(30000 <= number <= 32767 for number in found)


def test_a_port_of_another_service_is_passed_over():
    (first,) = numbers(spec({"port": 1}), {}, (), "uid")
    (second,) = numbers(spec({"port": 1}), {}, {first}, "uid")

    assert second not in (first, None)


def test_the_last_free_one_is_found_and_then_the_range_is_full():
    taken = set(range(30000, 32768)) - {30005}

    assert numbers(spec({"port": 1}), {}, taken, "uid") == [30005]
    assert refusals(spec({"port": 1}, {"port": 2}), {}, taken, "uid")[0][1] == "spec.ports[1].nodePort"


@pytest.mark.parametrize(
    ("asked", "kind", "reason", "words"),
    [
        (30080, "NodePort", "Invalid", "provided port is already allocated"),
        (80, "NodePort", "Invalid", "The range of valid ports is 30000-32767"),
        (30081, "ClusterIP", "Forbidden", "may not be used when `type` is 'ClusterIP'"),
    ],
)
def test_a_port_that_is_not_to_be_had_is_an_error(asked, kind, reason, words):
    ((found, field, message),) = refusals(spec({"port": 1, "nodePort": asked}, kind=kind), {}, {30080}, "uid")

    assert (found, field) == (reason, "spec.ports[0].nodePort")
    assert words in message


def test_two_protocols_of_one_service_may_share_a_port():
    both = [{"port": 53, "protocol": protocol, "nodePort": 30053} for protocol in ("TCP", "UDP")]

    assert numbers(spec(*both), {}, (), "uid") == [30053, 30053]


def test_an_update_that_does_not_name_it_keeps_the_port():
    before = spec({"port": 1, "protocol": "TCP", "nodePort": 31000})

    assert numbers(spec({"port": 1}), before, (), "uid") == [31000]


def test_a_service_that_is_no_longer_of_the_type_gives_its_ports_back():
    before = spec({"port": 1, "nodePort": 31000})

    assert numbers(spec({"port": 1, "nodePort": 31000}, kind="ClusterIP"), before, (), "uid") == [None]


def test_a_load_balancer_may_do_without():
    wanted = spec({"port": 1}, kind="LoadBalancer", allocateLoadBalancerNodePorts=False)

    assert numbers(wanted, {}, (), "uid") == [None]
