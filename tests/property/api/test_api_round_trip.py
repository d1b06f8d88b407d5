"""Manifests survive being written and read; broken ones never raise anything but a manifest error."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.api import codec
from gangline.api.mpijob_reading import read_mpijob
from gangline.errors import ManifestError

# What YAML can carry: no control characters, no lone surrogates.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=12)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9).map(lambda v: round(v, 3))
)
VALUES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(
    TEXT.filter(lambda key: key not in ("kind", "items", "<<")), VALUES, min_size=1, max_size=4
)


@given(OBJECTS)
def test_what_is_written_is_read_back(value: dict[str, Any]) -> None:
    (document,) = codec.load_documents(codec.dump_yaml(value))

    assert document.value == value


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        documents = codec.load_documents(text, file="f")
    except ManifestError as error:
        assert error.where.startswith("f")
    else:
        assert all(isinstance(document.value, dict) for document in documents)


FIELDS = st.sampled_from(
    ["spec", "metadata", "name", "mpiReplicaSpecs", "Worker", "Launcher", "template", "replicas", "env"]
)
TREES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(FIELDS, TREES, max_size=4))
def test_any_object_is_a_job_or_has_errors_with_paths(document: dict[str, Any]) -> None:
    read = read_mpijob(document)

    assert all(error.path and error.reason and error.message for error in read.errors)
    paths = [(error.path, error.reason) for error in read.errors]
    assert len(paths) == len(set(paths))
