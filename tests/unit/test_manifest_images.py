"""Manifests that are published name Gangline's images by its version, never by what changes under them."""

from __future__ import annotations

import re
from pathlib import Path

from gangline import __version__
from gangline.installation.objects import IMAGES

ROOT = Path(__file__).parents[2]


def test_manifests_name_images_of_this_version() -> None:
    files = [*ROOT.glob("deploy/**/*.yaml"), *ROOT.glob("examples/[0-9]*/*.yaml")]
    # "image: gangline/base:0.1.0"
    named = re.compile(r"image: (gangline\S*)")
    found = {image for file in files for image in named.findall(file.read_text())}

    assert found == {f"{image}:{__version__}" for image in (*IMAGES.values(), "gangline/base")}
