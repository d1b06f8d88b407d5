"""Which volume a claim gets, as values."""

from pathlib import PurePath
from typing import Any

import msgspec
import pytest

from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from gangline.cluster.controllers.apps.plan import WorkloadObject
from gangline.cluster.controllers.storage.plan import (
    PROVISIONED_BY,
    PROVISIONER,
    Space,
    StoragePlan,
    VolumeClass,
    fits,
    plan_claim,
    plan_volume,
)

FOLDER = PurePath("/state/volumes")
SPACE = Space(size_bytes=100 * 2**30, free_bytes=10 * 2**30)
CLASSES = [msgspec.convert({"metadata": {"name": "standard"}, "provisioner": PROVISIONER}, VolumeClass)]


def claim(size: str = "1Gi", *, status: Any = None, metadata: Any = None, **spec: Any) -> WorkloadObject:
    found = {"name": "data", "namespace": "team", "uid": "c1", **(metadata or {})}
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return msgspec.convert({"metadata": found, "spec": wanted, "status": status or {}}, WorkloadObject)


def volume(
    name: str, size: str = "1Gi", *, status: Any = None, metadata: Any = None, **spec: Any
) -> WorkloadObject:
    found = {"name": name, "uid": f"uid-{name}", **(metadata or {})}
    wanted = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, **spec}
    body = {"metadata": found, "spec": wanted, "status": status or {"phase": "Available"}}
    return msgspec.convert(body, WorkloadObject)


def plan(wanted: WorkloadObject, *volumes: WorkloadObject, in_use: bool = False) -> StoragePlan:
    return plan_claim(wanted, volumes, CLASSES, SPACE, FOLDER, in_use=in_use)


def test_gets_the_smallest_volume_that_fits_and_reserves_it_first() -> None:
    found = plan(claim(), volume("large", "5Gi"), volume("right", "2Gi"), volume("small", "500Mi"))
    (write,) = found.steps
    assert (write.resource, write.meta.name) == (PERSISTENT_VOLUMES, "right")
    assert write.body["spec"]["claimRef"]["uid"] == "c1"
    assert found.status == {"phase": "Pending"}


def test_is_bound_once_its_volume_names_it_with_the_volumes_capacity() -> None:
    reference = {"namespace": "team", "name": "data", "uid": "c1"}
    found = plan(claim(), volume("v", "2Gi", claimRef=reference))
    (write,) = found.steps
    assert write.resource == PERSISTENT_VOLUME_CLAIMS
    assert write.body["spec"] == {"volumeName": "v"}
    assert found.status == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
    }


def test_a_volume_that_is_kept_for_it_comes_before_a_smaller_one_of_any_class() -> None:
    kept = volume("kept", "9Gi", claimRef={"namespace": "team", "name": "data"}, storageClassName="other")
    assert plan(claim(), volume("free"), kept).steps[0].meta.name == "kept"


@pytest.mark.parametrize(
    "unfit",
    [
        volume("class", storageClassName="fast"),
        volume("mode", accessModes=["ReadOnlyMany"]),
        volume("taken", claimRef={"namespace": "team", "name": "other", "uid": "c2"}),
        volume("former", claimRef={"namespace": "team", "name": "data", "uid": "an earlier one"}),
        volume("released", status={"phase": "Released"}),
        volume("labels", metadata={"labels": {"disk": "slow"}}),
        volume("small", "100Mi"),
    ],
    ids=lambda one: one.metadata.name,
)
def test_does_not_get_what_does_not_fit(unfit: WorkloadObject) -> None:
    wanted = claim(selector={"matchLabels": {"disk": "fast"}}) if unfit.metadata.name == "labels" else claim()
    assert not fits(wanted, unfit)


def test_a_folder_is_made_whose_capacity_is_that_of_the_file_system() -> None:
    found = plan(claim("5Gi", storageClassName="standard"))
    (write,) = found.steps
    assert write.verb == "create"
    assert write.body["spec"]["hostPath"] == {"path": "/state/volumes/pvc-c1", "type": "DirectoryOrCreate"}
    assert write.body["spec"]["capacity"] == {"storage": "102400Mi"}
    assert write.body["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def test_more_than_is_free_is_not_promised() -> None:
    found = plan(claim("11Gi", storageClassName="standard"))
    assert found.steps == ()
    assert found.event is not None
    assert found.event[1] == "ProvisioningFailed"


def test_without_a_class_it_waits_and_says_so() -> None:
    found = plan(claim(storageClassName=""))
    assert (found.steps, found.status) == ((), {"phase": "Pending"})
    assert found.event is not None
    assert found.event[1] == "FailedBinding"


def test_is_kept_until_no_pod_mounts_it() -> None:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
    assert plan(claim(metadata=metadata), in_use=True).steps == ()
    assert plan(claim(metadata=metadata)).steps[0].body["metadata"]["finalizers"] is None


class TestVolume:
    REFERENCE = {"namespace": "team", "name": "data", "uid": "c1"}

    def test_is_released_and_kept_when_its_claim_is_gone(self) -> None:
        found = plan_volume(volume("v", claimRef=self.REFERENCE), [], FOLDER)
        assert (found.steps, found.status) == ((), {"phase": "Released"})

    def test_goes_with_its_folder_where_that_was_made_for_the_claim(self) -> None:
        given = {
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": "/state/volumes/v"},
            "claimRef": self.REFERENCE,
        }
        made = volume("v", metadata={"annotations": {PROVISIONED_BY: PROVISIONER}}, **given)
        found = plan_volume(made, [], FOLDER)
        assert (found.steps[0].verb, found.remove_folder) == ("delete", "/state/volumes/v")
        assert plan_volume(made, [claim()], FOLDER).steps == ()

    @pytest.mark.parametrize("path", ["/home/user/data", "/state/volumes/../../etc", "/state/volumes"])
    def test_no_folder_of_anybody_else_is_ever_removed(self, path: str) -> None:
        metadata = {"annotations": {PROVISIONED_BY: PROVISIONER}}
        given = {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": path}}
        found = plan_volume(volume("v", metadata=metadata, claimRef=self.REFERENCE, **given), [], FOLDER)
        assert found.remove_folder == ""
        assert found.status is not None
        assert found.status["phase"] == "Failed"
