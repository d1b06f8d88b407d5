"""A pod from binding to its end, in every isolation mode: what it sees, what it says, how it ends."""

import base64
import sys

import pytest

from gangline.api.resources import CONFIG_MAPS, EVENTS, SECRETS


async def test_pod_sees_its_files_and_variables_and_its_exit_code_is_reported(cluster):
    await cluster.create(CONFIG_MAPS, "settings", data={"rate": "0.1", "text": "from the map"})
    await cluster.create(SECRETS, "key", data={"id": base64.b64encode(b"private").decode()})
    script = """
    cat /etc/settings/text; echo
    cat "$KEY_FILE"; stat -L -c ' %a' "$KEY_FILE"
    echo scratch > /scratch/file && cat /scratch/file
    echo "$RATE $BOTH $POD_NAME $POD_IP $(hostname)"
    echo trouble >&2
    exit 3
    """
    await cluster.create_pod(
        "first",
        "sh",
        "-c",
        script,
        container={
            "env": [
                {"name": "RATE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "rate"}}},
                {"name": "BOTH", "value": "rate=$(RATE)"},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "KEY_FILE", "value": "/keys/id"},
            ],
            "volumeMounts": [
                {"name": "settings", "mountPath": "/etc/settings"},
                {"name": "keys", "mountPath": "/keys"},
                {"name": "scratch", "mountPath": "/scratch"},
            ],
        },
        volumes=[
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "keys", "secret": {"secretName": "key", "defaultMode": 0o400}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    )

    pod = await cluster.wait_phase("first", "Failed")

    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    lines = (await cluster.logs("first")).splitlines()
    name = "first" if cluster.mode != "plain" else lines[3].split()[-1]
    assert lines == [
        "from the map",
        "private 400",
        "scratch",
        f"0.1 rate=0.1 first {pod['status']['podIP']} {name}",
        "trouble",
    ]


HELLO = """
from mpi4py import MPI
import os
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank + 1)
names = comm.gather(os.environ["GANGLINE_POD_NAME"])
if comm.rank == 0:
    print("sum", total, *sorted(names), flush=True)
"""


async def test_mpirun_puts_one_rank_into_each_of_two_pods(cluster):
    if cluster.images.mpi is None:
        pytest.skip("no MPI on this machine")
    await cluster.create(
        CONFIG_MAPS, "job", data={"hostfile": "w-0.ring slots=1\nw-1.ring slots=1\n", "a.py": HELLO}
    )
    mounted = {"volumeMounts": [{"name": "job", "mountPath": "/etc/mpi"}]}
    volumes = [{"name": "job", "configMap": {"name": "job"}}]
    for name in ("w-0", "w-1"):
        host = {"hostname": name, "subdomain": "ring"}
        await cluster.create_pod(name, "sleep", "600", container=mounted, volumes=volumes, **host)
    words = ("--hostfile", "/etc/mpi/hostfile", "-n", "2", sys.executable, "/etc/mpi/a.py")
    await cluster.create_pod("launcher", "mpirun", *words, container=mounted, volumes=volumes)

    await cluster.wait_phase("launcher", "Succeeded", "Failed")

    # Open MPI warns before it, now and then: a race over process groups, or a shell that it does not know.
    assert (await cluster.logs("launcher")).splitlines()[-1] == "sum 3 w-0 w-1"


async def test_a_name_of_253_characters_runs_and_is_logged(cluster):
    name = "p" * 253
    await cluster.create_pod(name, "echo", "here")

    await cluster.wait_phase(name, "Succeeded")

    assert await cluster.logs(name) == "here\n"


async def test_a_volume_shows_nothing_of_the_clusters_own_files(cluster):
    def spec(path):
        mount = {"name": "host", "mountPath": "/host"}
        return {
            "container": {"volumeMounts": [mount]},
            "volumes": [{"name": "host", "hostPath": {"path": str(path)}}],
        }

    state = cluster.paths.state
    await cluster.create_pod("refused", "true", **spec(state / "sessions"))
    await cluster.create_pod("around", "ls", "-A", f"/host/{state.name}", **spec(state.parent))

    async def is_refused():
        events = (await cluster.client.list(EVENTS, "default")).items
        return [
            event["message"]
            for event in events
            if event["involvedObject"]["name"] == "refused"
            and "among the files of a cluster" in event["message"]
        ]

    assert await cluster.wait_for(is_refused, "the refusal")
    await cluster.wait_phase("around", "Succeeded", "Failed")
    if cluster.mode != "plain":  # where programs see the machine's files, with the user's own rights
        assert await cluster.logs("around") == ""


HEALTH_SERVER = """
import os, socket
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

listening = socket.create_server((os.environ["POD_IP"], 50051))
while True:
    peer, _ = listening.accept()
    connection, asked, data = H2Connection(H2Configuration(client_side=False)), b"", b""
    connection.initiate_connection()
    peer.sendall(connection.data_to_send())
    while data := peer.recv(65536):
        for event in connection.receive_data(data):
            if isinstance(event, DataReceived):
                asked += event.data
            elif isinstance(event, StreamEnded):
                connection.send_headers(event.stream_id, [(":status", "200")])
                status = 1 + asked.endswith(b"trainer")
                connection.send_data(event.stream_id, bytes([0, 0, 0, 0, 2, 8, status]))
                connection.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
        peer.sendall(connection.data_to_send())
"""
"""It serves, but for its service `trainer`."""


async def test_grpc_probes_let_start_what_serves_and_end_what_does_not(cluster):
    action = {"port": 50051}
    container = {
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "startupProbe": {"grpc": action, "periodSeconds": 1, "failureThreshold": 60, "timeoutSeconds": 10},
        "livenessProbe": {
            "grpc": {**action, "service": "trainer"},
            "failureThreshold": 1,
            "timeoutSeconds": 60,
            "terminationGracePeriodSeconds": 1,
        },
    }
    await cluster.create_pod("served", sys.executable, "-c", HEALTH_SERVER, container=container)

    pod = await cluster.wait_phase("served", "Failed")

    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] in (137, 143)
    told = [event["message"] for event in (await cluster.client.list(EVENTS)).items]
    assert 'Liveness probe failed: service unhealthy (responded with "NOT_SERVING")' in told
    assert "Container main failed liveness probe, will be restarted" in told
