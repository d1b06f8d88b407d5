"""Unmodified kubectl, command by command. No controllers, scheduler or node run here: objects only."""

import asyncio
import json
import re
from typing import Any

import pytest

Kubectl = Any
"""The runner of conftest.py."""

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: cm, labels: {app: x}}
data: {a: b}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec:
  automountServiceAccountToken: false
  schedulerName: nobody
  containers:
  - {name: main, image: gangline/base, command: [sleep, "1"], resources: {limits: {cpu: 500m, memory: 64Mi}}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      schedulerName: nobody
      containers: [{name: main, image: gangline/base, command: ["true"]}]
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trains.example.dev}
spec:
  group: example.dev
  scope: Namespaced
  names: {plural: trains, singular: train, kind: Train, shortNames: [tr]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Model, type: string, jsonPath: .spec.model, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: A train of the tests.
        properties:
          spec:
            type: object
            required: [model]
            properties:
              replicas: {type: integer, minimum: 0, default: 1, description: How many wagons.}
              model: {type: string}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
TRAIN = """
apiVersion: example.dev/v1
kind: Train
metadata: {name: t}
spec: {model: resnet}
"""


async def get_json(kubectl: Kubectl, *arguments: str) -> Any:
    return json.loads(await kubectl.ok("get", *arguments, "-o", "json"))


async def test_apply_says_created_unchanged_and_configured(kubectl: Kubectl) -> None:
    created = await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)
    unchanged = await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)
    configured = await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP.replace("{a: b}", "{c: d}"))

    assert (created, unchanged, configured) == (
        "configmap/cm created\n",
        "configmap/cm unchanged\n",
        "configmap/cm configured\n",
    )
    assert (await get_json(kubectl, "cm", "cm"))["data"] == {"c": "d"}


@pytest.mark.parametrize("manifest", [POD, JOB], ids=["pod", "job"])
async def test_apply_of_an_unchanged_workload_changes_nothing(kubectl: Kubectl, manifest: str) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", stdin=manifest)


async def test_create_refuses_what_exists_and_strange_fields(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=POD)

    again = await kubectl.run("create", "-f", "-", stdin=POD)
    strange = await kubectl.run(
        "create", "-f", "-", stdin=POD.replace("name: p,", "name: q,").replace("spec:", "spec:\n  bogus: 1")
    )

    assert again.code == 1 and "AlreadyExists" in again.err
    assert strange.code == 1 and 'unknown field "spec.bogus"' in strange.err


