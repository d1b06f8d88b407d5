"""What a release consists of: everything of one version, images by their digests in a known registry."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from pack import pack
from release import Incomplete, main, release

from gangline import __version__
from gangline.cli.install.image import digest_of
from gangline.installation.objects import IMAGES

PREFIX = "registry.example.com/ml"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with stand-ins for the wheel and the images of `make images`."""
    (tmp_path / "dist/images").mkdir(parents=True)
    (tmp_path / f"dist/gangline-{__version__}-py3-none-any.whl").write_text("wheel")
    (tmp_path / "layer").mkdir()
    for name in (*IMAGES.values(), "gangline-base"):
        (tmp_path / "layer/file").write_text(name)
        pack(f"{name}:1", tmp_path / f"dist/images/{name}-{__version__}.tar", [tmp_path / "layer"])
    return tmp_path / "dist"


def test_everything_is_there_and_summed_up(dist: Path) -> None:
    files = release(dist, "")

    assert {file.relative_to(dist).as_posix() for file in files} == {
        f"gangline-{__version__}-py3-none-any.whl",
        f"images/gangline-{__version__}.tar",
        f"images/gangline-scheduler-{__version__}.tar",
        f"images/gangline-device-plugin-{__version__}.tar",
        f"images/gangline-page-{__version__}.tar",
        f"images/gangline-base-{__version__}.tar",
        f"gangline-{__version__}-install.yaml",
        f"gangline-{__version__}-operator.yaml",
        f"gangline-{__version__}-page.yaml",
        f"gangline-{__version__}.tgz",
        f"gangline-{__version__}-sha256sums.txt",
    }
    subprocess.run(["sha256sum", "--check", "--strict", files[-1].name], cwd=dist, check=True)


def test_a_manifest_and_the_chart_name_the_images_by_version_and_digest(dist: Path) -> None:
    release(dist, PREFIX)

    text = (dist / f"gangline-{__version__}-install.yaml").read_text()
    digests = {
        name: digest_of(dist / f"images/{name}-{__version__}.tar")
        for name in ("gangline", "gangline-scheduler")
    }
    # image: registry.example.com/ml/gangline:0.1.0@sha256:...
    assert set(re.findall(r"image: (\S+)", text)) == {
        f"{PREFIX}/{name}:{__version__}@{digest}" for name, digest in digests.items()
    }
    kinds = {obj["kind"] for obj in yaml.safe_load_all(text)}
    assert {"CustomResourceDefinition", "Deployment", "Namespace"} <= kinds
    with tarfile.open(dist / f"gangline-{__version__}.tgz") as tar:
        values = yaml.safe_load(tar.extractfile("gangline/values.yaml"))  # type: ignore[arg-type]
        about = yaml.safe_load(tar.extractfile("gangline/Chart.yaml"))  # type: ignore[arg-type]
    assert values["image"]["prefix"] == PREFIX
    assert values["operator"]["digest"] == digests["gangline"]
    assert values["scheduler"]["digest"] == digests["gangline-scheduler"]
    assert about["version"] == about["appVersion"] == __version__


def test_the_same_parts_make_the_same_release(dist: Path) -> None:
    first = [file.read_bytes() for file in release(dist, PREFIX)]

    assert [file.read_bytes() for file in release(dist, PREFIX)] == first


def test_a_part_that_is_missing_is_named(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dist / f"images/gangline-base-{__version__}.tar").unlink()

    with pytest.raises(Incomplete, match=f"gangline-base-{re.escape(__version__)}.tar"):
        release(dist, "")
    assert main([str(dist)]) == 1
    assert "`make images` makes them" in capsys.readouterr().err
