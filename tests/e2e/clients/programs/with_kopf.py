"""An operator by kopf: it handles creation, change and deletion of a ConfigMap, and keeps a finalizer."""

import threading

import kopf

from kubernetes import client, config

NAME = "by-kopf"
LIMIT_S = 60
seen: list[str] = []
steps = {name: threading.Event() for name in ("created", "changed", "deleted")}


def note(step: str) -> None:
    seen.append(step)
    steps[step].set()


@kopf.on.create("configmaps", labels={"by": "kopf"})
def created(patch: kopf.Patch, **_: object) -> None:
    patch.setdefault("data", {})["greeted"] = "yes"
    note("created")


@kopf.on.update("configmaps", labels={"by": "kopf"}, field="data.a")
def changed(**_: object) -> None:
    note("changed")


@kopf.on.delete("configmaps", labels={"by": "kopf"})
def deleted(**_: object) -> None:
    note("deleted")


ready, stop = threading.Event(), threading.Event()
operator = threading.Thread(
    target=lambda: kopf.run(namespaces=["default"], standalone=True, ready_flag=ready, stop_flag=stop)
)
operator.start()
try:
    assert ready.wait(LIMIT_S)
    config.load_kube_config()
    core = client.CoreV1Api()
    core.create_namespaced_config_map(
        "default",
        client.V1ConfigMap(metadata=client.V1ObjectMeta(name=NAME, labels={"by": "kopf"}), data={"a": "1"}),
    )
    assert steps["created"].wait(LIMIT_S)
    core.patch_namespaced_config_map(NAME, "default", {"data": {"a": "2"}})
    assert steps["changed"].wait(LIMIT_S)
    found = core.read_namespaced_config_map(NAME, "default")
    assert found.data == {"a": "2", "greeted": "yes"}
    assert found.metadata.finalizers
    core.delete_namespaced_config_map(NAME, "default")
    assert steps["deleted"].wait(LIMIT_S)
    assert seen == ["created", "changed", "deleted"]
finally:
    stop.set()
    operator.join(LIMIT_S)
