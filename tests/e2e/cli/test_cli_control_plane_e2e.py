"""The one-machine cluster on either control plane: our own server, and Kubernetes' programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PLANES = ("own", pytest.param("kubernetes", marks=pytest.mark.kubernetes))
KUBECTL_TIMEOUT_S = 90
Until = Callable[[Callable[[], object], str], None]
GANG = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: gang}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - {name: main, image: gangline/base, command: [mpirun, sh, -c, 'echo rank; sleep 600']}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: main, image: gangline/base}]}}
"""


class OnPlane:
    """Commands, and kubectl, on a cluster with that control plane."""

    def __init__(self, commands: Any, plane: str) -> None:
        self._commands, self.plane = commands, plane
        self.home: Path = commands.home
        self.environment = commands.environment | {"KUBECONFIG": str(self.home / "default" / "kubeconfig")}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = self._commands(*words)
        return done

    def up(self) -> None:
        done = self("up", "--nodes", "2", "--control-plane", self.plane)
        assert done.returncode == 0, done.stderr

    def kubectl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", f"--cache-dir={self.home}/cache", *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_S,
            check=False,
        )

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.kubectl(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ok("get", kind, "-o", "json"))["items"]
        return found


@pytest.fixture(params=PLANES, scope="module")
def on(request: pytest.FixtureRequest, commands_of: Callable[[Path], Any]) -> Iterator[OnPlane]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    home = Path(tempfile.mkdtemp(prefix="gangline-plane-"))
    commands = OnPlane(commands_of(home), request.param)
    try:
        commands.up()
        yield commands
    finally:
        commands("down", "--purge")
        shutil.rmtree(home, ignore_errors=True)


