"""Get the user's code into a pod: from pieces in a folder, checked by their address, or from git.

Runs by the image's own Python, 3.8 or newer, from the standard library alone:
`python3 unpack_code.py PIECES TARGET SHA256`.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path


def unpack(pieces: Path, target: Path, digest: str) -> None:
    """Write the files of the archive whose pieces are `pieces`, in order of name, below `target`.

    Raises ValueError when the bytes are not those of `digest`; then nothing is written.
    """
    names = sorted(
        path for path in pieces.iterdir() if not path.name.startswith(".")
    )  # ..data is a kubelet's
    archive = b"".join(path.read_bytes() for path in names)
    found = hashlib.sha256(archive).hexdigest()
    if found != digest:
        raise ValueError(f"the code in {pieces} is not what was sent: its SHA-256 is {found}, not {digest}")
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
        if hasattr(tarfile, "data_filter"):  # since 3.12, and 3.8.17: refuses what would leave `target`
            files.extractall(target, filter="data")
        else:
            files.extractall(target)  # made by `gangline run`, and checked above


def fetch(url: str, revision: str, target: Path) -> None:
    """Write the files of a revision of a git repository below `target`, by the image's own git.

    Raises OSError when there is no git or it fails; it has said why.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    # The folder may be root's, as an emptyDir is, and this process some user's.
    git = ["git", "-c", "safe.directory=*", "-C", str(target)]
    for words in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", url, revision],
        ["checkout", "-q", "FETCH_HEAD"],
    ):
        try:
            code = subprocess.call([*git, *words], env=environment, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise OSError("this image has no git") from None
        if code:
            raise OSError(f"git {words[0]} of {url} at {revision} failed with code {code}")


if __name__ == "__main__":
    try:
        unpack(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except (OSError, ValueError, tarfile.TarError) as error:
        sys.exit(f"gangline: cannot unpack the code: {error}")