async def test_get_in_every_form(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)

    table = (await kubectl.ok("get", "pods")).splitlines()
    wide = (await kubectl.ok("get", "pods", "-o", "wide")).splitlines()
    name = await kubectl.ok("get", "pods", "-l", "app in (x,y),!z", "-o", "name")
    yaml = await kubectl.ok("get", "pod", "p", "-o", "yaml")
    labels = await kubectl.ok("get", "pods", "--show-labels", "--sort-by=.metadata.name")
    path = await kubectl.ok("get", "pod", "p", "-o", "jsonpath={.spec.containers[0].name}")

    assert table[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert table[1].split()[:4] == ["p", "0/1", "Pending", "0"]
    assert wide[0].split()[5:] == ["IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    assert name == "pod/p\n"
    assert "kind: Pod\n" in yaml
    assert "app=x" in labels
    assert path == "main"


async def test_get_several_kinds_all_and_nothing(kubectl: Kubectl) -> None:
    empty = await kubectl.run("get", "pods")
    assert (empty.code, empty.err) == (0, f"No resources found in {kubectl.namespace} namespace.\n")

    await kubectl.ok("apply", "-f", "-", stdin=f"{POD}\n---\n{JOB}\n---\n{CONFIG_MAP}")

    several = await kubectl.ok("get", "pods,jobs,cm", "-l", "app!=none", "-o", "name")
    everything = await kubectl.ok("get", "all", "-o", "name")
    assert {"pod/p", "job.batch/j", "configmap/cm"} <= set(several.split())
    assert {"pod/p", "job.batch/j"} <= set(everything.split())


async def test_missing_object_and_unknown_kind_are_told_apart(kubectl: Kubectl) -> None:
    missing = await kubectl.run("get", "pod", "no")
    unknown = await kubectl.run("get", "nothings")

    assert missing.err == 'Error from server (NotFound): pods "no" not found\n'
    assert unknown.err == 'error: the server doesn\'t have a resource type "nothings"\n'


async def test_get_watch_prints_changes(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)
    process = await kubectl.start("get", "cm", "-l", "app=x", "-w", "--output-watch-events")
    assert process.stdout is not None
    lines = []
    try:
        async with asyncio.timeout(60):
            lines += [await process.stdout.readline() for _ in range(2)]
            await kubectl.ok("label", "cm", "cm", "more=1")
            lines.append(await process.stdout.readline())
            await kubectl.ok("delete", "cm", "cm")
            lines.append(await process.stdout.readline())
    finally:
        process.kill()
        await process.communicate()

    rows = [line.decode().split()[:2] for line in lines]
    assert rows == [["EVENT", "NAME"], ["ADDED", "cm"], ["MODIFIED", "cm"], ["DELETED", "cm"]]


async def test_describe(kubectl: Kubectl) -> None:
    node = '{"apiVersion":"v1","kind":"Node","metadata":{"name":"gangline-test-node"},"spec":{}}'
    await kubectl.ok("apply", "-f", "-", stdin=f"{POD}\n---\n{JOB}\n---\n{node}")
    pod = await kubectl.ok("describe", "pod", "p")
    job = await kubectl.ok("describe", "job", "j")
    described_node = await kubectl.ok("describe", "node", "gangline-test-node")
    absent = await kubectl.run("describe", "pod", "no")
    await kubectl.ok("delete", "node", "gangline-test-node")

    assert re.search(r"^Status:\s+Pending$", pod, re.MULTILINE)
    assert re.search(r"^QoS Class:\s+Guaranteed$", pod, re.MULTILINE)
    assert re.search(r"^Completions:\s+1$", job, re.MULTILINE)
    assert re.search(r"^Selector:\s+batch.kubernetes.io/controller-uid=", job, re.MULTILINE)
    assert re.search(r"^Name:\s+gangline-test-node$", described_node, re.MULTILINE)
    assert absent.err == 'Error from server (NotFound): pods "no" not found\n'


async def test_delete_waits_cascades_and_selects(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=f"{POD}\n---\n{CONFIG_MAP}")

    assert await kubectl.ok("delete", "pod", "p") in (
        'pod "p" deleted\n',
        f'pod "p" deleted from {kubectl.namespace} namespace\n',
    )
    assert "deleted" in await kubectl.ok("delete", "cm", "-l", "app=x")
    assert (await kubectl.run("delete", "cm", "cm")).code == 1
    await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)
    await kubectl.ok("delete", "cm", "cm", "--cascade=foreground", "--wait=false")
    finalizers = (await get_json(kubectl, "cm", "cm"))["metadata"]["finalizers"] if kubectl.server else None
    assert finalizers in (["foregroundDeletion"], None)


async def test_delete_force_ends_a_bound_pod_at_once(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD.replace("spec:", "spec:\n  nodeName: nowhere"))
    await kubectl.ok("delete", "pod", "p", "--wait=false")
    assert "deletionTimestamp" in (await get_json(kubectl, "pod", "p"))["metadata"]

    await kubectl.ok("delete", "pod", "p", "--force", "--grace-period=0")

    assert (await kubectl.run("get", "pod", "p")).code == 1


async def test_label_annotate_and_patch(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)

    await kubectl.ok("label", "pod", "p", "team=a")
    await kubectl.ok("label", "pod", "p", "app-")
    await kubectl.ok("annotate", "pod", "p", "note=hello world")
    clash = await kubectl.run("label", "pod", "p", "team=b")
    strategic = '{"spec":{"containers":[{"name":"main","image":"other:1"}]}}'
    await kubectl.ok("patch", "pod", "p", "-p", strategic)
    await kubectl.ok(
        "patch", "pod", "p", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/team"}]'
    )

    pod = await get_json(kubectl, "pod", "p")
    assert "labels" not in pod["metadata"]
    assert pod["metadata"]["annotations"]["note"] == "hello world"
    assert clash.code == 1
    assert [c["image"] for c in pod["spec"]["containers"]] == ["other:1"]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "64Mi"}


