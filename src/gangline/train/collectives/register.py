"""Make the backend known to torch under its name, whenever torch.distributed is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NAME = "gangline"


def register_when_imported() -> None:
    """Register the backend now where torch.distributed is imported, else at its import."""
    for name, call in _AT_IMPORT.items():
        if name in sys.modules:
            call(sys.modules[name])
        elif not any(isinstance(one, _AtImport) and one.name == name for one in sys.meta_path):
            sys.meta_path.insert(0, _AtImport(name, call))


def register(module: Any) -> None:
    """Register the backend.

    Args:
        module: torch.distributed.distributed_c10d.
    """
    if hasattr(module, "Backend") and NAME not in module.Backend.backend_list:
        module.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _leave_uncompiled(module: Any) -> None:
    """Let torch.compile run what C++ calls here as it is.

    Args:
        module: torch._dynamo.trace_rules.
    """
    module.add(__name__.rpartition(".")[0])


def _create(options: Any, _: Any) -> Any:
    from gangline.train.collectives.group import CollectiveGroup

    return CollectiveGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.global_ranks_in_group,
    )


_AT_IMPORT: dict[str, Callable[[Any], None]] = {
    "torch.distributed.distributed_c10d": register,
    "torch._dynamo.trace_rules": _leave_uncompiled,
}


class _AtImport(MetaPathFinder):
    """Stands before the import of one module once, and calls something with it."""

    def __init__(self, name: str, call: Callable[[Any], None]) -> None:
        self.name, self._call = name, call

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Calling(spec.loader, self._call)
        return spec


class _Calling(Loader):
    def __init__(self, loader: Loader, call: Callable[[Any], None]) -> None:
        self._loader, self._call = loader, call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._call(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
