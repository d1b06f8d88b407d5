"""A token of a service account ends with the pod that it was made for, and with its account."""

from typing import Any

import pytest

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/runner"
PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m", "image": "i"}]}}


async def is_taken(api: Any, token: str) -> bool:
    review = await api.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    status, _ = await api.request("GET", PODS, token=token)
    assert review["status"]["authenticated"] is (status == 200)
    return bool(status == 200)


@pytest.fixture
async def account(api: Any) -> str:
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "runner"}})
    return ACCOUNT


async def test_a_token_bound_to_a_pod_ends_with_it(api: Any, account: str) -> None:
    await api.create(PODS, POD)
    spec = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}
    token = (await api.create(f"{account}/token", {"spec": spec}))["status"]["token"]

    assert await is_taken(api, token)
    await api.delete(f"{PODS}/p", gracePeriodSeconds="0")
    assert not await is_taken(api, token)
    await api.create(PODS, POD)  # another pod of that name
    assert not await is_taken(api, token)


async def test_a_token_ends_with_its_account(api: Any, account: str) -> None:
    token = (await api.create(f"{account}/token", {}))["status"]["token"]

    assert await is_taken(api, token)
    await api.delete(account)
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "runner"}})
    assert not await is_taken(api, token)


@pytest.mark.parametrize(("seconds", "code"), [(599, 422), (600, 201), (1 << 33, 422)])
async def test_a_token_lives_ten_minutes_at_least(api: Any, account: str, seconds: int, code: int) -> None:
    status, _ = await api.request("POST", f"{account}/token", {"spec": {"expirationSeconds": seconds}})

    assert status == code
