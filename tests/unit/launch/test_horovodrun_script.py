"""The `horovodrun` on the PATH of local images: Gangline's, unless the image has one of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gangline.cluster.images.local_images import write_programs


def run(folder: Path, *more: Path) -> str:
    path = os.pathsep.join(map(str, [f"{folder}/", *more, "/usr/bin", "/bin"]))
    done = subprocess.run(
        ["horovodrun", "--version"],
        env={"PATH": path},
        executable=folder / "horovodrun",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_ours_is_run_where_the_image_has_none(tmp_path: Path) -> None:
    write_programs(tmp_path / "bin")

    assert run(tmp_path / "bin").startswith("gangline ")


def test_an_images_own_horovod_comes_first(tmp_path: Path) -> None:
    write_programs(tmp_path / "bin")
    own = tmp_path / "image" / "horovodrun"
    own.parent.mkdir()
    own.write_text('#!/bin/sh\necho "Horovod\'s own $*"\n')
    own.chmod(0o755)

    assert run(tmp_path / "bin", own.parent) == "Horovod's own --version\n"
