"""Errors that scripts catch, by Horovod's names."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed: the ranks do not agree, or one was lost. Elastic training goes on from its last
    commit.
    """


class InvalidRequestError(HorovodInternalError, ValueError):
    """What a rank asked for is wrong by itself, as splits of more rows than there are; all ranks get it."""


class HostsUpdatedInterrupt(RuntimeError):  # Horovod's name
    """The hosts of the job have changed: elastic training begins anew with its state as it is.

    Args:
        skip_sync: hosts were only removed, so that nobody needs the state of others.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework is of another version than the one Horovod was built for; never raised here: nothing is
    built.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} was {installed_version} at installation and is {version}")
        self.name = name
        self.version = version
        self.installed_version = installed_version
