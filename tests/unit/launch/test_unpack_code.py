"""What was packed on one machine is there in the pod, or nothing is."""

from pathlib import Path

import pytest

from gangline.cli.run.code_bundle import pack_folder
from gangline.launch.pods.unpack_code import unpack


def _sent(tmp_path: Path) -> str:
    (tmp_path / "code" / "a").mkdir(parents=True)
    (tmp_path / "code" / "a" / "train.py").write_text("print(1)")
    (tmp_path / "code" / "link").symlink_to("a")
    bundle = pack_folder(tmp_path / "code")
    (tmp_path / "pieces" / "..data").mkdir(parents=True)
    half = len(bundle.archive) // 2
    for name, piece in (("000", bundle.archive[:half]), ("001", bundle.archive[half:])):
        (tmp_path / "pieces" / name).write_bytes(piece)
    return bundle.digest


def test_pieces_become_the_files_again(tmp_path: Path) -> None:
    unpack(tmp_path / "pieces", tmp_path / "target", _sent(tmp_path))
    assert (tmp_path / "target" / "link" / "train.py").read_text() == "print(1)"


def test_other_bytes_than_were_sent_leave_nothing(tmp_path: Path) -> None:
    digest = _sent(tmp_path)
    (tmp_path / "pieces" / "001").write_bytes(b"other")
    with pytest.raises(ValueError, match="is not what was sent"):
        unpack(tmp_path / "pieces", tmp_path / "target", digest)
    assert not (tmp_path / "target").exists()