def start_pod(on: OnPlane, name: str, *command: str) -> None:
    on.ok("run", name, "--image=gangline/base", "--restart=Never", "--", *command)
    on.ok("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def test_a_gang_runs_and_ends_with_its_code(on: OnPlane) -> None:
    done = on("run", "-n", "2", "--name", "two", "--", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK")

    assert sorted(line[-6:] for line in done.stdout.splitlines()) == ["rank 0", "rank 1"], done.stderr
    assert "rank 1" in on("logs", "two").stdout
    assert on("run", "--", "sh", "-c", "exit 3").returncode == 3


def test_a_deleted_job_takes_all_that_it_had_with_it(on: OnPlane, until: Until) -> None:
    on.ok("apply", "-f", "-", stdin=GANG)
    until(lambda: on("logs", "gang").stdout.count("rank") == 2, "two ranks")

    on.ok("delete", "mpijob", "gang")

    kinds = ("pods", "jobs", "services", "configmaps", "secrets")

    def left() -> list[str]:
        owned = [one for kind in kinds for one in on.objects(kind) if one["metadata"].get("ownerReferences")]
        return [one["metadata"]["name"] for one in owned if one["metadata"]["name"].startswith("gang")]

    until(lambda: not left(), "nothing left of the job")


def test_a_program_of_a_pod_is_reached(on: OnPlane) -> None:
    start_pod(on, "open", "sh", "-c", "echo first; exec sleep 600")

    assert on.ok("logs", "open") == "first\n"
    done = on.kubectl("exec", "-i", "open", "--", "sh", "-c", "cat; echo err >&2; exit 3", stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (3, "in\n", "err")
    source = on.home / "source"
    source.write_bytes(os.urandom(3_000_000))
    on.ok("cp", str(source), "open:/tmp/copy")
    on.ok("cp", "open:/tmp/copy", str(on.home / "back"))
    assert (on.home / "back").read_bytes() == source.read_bytes()


def test_followed_logs_end_with_the_pod(on: OnPlane, until: Until) -> None:
    on.ok(
        "run", "soon", "--image=gangline/base", "--restart=Never", "--", "sh", "-c", "echo a; sleep 1; echo b"
    )
    until(lambda: on.kubectl("logs", "soon").returncode == 0, "the log")

    assert on.ok("logs", "-f", "soon") == "a\nb\n"


def test_a_service_leads_to_its_pods_by_name_address_and_port_of_the_node(on: OnPlane, until: Until) -> None:
    if json.loads((on.home / "default" / "agent.json").read_text())["isolation"] != "network":
        pytest.skip("addresses of services lead somewhere in network isolation alone")
    on.ok("run", "shop", "--image=gangline/base", "--restart=Never", "--", "python3", "-m", "http.server")
    on.ok("expose", "pod", "shop", "--port=80", "--target-port=8000", "--type=NodePort", "--name=store")
    start_pod(on, "client", "sleep", "600")
    (service,) = [one for one in on.objects("services") if one["metadata"]["name"] == "store"]
    spec = service["spec"]
    first = on.objects("nodes")[0]["status"]["addresses"][0]["address"]
    places = [f"{spec['clusterIP']}:80", "store:80", f"{first}:{spec['ports'][0]['nodePort']}"]
    asks = "from urllib.request import urlopen; print(urlopen('http://{}', timeout=5).status)"

    for place in places:
        until(
            lambda place=place: on.kubectl("exec", "client", "--", "python3", "-c", asks.format(place)).stdout
            == "200\n",
            f"an answer of {place}",
        )


def test_a_port_of_a_pod_is_reached(on: OnPlane, until: Until) -> None:
    start_pod(on, "web", "python3", "-m", "http.server", "8000")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    forward = subprocess.Popen(
        ["kubectl", "port-forward", "web", f"{port}:8000"], env=on.environment, stdout=subprocess.DEVNULL
    )

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        until(answers, "an answer")
    finally:
        forward.terminate()
        forward.wait()


def test_a_pods_token_is_its_accounts(on: OnPlane) -> None:
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    ask = (
        f'curl -s --cacert {folder}/ca.crt -H "Authorization: Bearer $(cat {folder}/token)" '
        f"-H 'Content-Type: application/json' -d '{review}' "
        "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/selfsubjectreviews"
    )
    on.ok("run", "asks", "--image=gangline/base", "--restart=Never", "--", "sh", "-c", ask)
    on.ok("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/asks", "--timeout=60s")

    told = json.loads(on.ok("logs", "asks"))["status"]["userInfo"]
    assert told["username"] == "system:serviceaccount:default:default"
    assert told["extra"]["authentication.kubernetes.io/pod-name"] == ["asks"]


def test_what_was_created_is_there_after_a_new_start(on: OnPlane) -> None:
    on.ok("create", "configmap", "kept", "--from-literal=a=b")
    assert on("down").returncode == 0

    on.up()

    assert on.ok("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
    assert on("run", "--name", "again", "--", "echo", "on").stdout == "on\n"


def child(pid: int, program: str) -> int:
    """Return the process of a program whose parent is a process, 0 for none."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = entry.read_text().split("(", 1)[1].rsplit(") ", 1)
        except OSError:
            continue
        if name == program[:15] and int(fields.split()[1]) == pid:
            return int(entry.parent.name)
    return 0


@pytest.mark.kubernetes
@pytest.mark.parametrize("program", ["etcd", "kube-apiserver", "kube-controller-manager", "server"])
def test_a_killed_program_is_started_again(on: OnPlane, until: Until, program: str) -> None:
    if on.plane != "kubernetes":
        pytest.skip("the own server is one process")
    server = json.loads(on("status", "-o", "json").stdout)["processes"]["server"]["pid"]
    killed = server if program == "server" else child(server, program)
    on.ok("create", "configmap", program, "--from-literal=a=b")

    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        found = json.loads(on("status", "-o", "json").stdout or "{}").get("processes", {})
        now = found.get("server", {}).get("pid") or 0
        return (now if program == "server" else child(now, program)) not in (0, killed)

    until(is_back, f"another {program}")
    assert on("run", "--", "echo", "on").stdout.splitlines()[-1] == "on"  # mpirun may have needed another try
    assert on.ok("get", "configmap", program, "-o", "jsonpath={.data.a}") == "b"


def test_a_cluster_keeps_its_control_plane(fresh: Any) -> None:
    assert fresh("up").returncode == 0

    refused = fresh("up", "--control-plane", "kubernetes")

    assert refused.returncode == 2
    assert "`own`" in refused.stderr
    assert "--cluster NAME" in refused.stderr


def test_missing_programs_are_named_with_the_way_to_get_them(fresh: Any, tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\necho etcd Version: 3.4.1\n")
    (tmp_path / "etcd").chmod(0o755)
    fresh.environment |= {
        "KUBEBUILDER_ASSETS": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "PATH": "/bin",
    }

    refused = fresh("up", "--control-plane", "kubernetes")

    assert refused.returncode == 2
    assert "kube-apiserver, kube-controller-manager" in refused.stderr
    assert "make kubernetes" in refused.stderr
    for name in ("kube-apiserver", "kube-controller-manager"):
        (tmp_path / name).write_text("#!/bin/sh\necho Kubernetes v1.35.4\n")
        (tmp_path / name).chmod(0o755)
    assert "is version 3.4, 3.5 or newer is needed" in fresh("up", "--control-plane", "kubernetes").stderr
