"""``kubectl top`` against the embedded server; a real one has no metrics without a metrics server."""

import json
import os
import re
import time
from typing import Any

import pytest

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: x}}
spec:
  nodeName: n1
  automountServiceAccountToken: false
  schedulerName: nobody
  containers: [{name: main, image: gangline/base}]
"""
NODE = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}'
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}


async def test_top_shows_what_pods_and_nodes_use(kubectl: Any) -> None:
    if kubectl.server is None:
        pytest.skip("the cluster runs no metrics server")
    await kubectl.ok("apply", "-f", "-", stdin=NODE)
    status = json.dumps({"status": {"capacity": CAPACITY, "allocatable": CAPACITY}})
    await kubectl.ok("patch", "node", "n1", "--subresource=status", "--type=merge", "-p", status)
    for name in ("runs", "waits"):
        await kubectl.ok("apply", "-f", "-", stdin=POD.replace("NAME", name))
    uid = json.loads(await kubectl.ok("get", "pod", "runs", "-o", "json"))["metadata"]["uid"]
    folder = kubectl.server.paths.pods / uid
    folder.mkdir(parents=True)
    # the process of this test stands in for a container's
    main = {"name": "main", "state": "running", "pid": os.getpid(), "started_at": time.time() - 60}
    done = {"name": "done", "state": "exited", "pid": 1, "started_at": 0.0}
    state = {"pid": os.getppid(), "containers": {"done": done, "main": main}}
    (folder / "state.json").write_text(json.dumps(state))

    row = re.compile(r"^runs +\d+m +[1-9]\d*Mi")
    assert row.match(await kubectl.ok("top", "pods", "--no-headers"))
    assert row.match(await kubectl.ok("top", "pods", "-l", "app=x", "--no-headers"))
    assert (await kubectl.ok("top", "pod", "runs", "--containers", "--no-headers")).split()[:2] == [
        "runs",
        "main",
    ]
    assert re.match(r"^n1 +\d+m +\d+% +[1-9]\d*Mi +\d+%", await kubectl.ok("top", "nodes", "--no-headers"))
    assert "NotFound" in (await kubectl.run("top", "pod", "waits")).err
    assert (await kubectl.ok("get", "pods", "-o", "name")).split() == ["pod/runs", "pod/waits"]
