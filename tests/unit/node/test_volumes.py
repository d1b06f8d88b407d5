"""Volumes: what files they hold, and how updates reach the folder."""

import base64
import stat

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod, Secret
from gangline.api.volumes import HostPathVolume
from gangline.cluster.node.pods.container_env import Lookup, PodFacts
from gangline.cluster.node.pods.volumes import (
    MountError,
    ProjectedFile,
    TokenSource,
    check_host_path,
    plan_volume,
    write_projection,
)

CONFIG_MAPS = {
    "cm": ConfigMap(data={"a": "A", "b": "B"}, binary_data={"bin": base64.b64encode(b"\x00").decode()})
}
SECRETS = {"s": Secret(data={"key": base64.b64encode(b"private").decode()})}
FACTS = PodFacts("10.0.0.5", "10.0.0.1", {})


def plan(volume: dict, token="tok", folder_of="{} is not there".format):
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "labels": {"x": "1", "a": 'q"'}},
            "spec": {"volumes": [{"name": "v"} | volume], "containers": [{"name": "c"}]},
        },
        Pod,
    )
    lookup = Lookup(CONFIG_MAPS.get, SECRETS.get, folder_of)
    return plan_volume(
        pod,
        pod.spec.volumes[0],
        FACTS,
        lookup,
        TokenSource(lambda *_: token, lambda: b"CA"),
    )


def files(volume: dict, **options):
    return {name: (file.data, file.mode) for name, file in plan(volume, **options).files.items()}


def test_config_map_gives_every_key_with_mode_0644():
    assert files({"configMap": {"name": "cm"}}) == {
        "a": (b"A", 0o644),
        "b": (b"B", 0o644),
        "bin": (b"\0", 0o644),
    }


def test_items_choose_keys_paths_and_modes():
    items = [{"key": "a", "path": "x/y", "mode": 0o400}]

    assert files({"configMap": {"name": "cm", "items": items, "defaultMode": 0o755}}) == {
        "x/y": (b"A", 0o400)
    }


def test_secret_is_decoded_and_has_its_default_mode():
    assert files({"secret": {"secretName": "s", "defaultMode": 0o600}}) == {"key": (b"private", 0o600)}


def test_downward_api_gives_labels_sorted_and_quoted():
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]

    assert files({"downwardAPI": {"items": items}})["labels"][0] == b'a="q\\""\nx="1"'


def test_projected_volume_joins_token_certificate_and_namespace():
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]

    found = files({"projected": {"sources": sources}})

    assert {name: data for name, (data, _) in found.items()} == {
        "token": b"tok",
        "ca.crt": b"CA",
        "namespace": b"ns",
    }


@pytest.mark.parametrize(
    ("volume", "want"),
    [
        ({"configMap": {"name": "no"}}, 'configmap "no" not found'),
        (
            {"configMap": {"name": "cm", "items": [{"key": "z", "path": "z"}]}},
            "references non-existent key: z",
        ),
        ({"secret": {"secretName": "no"}}, 'secret "no" not found'),
        (
            {"configMap": {"name": "cm", "items": [{"key": "a", "path": "../a"}]}},
            "must stay inside the volume",
        ),
        ({"persistentVolumeClaim": {"claimName": "data"}}, "data is not there"),
    ],
)
def test_what_cannot_be_mounted_says_why(volume, want):
    with pytest.raises(MountError, match=want):
        plan(volume)


def test_optional_config_map_that_is_missing_is_an_empty_volume():
    assert files({"configMap": {"name": "no", "optional": True}}) == {}


@pytest.mark.parametrize(
    ("empty_dir", "want"),
    [({}, None), ({"medium": "Memory"}, 0), ({"medium": "Memory", "sizeLimit": "1Mi"}, 1 << 20)],
)
def test_empty_dir_in_memory_has_its_limit_in_bytes(empty_dir, want):
    assert plan({"emptyDir": empty_dir}).memory_bytes == want


def test_update_swaps_one_link_and_removes_old_names(tmp_path):
    write_projection(tmp_path, {"a": ProjectedFile(b"1", 0o644), "d/b": ProjectedFile(b"1", 0o400)})
    before = (tmp_path / "..data").readlink()

    changed = write_projection(tmp_path, {"a": ProjectedFile(b"2", 0o644)})

    assert changed
    assert (tmp_path / "a").read_bytes() == b"2"
    assert (tmp_path / "..data").readlink() != before
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("..")) == ["a"]
    assert len(list(tmp_path.iterdir())) == 3


def test_same_files_change_nothing(tmp_path):
    files = {"a": ProjectedFile(b"1", 0o400)}
    write_projection(tmp_path, files)

    assert not write_projection(tmp_path, files)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o400


@pytest.mark.parametrize("path", ["state", "state/sessions", "link", "link/sessions", "free/../state"])
def test_a_host_path_leads_to_no_private_folder(tmp_path, path):
    for name in ("state/sessions", "free"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("state")
    private = [str(tmp_path / "state")]

    check_host_path(HostPathVolume(path=str(tmp_path / "free")), private)
    with pytest.raises(MountError, match="among the files of a cluster"):
        check_host_path(HostPathVolume(path=str(tmp_path / path)), private)


def test_a_claim_is_the_folder_that_its_volume_names_or_the_reason_why_not():
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    folder = HostPathVolume(path="/srv/data", type="Directory")

    assert plan(claim, folder_of={"c": folder}.get).host == folder
    with pytest.raises(MountError, match="not bound yet"):
        plan(claim, folder_of=lambda name: f'claim "{name}" is not bound yet')
