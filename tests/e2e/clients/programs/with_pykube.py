"""Pykube: objects made, changed, queried by label, watched and deleted; a pod's log."""

import time

import pykube

NAME = "by-pykube"
LIMIT_S = 60

api = pykube.HTTPClient(pykube.KubeConfig.from_env())
container = {"name": "main", "image": "gangline/base", "command": ["echo", "said"]}
pod = pykube.Pod(
    api,
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "default", "labels": {"by": "pykube"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    },
)
pod.create()
deadline = time.monotonic() + LIMIT_S
for event in pykube.Pod.objects(api).filter(namespace="default", selector={"by": "pykube"}).watch():
    assert time.monotonic() < deadline
    if event.object.obj.get("status", {}).get("phase") == "Succeeded":
        break
assert pod.logs() == "said\n"
pod.reload()
pod.labels["team"] = "vision"
pod.update()
assert [one.name for one in pykube.Pod.objects(api).filter(selector="team=vision")] == [NAME]
pod.delete()
jobs = pykube.object_factory(api, "kubeflow.org/v2beta1", "MPIJob")
assert list(jobs.objects(api).filter(namespace="default")) == []
