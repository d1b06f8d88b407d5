"""Through kr8s: a pod made, waited for, read, labelled, entered and deleted; a kind of our own."""

import kr8s
from kr8s.objects import ConfigMap, Pod, new_class

NAME = "by-kr8s"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": NAME},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "main", "image": "gangline/base", "command": ["sh", "-c", "echo said; exec sleep 600"]}
        ],
    },
}

pod = Pod(POD)
pod.create()
pod.wait("condition=Ready", timeout=60)
assert "said" in "\n".join(pod.logs())
pod.label(team="vision")
assert [one.name for one in kr8s.get("pods", label_selector={"team": "vision"})] == [NAME]
assert pod.exec(["echo", "within"]).stdout == b"within\n"
pod.delete()
pod.wait("delete", timeout=60)
settings = ConfigMap({"metadata": {"name": NAME}, "data": {"a": "1"}})
settings.create()
settings.patch({"data": {"b": "2"}})
assert ConfigMap.get(NAME).data == {"a": "1", "b": "2"}
settings.delete()
jobs = new_class(kind="MPIJob", version="kubeflow.org/v2beta1", namespaced=True, plural="mpijobs")
assert list(jobs.list()) == []
