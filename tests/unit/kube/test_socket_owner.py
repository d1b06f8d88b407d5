"""Nobody speaks to a socket of another user."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.api.resources import PODS
from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.paths import ClusterPaths
from gangline.kube import socket_owner
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.socket_owner import ForeignSocketError

NOBODY = 65534


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "api.sock"))
        server.listen()
        yield folder / "api.sock"


@pytest.fixture
def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be somebody else than who listens: this user is neither that one nor root."""
    monkeypatch.setattr(socket_owner.os, "getuid", lambda: NOBODY)
    monkeypatch.setattr(
        socket_owner, "_CREDENTIALS", Credentials()
    )  # as if user 1001 had put the socket there; root is always trusted


class Credentials:
    size = 12

    def unpack(self, raw: bytes) -> tuple[int, int, int]:
        return (1, 1001, 1001)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not tell who listens")
async def test_a_process_of_another_user_is_told_nothing(listening: Path, of_another_user: None) -> None:
    with pytest.raises(
        ForeignSocketError, match="refusing to speak to .*: a process of user 1001 listens there"
    ):
        async with Client(Connection(server=f"unix://{listening}")) as client:
            await client.list(PODS, "default")


async def test_a_folder_that_others_may_write_is_not_trusted(listening: Path) -> None:
    listening.parent.chmod(0o777)

    with pytest.raises(ForeignSocketError, match=r"other users may write its folder .* \(mode 777\)"):
        async with Client(Connection(server=f"unix://{listening}")) as client:
            await client.is_ready()


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to another user")
def test_a_cluster_in_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path)[:23])
    paths = ClusterPaths("x", tmp_path / "state")
    monkeypatch.setattr(ClusterPaths, "run", property(lambda self: tmp_path / "run"))
    paths.run.mkdir()
    os.chown(paths.run, NOBODY, NOBODY)

    for command in (Cluster(paths).status, Cluster(paths).down):
        with pytest.raises(ForeignSocketError, match=f"belongs to user {NOBODY}"):
            command()
    assert paths.run.exists()


async def test_a_cluster_can_be_asked_from_within_an_event_loop(tmp_path: Path) -> None:
    assert not Cluster(ClusterPaths("x", tmp_path / "state")).status().ready
