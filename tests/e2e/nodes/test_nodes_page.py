"""The page's Deployment on two real nodes, in its own image: users sign in through a forwarded port."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodes import Nodes

MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "page.yaml"
OWN = ("-n", "gangline-page")


def sign_in(origin: str, token: str) -> Any:
    request = urllib.request.Request(
        f"{origin}/sign-in",
        json.dumps({"token": token}).encode(),
        {"Content-Type": "application/json", "Origin": origin, "X-Gangline": "-"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_a_user_signs_in_at_a_pod_that_has_no_rights(
    nodes: Nodes, archives: list[Path], kubectl: Callable[..., str]
) -> None:
    (ours,) = (one for one in archives if one.name.startswith("gangline-page-"))
    nodes.load(ours)
    kubectl("apply", "-f", str(MANIFEST))
    try:
        kubectl(*OWN, "rollout", "status", "deployment/gangline-page", "--timeout=90s")
        token = kubectl("-n", "default", "create", "token", "default").strip()
        words = ["kubectl", "--kubeconfig", str(nodes.kubeconfig), *OWN, "port-forward"]
        with subprocess.Popen(
            [*words, "service/gangline-page", ":80"], stdout=subprocess.PIPE, text=True
        ) as forward:
            try:
                assert forward.stdout
                # Forwarding from 127.0.0.1:41643 -> 8080
                found = re.search(r"127\.0\.0\.1:\d+", forward.stdout.readline())
                assert found
                good, bad = (sign_in(f"http://{found[0]}", one) for one in (token, "wrong"))
            finally:
                forward.terminate()
        listing = "import os; print(*os.listdir('/var/run/secrets/kubernetes.io/serviceaccount'))"
        inside = kubectl(*OWN, "exec", "deploy/gangline-page", "--", "python3", "-c", listing)
        log = kubectl(*OWN, "logs", "deploy/gangline-page")
    finally:
        kubectl("delete", "-f", str(MANIFEST), "--wait=false")

    assert good["ok"] and good["message"] == "Signed in as system:serviceaccount:default:default."
    assert not bad["ok"] and "does not take this token" in bad["message"]
    assert [name for name in inside.split() if name[0] != "."] == ["ca.crt"]
    assert token not in log and "Traceback" not in log
