"""``gangline image push``: what is refused before anything is sent."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from gangline.cli.install.image import command
from gangline.errors import UserError


def refusal(*words: str) -> UserError:
    result = CliRunner().invoke(command, ["push", *words], standalone_mode=False)
    assert isinstance(result.exception, UserError), result.exception
    return result.exception


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.tar").write_text("no archive")

    assert "no archive of one image" in str(refusal(str(tmp_path / "own.tar"), "localhost/own"))
    with tarfile.open(tmp_path / "own.tar", "w") as tar:
        (tmp_path / "manifest.json").write_text("[{")
        tar.add(tmp_path / "manifest.json", "manifest.json")
    assert "no archive of one image" in str(refusal(str(tmp_path / "own.tar"), "localhost/own"))
    assert "No such file" in str(refusal(str(tmp_path / "absent.tar"), "localhost/own"))


@pytest.mark.parametrize("name", ["own", "ml/own:1"])
def test_a_name_without_a_registry_is_refused(tmp_path: Path, name: str) -> None:
    pack = pytest.importorskip("pack")
    (tmp_path / "layer").mkdir()
    pack.pack("own:1", tmp_path / "own.tar", [tmp_path / "layer"])

    refused = refusal(str(tmp_path / "own.tar"), name)

    assert f"must begin with a registry (found `{name}`)" in str(refused)
    assert f"docker.io/{name}" in refused.hint
