"""Horovod's interface, offered by Gangline on torch.distributed. It is not Horovod, and never "
"stands in its way.

Where a genuine Horovod is installed too, importing this one is refused until ``GANGLINE_HOROVOD=1``
chooses it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

__version__ = "0.28.1"  # the release whose interface this is
CHOICE = "GANGLINE_HOROVOD"


def genuine_folder(path: list[str], own: Path) -> str:
    """Return the folder of another package of this name on Python's path, ``""`` where there is none."""
    for entry in path:
        folder = Path(entry or ".") / "horovod"
        if (folder / "__init__.py").is_file() and folder.resolve() != own.resolve():
            return str(folder)
    return ""


def _refuse_to_shadow() -> None:
    own = Path(__file__).parent
    genuine = genuine_folder(sys.path, own)
    if genuine and os.environ.get(CHOICE, "") != "1":
        raise ImportError(
            f"`horovod` was found twice: a Horovod in {genuine}, and Gangline's of the same name in "
            f"{own}. To "
            f"choose Gangline's set {CHOICE}=1; to choose the other one take {own.parent} from PYTHONPATH or "
            "uninstall gangline-horovod"
        )


_refuse_to_shadow()


def __getattr__(name: str) -> Any:
    if name == "run":
        from horovod.runner import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