async def test_status_is_patched_as_a_subresource_and_waited_for(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=POD)
    waiting = await kubectl.start("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    status = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl.ok("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", status)

    out, err = await asyncio.wait_for(waiting.communicate(), 60)

    assert (waiting.returncode, out) == (0, b"pod/p condition met\n"), err
    assert (await kubectl.ok("get", "pod", "p")).splitlines()[1].split()[2] == "Running"
    late = await kubectl.run("wait", "--for=jsonpath={.status.phase}=Failed", "pod/p", "--timeout=1s")
    assert late.code == 1 and "timed out" in late.err


async def test_wait_for_delete(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)
    waiting = await kubectl.start("wait", "--for=delete", "cm/cm", "--timeout=60s")
    await kubectl.ok("delete", "cm", "cm")

    _, err = await asyncio.wait_for(waiting.communicate(), 60)

    assert waiting.returncode == 0, err


async def test_imperative_create_uses_protobuf_and_is_understood(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "configmap", "made", "--from-literal=a=b")
    await kubectl.ok("create", "secret", "generic", "made", "--from-literal=password=hunter2")
    await kubectl.ok("create", "job", "made", "--image=gangline/base", "--", "sh", "-c", "exit 0")
    await kubectl.ok("create", "serviceaccount", "made")
    await kubectl.ok("run", "made", "--image=gangline/base", "--restart=Never", "--", "true")

    assert (await get_json(kubectl, "cm", "made"))["data"] == {"a": "b"}
    secret = await get_json(kubectl, "secret", "made")
    assert (secret["type"], secret["data"]) == ("Opaque", {"password": "aHVudGVyMg=="})
    job = await get_json(kubectl, "job", "made")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == ("gangline/base", ["sh", "-c", "exit 0"])
    assert (await kubectl.ok("create", "token", "made")).count(".") == 2


async def test_who_one_is_and_what_one_may(kubectl: Kubectl) -> None:
    assert "Username" in await kubectl.ok("auth", "whoami")
    assert await kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"


async def test_api_resources_and_versions(kubectl: Kubectl) -> None:
    resources = await kubectl.ok("api-resources", "--no-headers")
    versions = await kubectl.ok("api-versions")

    rows = [line.split() for line in resources.splitlines()]
    assert ["pods", "po", "v1", "true", "Pod"] in rows
    assert {"v1", "batch/v1", "coordination.k8s.io/v1"} <= set(versions.split())


async def test_explain(kubectl: Kubectl) -> None:
    text = await kubectl.ok("explain", "job.spec.template.spec.containers")

    assert "KIND:       Job" in text and "image\t<string>" in text


async def test_custom_kind_from_definition_to_scale(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CRD)
    try:
        await kubectl.ok("wait", "--for=condition=Established", "crd/trains.example.dev", "--timeout=60s")
        created = await kubectl.ok("apply", "-f", "-", stdin=TRAIN)
        unchanged = await kubectl.ok("apply", "-f", "-", stdin=TRAIN)
        configured = await kubectl.ok("apply", "-f", "-", stdin=TRAIN.replace("resnet", "vgg"))
        await kubectl.ok("scale", "train/t", "--replicas=4")
        table = (await kubectl.ok("get", "tr")).splitlines()
        wide = (await kubectl.ok("get", "trains.example.dev", "-o", "wide")).splitlines()
        explained = await kubectl.ok("explain", "train.spec.replicas")
        described = await kubectl.ok("describe", "train", "t")
        bad = await kubectl.run("apply", "-f", "-", stdin=TRAIN.replace("model: resnet", "modle: x"))
        negative = await kubectl.run("scale", "train/t", "--replicas=-2")
        strategic = await kubectl.run("patch", "train", "t", "-p", "{}")
        await kubectl.ok("delete", "train", "t")
    finally:
        await kubectl.ok("delete", "crd", "trains.example.dev")

    assert [created, unchanged, configured] == [
        f"train.example.dev/t {word}\n" for word in ("created", "unchanged", "configured")
    ]
    assert [line.split()[:2] for line in table] == [["NAME", "REPLICAS"], ["t", "4"]]
    assert wide[1].split() == ["t", "4", "vgg"]
    assert "How many wagons." in explained
    assert re.search(r"Model:\s+vgg", described)
    assert bad.code == 1 and "modle" in bad.err
    assert negative.code == 1
    assert strategic.code == 1


async def test_replace_edit_path_and_diff(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)

    same = await kubectl.run("diff", "-f", "-", stdin=CONFIG_MAP)
    other = await kubectl.run("diff", "-f", "-", stdin=CONFIG_MAP.replace("a: b", "a: c"))
    await kubectl.ok("replace", "-f", "-", stdin=CONFIG_MAP.replace("a: b", "a: z"))

    assert (same.code, other.code) == (0, 1)
    assert "+  a: c" in other.out
    assert (await get_json(kubectl, "cm", "cm"))["data"] == {"a": "z"}


async def test_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", "--dry-run=server", stdin=CONFIG_MAP)

    assert (await kubectl.run("get", "cm", "cm")).code == 1


async def test_apply_on_the_server_meets_conflicts_and_takes_over_client_side_objects(
    kubectl: Kubectl,
) -> None:
    server_side = ("apply", "--server-side", "-f", "-")
    changed = CONFIG_MAP.replace("a: b", "a: c")

    first = await kubectl.ok(*server_side, stdin=CONFIG_MAP)
    clash = await kubectl.run(*server_side, "--field-manager=other", stdin=changed)
    forced = await kubectl.ok(*server_side, "--field-manager=other", "--force-conflicts", stdin=changed)
    await kubectl.ok("delete", "cm", "cm")
    await kubectl.ok("apply", "-f", "-", stdin=CONFIG_MAP)
    await kubectl.ok(*server_side, stdin=changed)

    assert first == "configmap/cm serverside-applied\n" == forced
    assert clash.code == 1 and 'conflict with "kubectl"' in clash.err and ".data.a" in clash.err
    assert (await get_json(kubectl, "cm", "cm"))["data"] == {"a": "c"}


async def test_raw_paths(kubectl: Kubectl) -> None:
    assert await kubectl.ok("get", "--raw", "/healthz") == "ok"
    assert json.loads(await kubectl.ok("get", "--raw", "/version"))["major"] == "1"


async def test_logs_whole_tailed_and_followed(kubectl: Kubectl) -> None:
    if kubectl.server is None:
        pytest.skip("the log files of a real node are out of reach")
    await kubectl.ok("apply", "-f", "-", stdin=POD.replace("spec:", "spec:\n  nodeName: n1"))
    uid = (await get_json(kubectl, "pod", "p"))["metadata"]["uid"]
    folder = kubectl.server.paths.pod_logs("default", "p", uid) / "main"
    folder.mkdir(parents=True)
    file = folder / "0.log"
    file.write_text("".join(f"2026-01-01T00:00:0{n}.000000000Z stdout F line {n}\n" for n in range(5)))

    async def report(state: str) -> None:
        status = {"containerStatuses": [{"name": "main", "restartCount": 0, "state": {state: {}}}]}
        patch = json.dumps({"status": {"phase": "Running", **status}})
        await kubectl.ok("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", patch)

    await report("running")
    assert await kubectl.ok("logs", "p") == "".join(f"line {n}\n" for n in range(5))
    assert await kubectl.ok("logs", "p", "--tail=2") == "line 3\nline 4\n"
    assert (await kubectl.ok("logs", "-l", "app=x", "--tail=1", "--prefix")).endswith("line 4\n")
    following = await kubectl.start("logs", "-f", "p", "--tail=1")
    assert following.stdout is not None
    assert await asyncio.wait_for(following.stdout.readline(), 60) == b"line 4\n"
    with file.open("a") as more:
        more.write("2026-01-01T00:00:09.000000000Z stdout F last\n")
    await report("terminated")
    rest, _ = await asyncio.wait_for(following.communicate(), 60)
    assert (following.returncode, rest) == (0, b"last\n")
