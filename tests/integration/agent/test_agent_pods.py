"""A pod from binding to its end, in every isolation mode: what it sees, what it says, how it ends."""

import base64
import stat

import pytest

from gangline.api.resources import CONFIG_MAPS, SECRETS


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
