"""ResourceQuotas and LimitRanges: what is counted, refused, filled in and told."""

import asyncio
from typing import Any

import pytest

Api = Any
"""The client of conftest.py."""

CORE = "/api/v1/namespaces/default"
TOLD_S = 10.0


def pod(name: str, *, spec: dict[str, Any] | None = None, **resources: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "gangline/base", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **(spec or {})}}


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}


async def told(api: Api, **used: str) -> None:
    """Wait until the status of the quota tells this."""
    wanted = {name.replace("__", "/").replace("_", "."): amount for name, amount in used.items()}
    async with asyncio.timeout(TOLD_S):
        while (await api.get(f"{CORE}/resourcequotas/q")).get("status", {}).get("used") != wanted:
            await asyncio.sleep(0.01)


async def test_what_a_quota_bounds_is_counted_from_the_first_object_on(api: Api) -> None:
    await api.create(f"{CORE}/pods", pod("before", requests={"cpu": "500m"}, limits={"memory": "1Gi"}))
    await api.create(f"{CORE}/configmaps", {"metadata": {"name": "before"}})
    bound = {"pods": "2", "requests.cpu": "1", "limits.memory": "2Gi", "configmaps": "1"}
    await api.create(f"{CORE}/resourcequotas", quota({**bound, "count/jobs.batch": "1"}))

    await told(api, pods="1", requests_cpu="500m", limits_memory="1Gi", configmaps="1", count__jobs_batch="0")
    status, answer = await api.request("POST", f"{CORE}/configmaps", {"metadata": {"name": "more"}})
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'configmaps "more" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, '
        "limited: configmaps=1"
    )
    big = pod("big", requests={"cpu": "501m"}, limits={"memory": "1Gi"})
    status, answer = await api.request("POST", f"{CORE}/pods", big)
    assert status == 403 and answer["message"].endswith(
        "exceeded quota: q, requested: requests.cpu=501m, used: requests.cpu=500m, limited: requests.cpu=1"
    )
    status, answer = await api.request("POST", f"{CORE}/pods", pod("silent"))
    assert status == 403 and answer["message"].endswith(
        "failed quota: q: must specify limits.memory for: c; requests.cpu for: c"
    )


async def test_a_pod_that_has_ended_and_one_that_is_gone_take_nothing(api: Api) -> None:
    await api.create(f"{CORE}/resourcequotas", quota({"pods": "1", "count/pods": "2"}))
    await api.create(f"{CORE}/pods", pod("a"))
    assert (await api.request("POST", f"{CORE}/pods", pod("b")))[0] == 403

    await api.patch(f"{CORE}/pods/a/status", {"status": {"phase": "Succeeded"}})
    await told(api, pods="0", count__pods="1")
    await api.create(f"{CORE}/pods", pod("b"))
    await told(api, pods="1", count__pods="2")
    await api.delete(f"{CORE}/pods/b", gracePeriodSeconds="0")
    await told(api, pods="0", count__pods="1")


async def test_of_many_at_a_time_no_more_are_taken_than_fit(api: Api) -> None:
    await api.create(f"{CORE}/resourcequotas", quota({"secrets": "5"}))

    tries = [api.request("POST", f"{CORE}/secrets", {"metadata": {"name": f"s{n}"}}) for n in range(20)]
    answers = await asyncio.gather(*tries)

    assert sorted(status for status, _ in answers) == [201] * 5 + [403] * 15
    await told(api, secrets="5")


async def test_what_is_refused_otherwise_and_what_is_only_tried_takes_nothing(api: Api) -> None:
    await api.create(f"{CORE}/resourcequotas", quota({"services": "1"}))
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}

    await api.create(f"{CORE}/services", service, dryRun="All")
    assert (await api.request("POST", f"{CORE}/services", service | {"spec": {"type": "No"}}))[0] == 422
    await api.create(f"{CORE}/services", service)

    await told(api, services="1")


