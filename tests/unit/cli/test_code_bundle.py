"""The user's code as a bundle: what is packed, the same bytes for the same files, the bounds."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from gangline.client.code import code_bundle
from gangline.client.code.code_bundle import CHUNK_BYTES, CodeBundle, pack_folder
from gangline.errors import UserError


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _names(bundle: CodeBundle) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle.archive)) as archive:
        return archive.getnames()


def test_the_same_files_give_the_same_bytes_whatever_their_times(tmp_path: Path) -> None:
    for name, time in (("one", 1), ("two", 10**9)):
        _write(tmp_path / name, **{"b.py": "b", "a/c.py": "c"})
        os.utime(tmp_path / name / "b.py", (time, time))
    one, two = pack_folder(tmp_path / "one"), pack_folder(tmp_path / "two")
    assert one == two
    assert one.digest == hashlib.sha256(one.archive).hexdigest()


def test_ignore_files_leave_what_git_would_leave(tmp_path: Path) -> None:
    _write(
        tmp_path,
        **{".gitignore": "*.bin\n/data/\n", ".ganglineignore": "notes\n", "train.py": "", "x.bin": ""},
    )
    _write(
        tmp_path,
        **{"data/set": "", "notes": "", "a/.gitignore": "!keep.bin\n", "a/keep.bin": "", ".git/HEAD": ""},
    )
    assert _names(pack_folder(tmp_path)) == [
        ".ganglineignore",
        ".gitignore",
        "train.py",
        "a/.gitignore",
        "a/keep.bin",
    ]


def test_links_inside_are_kept(tmp_path: Path) -> None:
    _write(tmp_path, **{"a/x.py": ""})
    (tmp_path / "b").symlink_to("a")
    assert _names(pack_folder(tmp_path)) == ["b", "a/x.py"]


@pytest.mark.parametrize("target", ["../../etc", "/etc", "root/..", "../../{name}/a/x.py"])
def test_links_that_leave_the_folder_are_refused(tmp_path: Path, target: str) -> None:
    _write(tmp_path, **{"a/x.py": ""})
    (tmp_path / "a" / "root").symlink_to("..")
    (tmp_path / "a" / "out").symlink_to(target.format(name=tmp_path.name))
    with pytest.raises(UserError, match="a/out leads out of it"):
        pack_folder(tmp_path)


def test_owners_times_and_modes_are_zeroed_apart_from_executable(tmp_path: Path) -> None:
    _write(tmp_path, run="", plain="")
    (tmp_path / "run").chmod(0o700)
    (tmp_path / "plain").chmod(0o600)
    with tarfile.open(fileobj=io.BytesIO(pack_folder(tmp_path).archive)) as archive:
        assert [(e.name, e.mode, e.uid, e.gid, e.uname, e.mtime) for e in archive] == [
            ("plain", 0o644, 0, 0, "", 0),
            ("run", 0o755, 0, 0, "", 0),
        ]


@pytest.mark.parametrize("bound", ["MAX_ARCHIVE_BYTES", "MAX_PACKED_BYTES"])
def test_too_large_a_folder_is_refused_with_its_largest_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_bytes(os.urandom(2 * 1024 * 1024))
    monkeypatch.setattr(code_bundle, bound, 1024 * 1024)
    with pytest.raises(UserError, match=r"at most 1\.0 MiB; the largest in it: data/ \(2\.0 MiB\)"):
        pack_folder(tmp_path)


def test_chunks_are_the_archive_in_order() -> None:
    bundle = CodeBundle(os.urandom(2 * CHUNK_BYTES + 1), "")
    assert [len(chunk) for chunk in bundle.chunks()] == [CHUNK_BYTES, CHUNK_BYTES, 1]
    assert b"".join(bundle.chunks()) == bundle.archive


def test_a_link_to_itself_is_a_link_like_others(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert _names(pack_folder(tmp_path)) == ["loop"]
