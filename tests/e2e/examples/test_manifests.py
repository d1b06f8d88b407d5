"""The manifests of the examples carry the files that lie beside them."""

from __future__ import annotations

import base64
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def update_manifests():
    spec = spec_from_file_location("update_manifests", EXAMPLES / "update_manifests.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", ["01-digits", "03-pi", "04-mpich", "05-intel-mpi"])
def test_manifest_is_in_step_with_its_files(folder: str) -> None:
    """Run `python examples/update_manifests.py` when this fails."""
    manifest = EXAMPLES / folder / "mpijob.yaml"

    assert manifest.read_text() == update_manifests().updated(EXAMPLES / folder)


@pytest.mark.parametrize(
    "manifest", sorted(EXAMPLES.glob("*/mpijob.yaml")), ids=lambda path: path.parent.name
)
def test_manifest_mounts_what_it_carries(manifest: Path) -> None:
    job, config_map = yaml.safe_load_all(manifest.read_text())
    for name, text in config_map.get("data", {}).items():
        assert (manifest.parent / name).read_text() == text
    for name, encoded in config_map.get("binaryData", {}).items():
        assert (manifest.parent / name).read_bytes() == base64.b64decode(encoded, validate=True)
    assert job["kind"] == "MPIJob"
    for replica in job["spec"]["mpiReplicaSpecs"].values():
        (volume,) = replica["template"]["spec"]["volumes"]
        assert volume["configMap"]["name"] == config_map["metadata"]["name"]


def test_config_maps_keep_within_the_limit_of_client_side_apply() -> None:
    """`kubectl apply` stores the whole object in an annotation, which may have 262,144 bytes."""
    for manifest in EXAMPLES.glob("*/mpijob.yaml"):
        assert manifest.stat().st_size < 250_000
