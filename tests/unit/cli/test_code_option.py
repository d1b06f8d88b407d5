"""Code from a git repository, as it is named on the command line."""

from __future__ import annotations

import pytest

from gangline.client.code.git_code import GitCode, read_git
from gangline.errors import UserError


@pytest.mark.parametrize(
    ("text", "url", "revision"),
    [
        ("git+https://example.com/you/train.git@v1.2", "https://example.com/you/train.git", "v1.2"),
        ("git+https://example.com/you/train@feature/x", "https://example.com/you/train", "feature/x"),
        ("git+https://example.com/you/train", "https://example.com/you/train", "HEAD"),
        ("git+ssh://git@example.com/you/train@main", "ssh://git@example.com/you/train", "main"),
        ("git+file:///srv/train.git@abc", "file:///srv/train.git", "abc"),
    ],
)
def test_url_and_revision_are_told_apart(text: str, url: str, revision: str) -> None:
    assert read_git(text) == GitCode(url, revision)


@pytest.mark.parametrize("text", ["git+", "git+train", "git+https://example.com", "git+@main"])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write git"):
        read_git(text)


def test_a_password_is_refused_with_the_way_on_and_not_repeated() -> None:
    with pytest.raises(UserError) as refused:
        read_git("git+https://ada:hush@example.com/you/train")

    assert "hush" not in str(refused.value)
    assert "GIT_CONFIG_VALUE_0" in (refused.value.hint or "")
