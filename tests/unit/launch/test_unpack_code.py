"""What was packed on one machine is there in the pod, or nothing is."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gangline.client.code.code_bundle import pack_folder
from gangline.launch.pods.unpack_code import fetch, unpack


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


@pytest.fixture
def repository(tmp_path):
    """A repository with two commits; returns its URL and the first commit."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    folder = tmp_path / "repository"

    def git(*words):
        own = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
        line = ["git", *own, "-C", str(folder), *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()

    folder.mkdir()
    git("init", "-q")
    for text in ("first", "second"):
        (folder / "train.py").write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", text)
    return f"file://{folder}", git("rev-parse", "HEAD~1")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_revision_of_a_repository_is_fetched(repository, tmp_path, is_first):
    url, first = repository
    target = tmp_path / "code"
    target.mkdir()

    fetch(url, first if is_first else "main", target)

    assert (target / "train.py").read_text() == ("first" if is_first else "second")


def test_a_repository_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="git fetch of file:///nowhere at main failed"):
        fetch("file:///nowhere", "main", tmp_path)
