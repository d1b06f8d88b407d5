"""Gangline: synchronous distributed training from one file, on one machine or any Kubernetes."""

TYPE_CHECKING = False  # of `typing`, whose import costs more than all of this
if TYPE_CHECKING:
    from gangline.client import AsyncClient, Client, JobHandle, PodOptions, RankError, RanksFailedError

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "JobHandle", "PodOptions", "RankError", "RanksFailedError"]


def __getattr__(name: str) -> object:
    if name not in __all__:  # imported when they are used: commands, and ranks, need none of it
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from gangline import client

    return getattr(client, name)
