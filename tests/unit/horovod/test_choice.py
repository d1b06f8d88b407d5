"""A genuine Horovod is never shadowed, and other frameworks get one sentence."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import horovod


def test_a_genuine_horovod_on_the_path_is_found(tmp_path: Path) -> None:
    own = Path(horovod.__file__).parent
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")

    assert horovod.genuine_folder([str(own.parent)], own) == ""
    assert horovod.genuine_folder([str(own.parent), str(tmp_path)], own) == str(tmp_path / "horovod")


def test_it_is_refused_until_it_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ImportError, match="set GANGLINE_HOROVOD=1"):
        horovod._refuse_to_shadow()
    monkeypatch.setenv("GANGLINE_HOROVOD", "1")
    horovod._refuse_to_shadow()


@pytest.mark.parametrize("framework", ["tensorflow", "keras", "mxnet"])
def test_other_frameworks_get_one_sentence(framework: str) -> None:
    with pytest.raises(ImportError, match=r"is not offered by Gangline.*horovod\.torch"):
        importlib.import_module(f"horovod.{framework}")
