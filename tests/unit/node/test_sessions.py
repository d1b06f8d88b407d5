"""Whose session a pod gets."""

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.cluster.node.pods.container_env import ConfigError
from gangline.cluster.node.sessions import Sessions
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.user_session import ANNOTATION, own_session, write_session

UID = "5f3a2c1b-8d1e-4a1c-9a55-0123456789ab"


def pod_of(uid: str) -> Pod:
    owner = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "name": "job",
        "uid": uid,
        "controller": True,
    }
    metadata = {"name": "p", "namespace": "ns", "annotations": {ANNOTATION: "machine"}}
    return msgspec.convert({"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {}}, Pod)


@pytest.mark.parametrize("uid", [f"../other/{UID}", f"./{UID}", "", UID])
async def test_the_uid_of_a_pods_job_leads_to_no_other_folder(tmp_path, uid):
    paths = ClusterPaths("default", tmp_path / "default")
    write_session(paths, UID, own_session("ns", "job", {"KEY": "own"}))
    other = ClusterPaths("other", tmp_path / "default" / "other")
    write_session(other, UID, own_session("ns", "job", {"KEY": "other"}))
    (other.sessions / f"{UID}.json").rename(other.state / f"{UID}.json")

    sessions = Sessions(None, paths)  # type: ignore[arg-type] # a pod of an MPIJob asks for nothing
    if uid == UID:
        found = await sessions.of(pod_of(uid), started_at_s=0.0, now_s=0.0)
        assert found is not None and found.environment == {"KEY": "own"}
    else:
        with pytest.raises(ConfigError):
            await sessions.of(pod_of(uid), started_at_s=0.0, now_s=100.0)


async def test_a_session_of_a_kind_that_is_not_known_is_removed(tmp_path):
    """One that another version left must not end the agent each time that it looks."""
    paths = ClusterPaths("default", tmp_path / "default")
    write_session(paths, UID, own_session("ns", "job", {}, "Unknown"))

    await Sessions(None, paths).sweep()  # type: ignore[arg-type] # nobody is asked

    assert not list(paths.sessions.glob("*.json"))