@pytest.mark.parametrize(
    ("scope", "counted", "passed_by"),
    [
        ("Terminating", pod("a", spec={"activeDeadlineSeconds": 9}), pod("b")),
        ("NotTerminating", pod("a"), pod("b", spec={"activeDeadlineSeconds": 9})),
        ("BestEffort", pod("a"), pod("b", requests={"cpu": "1"})),
        ("NotBestEffort", pod("a", requests={"cpu": "1"}), pod("b")),
    ],
)
async def test_a_quota_with_a_scope_counts_the_pods_of_it(
    api: Api, scope: str, counted: Any, passed_by: Any
) -> None:
    await api.create(f"{CORE}/resourcequotas", quota({"pods": "5"}, scopes=[scope]))

    await api.create(f"{CORE}/pods", passed_by)
    await api.create(f"{CORE}/pods", counted)

    await told(api, pods="1")


async def test_another_bound_holds_at_once_and_is_told(api: Api) -> None:
    await api.create(f"{CORE}/resourcequotas", quota({"secrets": "0"}))
    assert (await api.request("POST", f"{CORE}/secrets", {"metadata": {"name": "s"}}))[0] == 403

    await api.patch(f"{CORE}/resourcequotas/q", {"spec": {"hard": {"secrets": "1"}}})
    await api.create(f"{CORE}/secrets", {"metadata": {"name": "s"}})

    await told(api, secrets="1")
    assert (await api.get(f"{CORE}/resourcequotas/q"))["status"]["hard"] == {"secrets": "1"}


def limits(**item: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [item]}}


async def test_a_limit_range_fills_in_what_containers_leave_open(api: Api) -> None:
    made = await api.create(
        f"{CORE}/limitranges",
        limits(type="Container", min={"cpu": "50m"}, max={"cpu": "2"}, defaultRequest={"cpu": "100m"}),
    )
    assert made["spec"]["limits"][0]["default"] == {"cpu": "2"}

    silent = await api.create(f"{CORE}/pods", pod("silent"))
    says = await api.create(f"{CORE}/pods", pod("says", requests={"cpu": "1"}, limits={"cpu": "1"}))

    filled = {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}
    assert silent["spec"]["containers"][0]["resources"] == filled
    assert silent["status"]["qosClass"] == "Burstable"
    assert silent["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    )
    assert says["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    assert "annotations" not in says["metadata"]


@pytest.mark.parametrize(
    ("item", "resources", "rule"),
    [
        ({"type": "Container", "min": {"cpu": "100m"}}, {"requests": {"cpu": "50m"}},
         "minimum cpu usage per Container is 100m, but request is 50m"),
        ({"type": "Container", "max": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}},
         "maximum memory usage per Container is 1Gi, but limit is 2Gi"),
        ({"type": "Pod", "max": {"cpu": "1"}}, {"requests": {"cpu": "1"}},
         "maximum cpu usage per Pod is 1.  No limit is specified"),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
         {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
         "cpu max limit to request ratio per Container is 2, but provided ratio is 3"),
    ],
)  # fmt: skip
async def test_a_pod_outside_the_bounds_of_a_limit_range_is_refused(
    api: Api, item: dict[str, Any], resources: dict[str, Any], rule: str
) -> None:
    await api.create(f"{CORE}/limitranges", limits(**item))

    status, answer = await api.request("POST", f"{CORE}/pods", pod("p", **resources))

    assert (status, answer["message"]) == (403, f'pods "p" is forbidden: {rule}')


async def test_a_claim_stays_within_a_limit_range_and_a_quota(api: Api) -> None:
    await api.create(f"{CORE}/limitranges", limits(type="PersistentVolumeClaim", max={"storage": "2Gi"}))
    hard = {"requests.storage": "3Gi", "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}
    await api.create(f"{CORE}/resourcequotas", quota(hard))

    def claim(name: str, size: str) -> dict[str, Any]:
        resources = {"requests": {"storage": size}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "fast"}
        return {"metadata": {"name": name}, "spec": spec}

    claims = f"{CORE}/persistentvolumeclaims"
    status, answer = await api.request("POST", claims, claim("large", "3Gi"))
    assert status == 403
    assert "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi" in answer["message"]
    await api.create(claims, claim("a", "2Gi"))
    status, answer = await api.request("POST", claims, claim("b", "2Gi"))
    assert status == 403 and answer["message"].endswith(
        "requested: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=2Gi, "
        "used: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=2Gi, "
        "limited: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=3Gi"
    )
