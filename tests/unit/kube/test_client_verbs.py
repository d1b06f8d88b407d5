"""Whatever stands in for the client takes what the client takes."""

import inspect

import pytest
from fake_client import FakeClient

from gangline.kube.client import Client
from gangline.kube.verbs import ObjectClient

PLAIN = {"request", "send"}  # the client's take more, which only kube/ needs
VERBS = sorted({name for name in dir(ObjectClient) if not name.startswith("_")} - PLAIN)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("stand_in", [Client, FakeClient])
def test_verbs_take_the_same_arguments(stand_in, verb):
    found, wanted = (inspect.signature(getattr(one, verb)).parameters for one in (stand_in, ObjectClient))

    assert [(one.name, one.kind) for one in found.values()] == [
        (one.name, one.kind) for one in wanted.values()
    ]
    optional = [
        {one.name for one in names.values() if one.default is not one.empty} for names in (found, wanted)
    ]
    assert optional[0] == optional[1]
