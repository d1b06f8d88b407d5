"""The table of Kubernetes' own types: whole, and in the words of the published API."""

import pytest

from gangline.api.wire_types import _lines, _parts, message, message_of_kind

PARTS = sorted(_parts()[0])


@pytest.mark.parametrize("part", PARTS)
def test_every_type_of_a_field_is_in_the_table(part):
    for name in _lines(part):
        for field in message(f"{part}.{name}").by_number.values():
            if field.is_message:
                assert message(field.type).name == field.type, f"{part}.{name}.{field.name}"


@pytest.mark.parametrize("part", PARTS)
def test_no_two_fields_of_a_message_share_a_number_or_a_name(part):
    for name, text in _lines(part).items():
        found = message(f"{part}.{name}")
        assert len(found.by_number) == len(text.split()), f"{part}.{name}"
        assert len({field.name for field in found.by_number.values()}) == len(found.by_number), name


# From the published types: a number in protobuf, a pointer, a list that is merged by a key, an inline struct.
@pytest.mark.parametrize(
    ("name", "field", "number", "shape", "kind", "merge_key", "zero_is_value", "always"),
    [
        ("core/v1.PodSpec", "containers", 2, "*", "core/v1.Container", "name", False, False),
        ("core/v1.PodSpec", "terminationGracePeriodSeconds", 4, "", "i", None, True, False),
        ("core/v1.Container", "name", 1, "", "s", None, False, True),
        ("core/v1.ConfigMapKeySelector", "name", 1, "", "s", None, False, False),
        ("apps/v1.DeploymentSpec", "template", 3, "", "core/v1.PodTemplateSpec", None, False, False),
        ("core/v1.ResourceRequirements", "limits", 1, "%", "Q", None, False, False),
        ("scheduling/v1beta1.PodGroupSpec", "priority", 8, "", "i", None, True, False),
    ],
)
def test_a_field_reads_as_published(name, field, number, shape, kind, merge_key, zero_is_value, always):
    found = message(name).by_name[field]

    assert (found.shape, found.type, found.merge_key) == (shape, kind, merge_key)
    assert (found.number, found.zero_is_value, found.always) == (number, zero_is_value, always)


def test_a_field_that_a_release_dropped_is_still_read():
    assert message("core/v1.PodSpec").by_name["workloadRef"].type == "core/v1.WorkloadReference"
    assert message("core/v1.PodSpec").by_name["schedulingGroup"].type == "core/v1.PodSchedulingGroup"


@pytest.mark.parametrize(
    ("group", "version", "kind", "found"),
    [
        ("", "v1", "Pod", "core/v1.Pod"),
        ("rbac.authorization.k8s.io", "v1", "Role", "rbac/v1.Role"),
        ("apps", "v1", "Deployment", "apps/v1.Deployment"),
        ("autoscaling", "v2", "HorizontalPodAutoscaler", "autoscaling/v2.HorizontalPodAutoscaler"),
        ("scheduling.x-k8s.io", "v1alpha1", "PodGroup", None),
        ("scheduling.k8s.io", "v1alpha1", "Workload", None),
        ("batch", "v1", "Deployment", None),
    ],
)
def test_a_kind_is_found_by_group_and_version(group, version, kind, found):
    message_found = message_of_kind(group, version, kind)

    assert (message_found.name if message_found else None) == found
