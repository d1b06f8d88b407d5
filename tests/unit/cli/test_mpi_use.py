"""Which programs use MPI, by their own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.client.code.mpi_use import uses_mpi

FILES = {
    "plain.py": "import torch\n# import mpi4py\n",
    "direct.py": "def main():\n    from mpi4py import MPI\n",
    "horovod_train.py": "import horovod.torch as hvd\n",
    "through.py": "from parts import ring\n",
    "relative.py": "import parts.deep\n",
    "broken.py": "import mpi4py(\n",
    "loop_a.py": "import loop_b\n",
    "loop_b.py": "import loop_a\n",
    "parts/__init__.py": "",
    "parts/ring.py": "import mpi4py.MPI\n",
    "parts/deep.py": "from .ring import comm\n",
    "package/__main__.py": "import mpi4py\n",
    "unrelated.py": "import mpi4py\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "linked").write_bytes(b"\x7fELF...\0libmpi.so.40\0")
    (tmp_path / "static").write_bytes(b"\x7fELF...\0libc.so.6\0")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "is_mpi"),
    [
        ("python plain.py", False),
        ("python3 direct.py --lr 1", True),
        ("/usr/bin/python3.11 -u -W ignore horovod_train.py", True),
        ("python through.py", True),
        ("python relative.py", True),
        ("python -m package", True),
        ("python -m parts.deep", True),
        ("python broken.py", False),
        ("python loop_a.py", False),
        ("python missing.py", False),
        ("python -c pass", False),
        ("./linked", True),
        ("./static", False),
        ("hostname", False),
        ("python", False),
    ],
)
def test_a_program_uses_mpi_when_its_files_do(folder: Path, words: str, is_mpi: bool) -> None:
    assert uses_mpi(tuple(words.split()), folder) is is_mpi
