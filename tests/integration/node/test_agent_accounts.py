"""What a pod is given of its service account, and what it may do with it."""

import pytest

from gangline.api.resources import EVENTS, NAMESPACES, SERVICE_ACCOUNTS
from gangline.kube.errors import Invalid

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
ASK = """
import asyncio, os
from gangline.api.resources import PODS
from gangline.kube.client import Client
from gangline.kube.config import in_cluster
from gangline.kube.errors import Forbidden

async def main():
    connection = in_cluster()
    async with Client(connection) as client:
        pod = await client.get(PODS, os.environ["GANGLINE_POD_NAME"], connection.namespace)
        print(connection.namespace, pod["metadata"]["name"])
        try:
            await client.list(PODS, "other")
        except Forbidden as error:
            print(error.status)

asyncio.run(main())
"""


async def test_pod_reads_itself_and_no_other_namespace(cluster):
    await cluster.create(NAMESPACES, "other", metadata={"namespace": ""})

    await cluster.create_pod("asker", "python", "-c", ASK)

    pod = await cluster.wait_phase("asker", "Succeeded", "Failed")
    assert (await cluster.logs("asker")).splitlines() == ["default asker", "403"], pod["status"]


async def test_files_are_those_of_every_cluster(cluster):
    await cluster.create_pod(
        "reader", "sh", "-c", f"ls {FOLDER}; cat {FOLDER}/namespace; head -1 {FOLDER}/ca.crt"
    )

    await cluster.wait_phase("reader", "Succeeded")
    told = (await cluster.logs("reader")).split("\n")
    assert told == ["ca.crt", "namespace", "token", "default-----BEGIN CERTIFICATE-----", ""]


@pytest.mark.parametrize("says_no", ["pod", "account"])
async def test_pods_that_shall_have_no_token_have_none(cluster, says_no):
    if cluster.mode == "plain":
        pytest.skip("the folder is the machine's own")
    fields = {"automountServiceAccountToken": False} if says_no == "pod" else {"serviceAccountName": "shy"}
    await cluster.create(SERVICE_ACCOUNTS, "shy", automountServiceAccountToken=False)

    await cluster.create_pod("reader", "sh", "-c", f"[ -e {FOLDER}/token ] && echo there; exit 0", **fields)

    await cluster.wait_phase("reader", "Succeeded")
    assert await cluster.logs("reader") == ""


async def test_pod_may_ask_for_a_token_against_its_account(cluster):
    await cluster.create(SERVICE_ACCOUNTS, "shy", automountServiceAccountToken=False)

    await cluster.create_pod(
        "asker",
        "python",
        "-c",
        ASK,
        serviceAccountName="shy",
        automountServiceAccountToken=True,
    )

    await cluster.wait_phase("asker", "Succeeded")


async def test_privileged_is_not_honoured_and_said_so(cluster):
    await cluster.create_pod(
        "mighty",
        "sh",
        "-c",
        "while read key value; do [ $key = CapBnd: ] && echo $value; done < /proc/self/status; exit 0",
        container={"securityContext": {"privileged": True}},
    )
    await cluster.create_pod(
        "humble",
        "sh",
        "-c",
        "while read key value; do [ $key = CapBnd: ] && echo $value; done < /proc/self/status; exit 0",
    )

    await cluster.wait_phase("mighty", "Succeeded")
    await cluster.wait_phase("humble", "Succeeded")
    assert await cluster.logs("mighty") == await cluster.logs("humble")

    async def warning():
        events = (await cluster.client.list(EVENTS, "default")).items
        return [event["message"] for event in events if event["reason"] == "PrivilegedIgnored"]

    (message,) = await cluster.wait_for(warning, "the warning")
    assert "container main runs without `privileged`" in message


@pytest.mark.parametrize("field", ["hostPID", "hostIPC"])
async def test_namespaces_of_the_machine_are_refused(cluster, field):
    with pytest.raises(Invalid, match=rf"spec\.{field}"):
        await cluster.create_pod("curious", "true", **{field: True})


async def test_binary_output_is_a_log_like_any_other(cluster):
    script = r"printf 'a\0b\377c\rd\n\0'; exit 3"

    await cluster.create_pod(
        "noisy", "sh", "-c", script, container={"terminationMessagePolicy": "FallbackToLogsOnError"}
    )

    pod = await cluster.wait_phase("noisy", "Failed")
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert message == "ab\ufffdc\rd\n"
    chunks = [chunk async for chunk in cluster.client.logs("noisy", "default", tail_lines=2)]
    assert b"".join(chunks) == b"a\0b\xffc\rd\n\0\n"


async def test_token_can_be_read_by_any_user_of_the_pod(cluster):
    folder = "$GANGLINE_SERVICE_ACCOUNT" if cluster.mode == "plain" else FOLDER

    await cluster.create_pod(
        "reader", "sh", "-c", f"[ -r {folder}/token ] && id -u", securityContext={"runAsUser": 1000}
    )

    await cluster.wait_phase("reader", "Succeeded")
    uid = await cluster.logs("reader")
    assert cluster.mode != "network" or uid == "1000\n"
