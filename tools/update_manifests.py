"""Write the manifests and the chart of deploy/ again from the objects: `python tools/update_manifests.py`."""

from collections.abc import Iterator
from pathlib import Path

from chart import chart

from gangline.api.codec import dump_yaml
from gangline.api.trainer.bundled import bundled_runtimes
from gangline.installation.objects import Installation, definitions, device_plugin, dra_driver, objects, page

FOLDER = Path(__file__).parents[1] / "deploy"
MADE = "# Written by tools/update_manifests.py; do not edit.\n"
INSTALL = """# Operator and gang scheduler on a cluster, as `gangline install` makes them.
#
#   kubectl apply --server-side -k deploy
#
# See docs/guides/install.md.
"""
OPERATOR = """# The job operator alone, for clusters with another gang scheduler or none.
#
#   kubectl apply --server-side -f deploy/chart/crds
#   kubectl apply -f deploy/operator.yaml
#
# See docs/guides/operator.md: the image, the options, one namespace alone, gangs, metrics.
"""
SCHEDULER = """# The gang scheduler alone, for clusters with another operator.
#
#   kubectl apply --server-side -f deploy/chart/crds
#   kubectl apply -f deploy/scheduler.yaml
#
# See docs/guides/scheduler.md: the image, the options, a part of the nodes alone, what it writes.
"""
NAMESPACED = """# The job operator for one namespace, with no right outside it; see docs/guides/install.md.
"""
DEVICE_PLUGIN = """# The device plugin of GPUs: a pod on each labelled node, which serves its GPUs.
#
#   kubectl label node NODE openshift.com/gpu-accelerator=true
#   kubectl apply -f deploy/device-plugin.yaml
#
# args [--simulate-gpus=8, --gpu-model=v100-dgx1] try it without GPUs. Where NVIDIA's runtime, which brings
# NVML, is not the default, the pod needs `runtimeClassName: nvidia`.
# Its account lets it read which GPUs the scheduler chose for pods, tell pods what they got, and publish GPUs
# and links on the node; without those rights GPUs are chosen by the wires alone.
# See docs/guides/gpus.md. Another plugin for nvidia.com/gpu must not run on the same nodes.
"""
RUNTIMES = """# The runtimes that TrainJobs may name without them too, for clients that list runtimes.
#
#   kubectl apply -f deploy/runtimes.yaml
#
# See docs/guides/training-jobs.md.
"""
DRA = """# GPUs by resource claims (resource.k8s.io/v1): the device class, and a driver on each labelled node.
#
#   kubectl label node NODE openshift.com/gpu-accelerator=true
#   kubectl apply -f deploy/dra.yaml
#
# It stands in place of the device plugin: a node's GPUs go by claims or by limits, never by both. See
# docs/guides/gpus-on-a-cluster.md.
"""
PAGE = """# The web page for a cluster's users, each with a token of their own; it has no rights of its own.
#
#   kubectl apply -f deploy/page.yaml
#   kubectl -n gangline-page port-forward service/gangline-page 8080:80
#
# then http://localhost:8080. Under another name, by an Ingress with TLS: args [--host=gangline.example.com].
# See docs/guides/page.md.
"""
KUSTOMIZATION = """# kubectl apply --server-side -k deploy
#
# Images of your registry: add
#
#   images:
#     - {name: gangline, newName: registry.example.com/ml/gangline}
#     - {name: gangline-scheduler, newName: registry.example.com/ml/gangline-scheduler}
"""
ONE_NAMESPACE = """# kubectl apply -k deploy/namespaced
#
# `namespace` is the one whose jobs it is for. The cluster needs the definition of MPIJob (deploy/chart/crds).
"""
ONE_NAMESPACES_NAME = "jobs"


def manifests() -> Iterator[tuple[str, str]]:
    """Yield path and text of every file."""
    whole = Installation()
    yield "install.yaml", MADE + INSTALL + dump_yaml(*objects(whole))
    yield "operator.yaml", MADE + OPERATOR + dump_yaml(*objects(Installation(has_scheduler=False)))
    yield "scheduler.yaml", MADE + SCHEDULER + dump_yaml(*objects(Installation(has_operator=False)))
    yield "device-plugin.yaml", MADE + DEVICE_PLUGIN + dump_yaml(*device_plugin())
    yield "page.yaml", MADE + PAGE + dump_yaml(*page(whole))
    yield "runtimes.yaml", MADE + RUNTIMES + dump_yaml(*bundled_runtimes())
    yield "dra.yaml", MADE + DRA + dump_yaml(*dra_driver())
    crds = [f"chart/crds/{crd['metadata']['name']}.yaml" for crd in definitions(whole)]
    yield "kustomization.yaml", MADE + KUSTOMIZATION + _kustomization(*crds, "install.yaml")
    one = Installation(namespace=ONE_NAMESPACES_NAME, is_namespaced=True)
    yield "namespaced/operator.yaml", MADE + NAMESPACED + dump_yaml(*objects(one))
    yield (
        "namespaced/kustomization.yaml",
        MADE + ONE_NAMESPACE + _kustomization("operator.yaml", namespace=ONE_NAMESPACES_NAME),
    )
    for path, text in chart():
        yield f"chart/{path}", text


def _kustomization(*files: str, **rest: str) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return dump_yaml({**head, **rest, "resources": [*files]})


if __name__ == "__main__":
    for path, text in manifests():
        target = FOLDER / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
