"""Reading and writing of manifests: places, strictness, bounds. Not: what the objects mean."""

import pytest
from msgspec.structs import replace

from gangline.api import codec
from gangline.errors import FieldError, ManifestError

JOB = """\
# a comment
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: pi
  labels: {team.example.com/name: blue}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Worker:
      replicas: 4
      template:
        spec:
          containers:
          - name: a
          - name: b
            image: x
"""


def load_one(text: str | bytes) -> codec.Document:
    (document,) = codec.load_documents(text, file="job.yaml")
    return document


def broken(text: str | bytes) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        codec.load_documents(text, file="job.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("spec.slotsPerWorker", "job.yaml:8:19"),
        ("spec.mpiReplicaSpecs[Worker].replicas", "job.yaml:11:17"),
        ("spec.mpiReplicaSpecs.Worker.template", "job.yaml:12:7"),
        ("spec.mpiReplicaSpecs[Worker].template.spec.containers[1].image", "job.yaml:17:20"),
        ("spec.mpiReplicaSpecs[Worker].template.spec.containers[1]", "job.yaml:16:13"),
        ("metadata.labels[team.example.com/name]", "job.yaml:6:35"),
        ("spec.mpiReplicaSpecs[Launcher].replicas", "job.yaml:9:3"),
        ("spec.mpiReplicaSpecs[Worker].template.spec.containers[7].name", "job.yaml:14:11"),
    ],
)
def test_locate_gives_line_and_column_of_the_field_or_its_nearest_parent(path: str, want: str) -> None:
    assert load_one(JOB).locate(path) == want


def test_locate_points_at_the_key_of_an_unknown_field() -> None:
    document = load_one("a: 1\nspce: {x: 1}\nslots: 2\n")

    (placed,) = document.place([FieldError("Invalid", "slots", "any words", is_unknown=True)])

    assert placed.where == "job.yaml:3:1"
    assert str(placed).endswith("at job.yaml:3:1")


def test_document_knows_its_identity() -> None:
    document = load_one(JOB)

    assert (document.api_version, document.kind, document.name) == ("kubeflow.org/v2beta1", "MPIJob", "pi")
    assert document.line == 2


def test_several_documents_are_read_in_order_and_empty_ones_passed_over() -> None:
    documents = codec.load_documents("---\n---\nkind: A\n---\n# nothing\n---\nkind: B\n")

    assert [document.kind for document in documents] == ["A", "B"]
    assert [document.line for document in documents] == [3, 7]


def test_a_list_is_taken_apart_with_the_places_of_its_items() -> None:
    documents = codec.load_documents("kind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n  x: 2\n", file="f")

    assert [document.value for document in documents] == [{"kind": "A", "x": 1}, {"kind": "B", "x": 2}]
    assert documents[1].locate("x") == "f:6:6"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a: 1\na: 2\n", "job.yaml:2:1", "`a` appears twice"),
        ("a: b: c\n", "job.yaml:1:5", "mapping values are not allowed"),
        ("a:\n\t- 1\n", "job.yaml:2:1", "cannot start any token"),
        ("a: [1, 2\nb: 3\n", "job.yaml:2:2", "did not find expected ',' or ']'"),
        ("a: !!python/object:os.system x\n", "job.yaml:1:4", "is not allowed"),
        ("a: &x [*x]\n", "job.yaml:1:8", "contains itself"),
        ("- 1\n", "job.yaml:1:1", "must be an object"),
        ("a: .inf\n", "job.yaml:1:4", "cannot be written in JSON"),
        (b"a: 1\nb: \xff\n", "job.yaml:2:1", "not UTF-8"),
        ("? [a]\n: 1\n", "job.yaml:1:3", "key must be plain text"),
        ("a: 1\nb: \x01\n", "job.yaml:2:1", "not allowed"),
    ],
)
def test_broken_yaml_is_refused_with_its_place(text: str | bytes, where: str, words: str) -> None:
    error = broken(text)

    assert error.where == where
    assert words in error.message
    assert error.exit_code == 2


def test_a_tab_in_the_indentation_is_named() -> None:
    assert "tab" in broken("a:\n\t- 1\n").hint


@pytest.mark.parametrize(
    "text", ["[" * 300_000, "a: " + "{b: " * 100_000, "- " * 50_000, "[" * 200 + "]" * 200]
)
def test_deep_nesting_is_refused_and_harmless(text: str) -> None:
    """libyaml from 0.2.6 on has a bound of its own, which long flows reach while it looks ahead."""
    said = broken(text).message
    assert "nested more than" in said or "exceeded maximum nesting depth" in said


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a: &a [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)]

    assert "values, aliases counted" in broken("\n".join(lines)).message


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MANIFEST", replace(codec.MANIFEST, bytes_max=10))

    assert broken("a: 1234567890").message == "at most 10 bytes are read, found 13"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1e3", 1000),
        ("2.5", 2.5),
        ("0644", 420),
        ("22:22", "22:22"),
        ("2026-01-01", "2026-01-01"),
        ("yes", True),
        ("null", None),
        ("'1'", "1"),
        ("1.2.3", "1.2.3"),
        ("1_000", 1000),
        ("500m", "500m"),
    ],
)
def test_scalars_mean_what_kubectl_takes_them_for(text: str, want: object) -> None:
    assert load_one(f"a: {text}").value == {"a": want}


def test_merge_keys_give_way_to_what_is_written() -> None:
    document = load_one("base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\n")

    assert document.value["other"] == {"x": 1, "y": 3}


def test_numbers_as_keys_become_text() -> None:
    assert load_one("a: {1: x, true: y}").value == {"a": {"1": "x", "true": "y"}}


def test_json_is_read_as_well() -> None:
    assert load_one('{\n\t"kind": "A", "x": [1, 2.5, null, true]\n}').value == {
        "kind": "A",
        "x": [1, 2.5, None, True],
    }


def test_a_missing_file_is_a_manifest_error() -> None:
    with pytest.raises(ManifestError, match=r"cannot read `/nowhere/job.yaml`: No such file"):
        codec.load_file("/nowhere/job.yaml")


@pytest.mark.parametrize(
    "text", ["1e3", "yes", "22:22", "0644", "null", "", "1_0", "a: b", "# x", "y", "two\nlines\n"]
)
def test_dumped_text_stays_text(text: str) -> None:
    dumped = codec.dump_yaml({"value": text})

    assert load_one(dumped).value == {"value": text}


def test_dump_keeps_the_order_and_prints_lines_as_a_block() -> None:
    dumped = codec.dump_yaml({"kind": "A", "b": [1], "a": "x\ny\n"}, {"kind": "B"})

    assert dumped == "kind: A\nb:\n- 1\na: |\n  x\n  y\n---\nkind: B\n"


def test_dump_repeats_what_appears_twice() -> None:
    shared = {"x": 1}

    assert "&" not in codec.dump_yaml({"a": shared, "b": shared})
