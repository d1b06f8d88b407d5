"""Numbers of replicas at the places that a definition names for ``scale``, in the words of apiextensions."""

import pytest

from gangline.cluster.server.rules.scale_values import read_path, scale_errors, write_path

PATHS = {"specReplicasPath": ".spec.workers.replicas", "statusReplicasPath": ".status.active"}


def replicas(value):
    return {"spec": {"workers": {"replicas": value}}}


@pytest.mark.parametrize("value", [0, 1, 2**31 - 1, None, "3"])
def test_numbers_within_32_bits_are_fine_and_types_are_the_schemas_business(value):
    assert scale_errors(replicas(value), PATHS) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [(2**31, "should be less than or equal to 2147483647"), (-1, "should be a non-negative integer")],
)
def test_others_are_refused(value, message):
    [error] = scale_errors(replicas(value), PATHS)

    assert (error.path, error.message) == (".spec.workers.replicas", message)


def test_a_kind_without_scale_has_no_such_rule():
    assert scale_errors(replicas(-1), None) == []


def test_a_path_is_read_and_written():
    assert read_path({}, ".spec.replicas") is None
    assert write_path({"spec": {"a": 1}}, ".spec.workers.replicas", 3) == {
        "spec": {"a": 1, "workers": {"replicas": 3}}
    }
