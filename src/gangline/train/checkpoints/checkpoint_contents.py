"""What a checkpoint may contain: usual Python values beside tensors, read back without running their code.

Files are read with torch's ``weights_only`` loader, which makes nothing but tensors and plain values. Added
here are types of the standard library and of numpy that are data and nothing else, and the dataclasses and
enums that the script has imported itself, as far as making one runs no code of theirs. What a script trusts
beyond that it names with ``torch.serialization.add_safe_globals``, torch's own way.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import pathlib
import pickle
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

_CONTAINERS = (dict, list, tuple, OrderedDict, defaultdict)
_PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath)
_VALUES = (
    *(argparse.Namespace, types.SimpleNamespace, defaultdict, deque, frozenset),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
    *(decimal.Decimal, fractions.Fraction),
    *(bool, int, float, str, list, dict, tuple),  # what a defaultdict makes
)


class _Pickling:
    """In the place of the module ``pickle``: writes in the few forms that the loader reads."""

    class Pickler(pickle.Pickler):
        """Makes collections and enums by one call."""

        def reducer_override(self, value: Any) -> Any:
            """Return the call that makes the value again."""
            if type(value) is deque:
                return deque, (list(value), value.maxlen)
            if type(value) is defaultdict:
                return defaultdict, (value.default_factory, dict(value))
            if isinstance(value, enum.Enum):
                return type(value), (value.value,)
            return NotImplemented


_no_checksums = threading.Lock()


def write(value: Any, file: Any) -> None:
    """Write a value as ``torch.save`` does; `file` needs no more than ``write`` and ``flush``.

    Without the checksums inside of the file: its name has a digest of all of it, and they cost a fifth more.
    """
    import torch

    with _no_checksums:  # the option is the process's
        had = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(value, file, pickle_module=_Pickling)
        finally:
            torch.serialization.set_crc32_options(had)


def read(file: Path | IO[bytes], *, mmap: bool = False) -> Any:
    """Read what `write` has written, onto the CPU.

    Args:
        file: a path, or a file open for reading.
        mmap: leave tensors in the file until they are used; for a path only.

    Raises:
        pickle.UnpicklingError: something in it is not known to be data.
    """
    import torch

    trusted = [one for one in _usual() if one not in torch.serialization.get_safe_globals()]
    with torch.serialization.safe_globals(trusted):
        own = [kind for name in _named_in(file) if (kind := _imported(name)) is not None]
        with torch.serialization.safe_globals(own):
            return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)


def why_unreadable(value: Any, name: str) -> tuple[str, str] | None:
    """Return which part of a value cannot be written and read back, and what to do; None if all can.

    Args:
        value: as it was to be saved.
        name: what it is called, for example ``state``.
    """
    for place, part in _parts(value, name):
        if not _comes_back(part):
            return f"{place}: {_kind(part)} cannot be read back", _instead(part)
    return None


def _parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield keys, leaves and emptied containers with their places, tensors left out."""
    import torch

    if type(value) in _CONTAINERS:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if type(key) not in (str, int):
                yield f"a key of {name}", key
            yield from _parts(part, f"{name}[{key!r}]".replace("'", '"'))
        if type(value) is defaultdict:
            yield name, defaultdict(value.default_factory)
    elif type(value) not in (torch.Tensor, torch.nn.Parameter):
        yield name, value


def _comes_back(value: Any) -> bool:
    memory = io.BytesIO()
    try:
        write(value, memory)
        memory.seek(0)
        read(memory)
    except Exception:  # noqa: BLE001 - pickling runs code of any type
        return False
    return True


def _kind(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return f"the function {value.__name__}"
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name} with the factory {_kind(value.default_factory)}" if kind is defaultdict else name


def _instead(value: Any) -> str:
    kind = type(value)
    if callable(getattr(value, "state_dict", None)):
        return "give its state_dict()"
    if kind is defaultdict:
        return "give dict(…) of it"
    if callable(value):
        return "give its name"
    trust = f"torch.serialization.add_safe_globals([{kind.__name__}]) at the start of the script"
    if dataclasses.is_dataclass(value):
        return f"give dataclasses.asdict(…) of it, or call {trust}"
    if isinstance(value, tuple):
        return f"give tuple(…) of it, or call {trust}"
    return f"give what is in it as dict, list, number, text or tensor, or call {trust}"


# What the loader may make -----------------------------------------------------------------------------------


def _usual() -> list[Any]:
    """Return types, and functions of numpy, with the names that versions of Python and numpy write."""
    names: list[Any] = [(kind, f"{kind.__module__}.{kind.__qualname__}") for kind in _VALUES]
    names += [(kind, f"{home}.{kind.__name__}") for kind in _PATHS for home in ("pathlib", "pathlib._local")]
    try:
        import numpy as np
    except ImportError:
        return names
    names += [(kind, f"numpy.{kind.__name__}") for kind in (np.ndarray, np.dtype)]
    names += [
        (kind, f"numpy.dtypes.{name}") for name, kind in vars(np.dtypes).items() if isinstance(kind, type)
    ]
    functions: tuple[Callable[..., Any], ...] = (np._core.multiarray._reconstruct, np._core.multiarray.scalar)
    homes = ("numpy.core.multiarray", "numpy._core.multiarray")
    return names + [(one, f"{home}.{one.__name__}") for one in functions for home in homes]


def unknown_names(file: Path) -> list[str]:
    """Return what in a file is not known to be data."""
    import torch

    with torch.serialization.safe_globals(_usual()):
        return sorted(name for name in _named_in(file) if _imported(name) is None)


def _named_in(file: Path | IO[bytes]) -> list[str]:
    """Return the names in a file that the loader does not know by now."""
    import torch

    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(file)  # type: ignore[no-any-return]
    except pickle.UnpicklingError:
        return []  # the loader says what is wrong
    finally:
        if not isinstance(file, Path):
            file.seek(0)


def _imported(name: str) -> type | None:
    """Return the dataclass or enum of this name if the script has imported it and it is only data."""
    home, _, path = name.rpartition(".")
    while home and home not in sys.modules:
        home, _, outer = home.rpartition(".")
        path = f"{outer}.{path}"
    found: Any = sys.modules.get(home)
    for part in path.split("."):
        found = vars(found).get(part) if isinstance(found, type | types.ModuleType) else None
    return (
        found if isinstance(found, type) and (_is_plain_enum(found) or _is_plain_dataclass(found)) else None
    )


def _is_plain_enum(kind: type) -> bool:
    """Return whether a call with a value only looks a member up."""
    own = {name for one in kind.__mro__ if one.__module__ not in ("enum", "builtins") for name in vars(one)}
    return issubclass(kind, enum.Enum) and not own & {"_missing_", "__reduce_ex__", "__setstate__"}


def _is_plain_dataclass(kind: type) -> bool:
    """Return whether making one and setting its fields runs only what dataclasses themselves wrote."""
    if not dataclasses.is_dataclass(kind):
        return False
    own: dict[str, Any] = {}
    for one in reversed(kind.__mro__[:-1]):
        own |= vars(one)
    written = [own.pop(name, None) for name in ("__init__", "__setattr__", "__setstate__", "__getstate__")]
    hooks = "__post_init__", "__new__", "__init_subclass__", "__reduce__", "__reduce_ex__", "__getattribute__"
    return not own.keys() & set(hooks) and all(map(_is_of_dataclasses, written))


def _is_of_dataclasses(function: Any) -> bool:
    """Return whether dataclasses made a method: compiled from text, or one of their own."""
    code = getattr(function, "__code__", None)
    return function is None or (code is not None and code.co_filename in ("<string>", dataclasses.__file__))
