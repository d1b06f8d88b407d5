"""The official client: typed and dynamic objects, watch, log, exec streams, port-forward."""

from kubernetes import client, config, dynamic, watch
from kubernetes.stream import portforward, stream

NAME = "by-kubernetes"
LIMIT_S = 60
SERVER = "python -m http.server 8080 --bind 0.0.0.0"

config.load_kube_config()
core = client.CoreV1Api()
main = client.V1Container(
    name="main", image="gangline/base", command=["sh", "-c", f"echo said; exec {SERVER}"]
)
main.readiness_probe = client.V1Probe(tcp_socket=client.V1TCPSocketAction(port=8080), period_seconds=1)
spec = client.V1PodSpec(containers=[main], termination_grace_period_seconds=0)
core.create_namespaced_pod("default", client.V1Pod(metadata=client.V1ObjectMeta(name=NAME), spec=spec))
watching = watch.Watch()
pods = watching.stream(
    core.list_namespaced_pod, "default", field_selector=f"metadata.name={NAME}", timeout_seconds=LIMIT_S
)
for event in pods:
    if any(one.type == "Ready" and one.status == "True" for one in event["object"].status.conditions or []):
        watching.stop()
        break
else:
    raise AssertionError("the pod did not become ready")
assert core.read_namespaced_pod_log(NAME, "default").startswith("said\n")

enter = core.connect_get_namespaced_pod_exec
assert stream(enter, NAME, "default", command=["echo", "in"], stdout=True, stderr=True) == "in\n"
shell = stream(
    enter, NAME, "default", command=["sh"], stdin=True, stdout=True, stderr=True, _preload_content=False
)
shell.write_stdin("echo typed; echo wrong >&2; exit 3\n")
shell.run_forever(timeout=LIMIT_S)
assert (shell.read_stdout(), shell.read_stderr(), shell.returncode) == ("typed\n", "wrong\n", 3)

ports = portforward(core.connect_get_namespaced_pod_portforward, NAME, "default", ports="8080")
connection = ports.socket(8080)
connection.setblocking(True)
connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
assert connection.recv(5) == b"HTTP/"
connection.close()
assert ports.error(8080) is None

version = core.create_namespaced_config_map(
    "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name=NAME), data={"a": "1"})
).metadata.resource_version
changed = core.patch_namespaced_config_map(NAME, "default", {"data": {"b": "2"}})
assert changed.data == {"a": "1", "b": "2"}
assert changed.metadata.resource_version != version
core.delete_namespaced_config_map(NAME, "default")

jobs = dynamic.DynamicClient(client.ApiClient()).resources.get(
    api_version="kubeflow.org/v2beta1", kind="MPIJob"
)
assert jobs.get(namespace="default").items == []
core.delete_namespaced_pod(NAME, "default")
