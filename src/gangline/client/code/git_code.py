"""Where the code of a program comes from: a folder, or a revision of a git repository."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gangline.errors import UserError

GIT = "git+"
ANSWER_LIMIT_S = 20.0


class GitCode(msgspec.Struct, frozen=True):
    """A repository, and a revision of it: branch, tag or commit; ``HEAD`` for none."""

    url: str
    revision: str

    def pinned(self) -> GitCode:
        """Return it with the commit that the revision is now, as far as git here can ask the server.

        Pods that come later then fetch what the first did.
        """
        try:
            asked = subprocess.run(
                ["git", "ls-remote", self.url, self.revision, f"{self.revision}^{{}}"],
                capture_output=True,
                text=True,
                timeout=ANSWER_LIMIT_S,
                check=True,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            return self
        commits = [line.split()[0] for line in asked.stdout.splitlines()]
        return GitCode(self.url, commits[-1]) if commits else self


def code_of(text: str | None) -> Path | GitCode | None:
    """Return what the value of ``--code`` names; errors as of ``read_git``."""
    if not text:
        return None
    return read_git(text) if text.startswith(GIT) else Path(text)


def folder_of(code: Path | GitCode | None) -> Path | None:
    """Return the folder; a repository belongs to programs on a cluster.

    Raises:
        UserError: it is a repository.
    """
    if isinstance(code, GitCode):
        raise UserError("--code git+URL belongs to programs on a cluster", hint="add --context CONTEXT")
    return code


def read_git(text: str) -> GitCode:
    """Return what ``git+URL@REVISION`` names.

    >>> read_git("git+https://example.com/you/train.git@v1.2")
    GitCode(url='https://example.com/you/train.git', revision='v1.2')

    Raises:
        UserError: it is no URL, or has a password in it.
    """
    parts = urlsplit(text.removeprefix(GIT))
    path, _, revision = parts.path.partition("@")
    if not parts.scheme or not path.strip("/"):
        raise UserError(
            f"--code {text}: write git+URL@REVISION", hint="--code git+https://HOST/YOU/REPO@main"
        )
    if parts.password:
        raise UserError(
            "--code: the URL has a password, which everybody who may see the job could read",
            hint="keep it in the job's Secret: -e GIT_CONFIG_COUNT=1 -e GIT_CONFIG_KEY_0=http.extraHeader "
            "-e 'GIT_CONFIG_VALUE_0=Authorization: Bearer TOKEN'",
        )
    return GitCode(parts._replace(path=path).geturl(), revision or "HEAD")
