"""Lightkube: typed and generic resources, server-side apply, watch, log, wait, and paging."""

from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

NAME = "by-lightkube"

client = Client(field_manager="lightkube")
main = Container(name="main", image="gangline/base", command=["echo", "said"])
spec = PodSpec(containers=[main], restartPolicy="Never")
client.create(Pod(metadata=ObjectMeta(name=NAME, namespace="default"), spec=spec))
for event, pod in client.watch(Pod, namespace="default", fields={"metadata.name": NAME}):
    if event != "DELETED" and pod.status and pod.status.phase == "Succeeded":
        break
assert list(client.log(NAME, namespace="default")) == ["said\n"]
client.delete(Pod, NAME, namespace="default")

data = ConfigMap(
    apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name=NAME, namespace="default"), data={"a": "1"}
)
client.apply(data)
client.patch(ConfigMap, NAME, {"data": {"b": "2"}}, patch_type=PatchType.MERGE, namespace="default")
assert client.get(ConfigMap, NAME, namespace="default").data == {"a": "1", "b": "2"}
assert NAME in {one.metadata.name for one in client.list(ConfigMap, namespace="default", chunk_size=1)}
client.delete(ConfigMap, NAME, namespace="default")
try:
    client.get(ConfigMap, NAME, namespace="default")
except ApiError as error:
    assert error.status.reason == "NotFound"
else:
    raise AssertionError("a deleted object was found")
jobs = create_namespaced_resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
assert list(client.list(jobs, namespace="default")) == []
