"""The tables of Kubernetes' own types and kinds, against the sources and the test data of their release."""

import importlib
import json
import shutil

import pytest

from gangline.api.wire_types import message_of_kind
from gangline.cluster.server.wire.protobuf import decode

KINDS_MIN = 80
"""Kinds of stable versions in the release, lists apart."""

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go and its modules"),
]


@pytest.fixture(scope="module")
def generator():
    return importlib.import_module("kubernetes_types")


@pytest.mark.parametrize("name", ["kubernetes_types", "kubernetes_descriptions", "served_kinds"])
def test_the_table_is_fresh(name):
    generator = importlib.import_module(name)

    assert generator.TABLE.read_text(encoding="utf-8") == generator.table()


def test_every_kind_is_decoded_from_protobuf_as_the_release_does(generator):
    api = generator.modules(generator.RELEASE, "api")["api"]
    checked = 0
    for path in sorted((api / "testdata" / "HEAD").glob("*.pb")):
        wanted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        group, _, version = wanted.get("apiVersion", "").rpartition("/")
        if message_of_kind(group, version, wanted.get("kind", "")) is not None:
            assert decode(path.read_bytes()) == wanted, path.name
            checked += 1
    assert checked >= KINDS_MIN
