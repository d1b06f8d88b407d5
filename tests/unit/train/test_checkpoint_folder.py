"""A folder of checkpoints: who may write there, and what incomplete saves have left."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.train.checkpoints.checkpoint_file import remove_leftovers
from gangline.train.checkpoints.folder_lock import FolderLock
from gangline.train.peers import PeerLostError, Peers

DIGEST, SAVE, OTHER = "0" * 32, "a" * 16, "b" * 16
OWN = f"step-00000004.rank-1-of-2-{DIGEST}.{SAVE}.pt"


def test_one_training_has_the_lock_until_it_lets_go(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    assert first.take(is_ours=False)
    assert not second.take(is_ours=False, limit_s=0.0)

    first.release()

    assert second.take(is_ours=False, limit_s=0.0)
    second.release()


def test_lock_of_a_lost_rank_is_taken_over_and_not_had_twice(tmp_path: Path) -> None:
    lost, survivor, third = FolderLock(tmp_path), FolderLock(tmp_path), FolderLock(tmp_path)
    assert lost.take(is_ours=False)

    assert survivor.take(is_ours=True)

    assert not third.take(is_ours=False, limit_s=0.0)
    lost.release()
    assert not third.take(is_ours=False, limit_s=0.0)
    survivor.release()


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ([".step-00000004.model.rank-0.run2.part"], [".step-00000004.model.rank-0.run2.part"]),
        ([".step-00000004.model.rank-0.run1.part", ".step-00000004.shards.run1.part"], []),
        ([".history.part", "mine.pt"], [".history.part", "mine.pt"]),
        ([OWN], []),
        ([OWN, f"step-00000004.model-{DIGEST}.{OTHER}.pt"], [f"step-00000004.model-{DIGEST}.{OTHER}.pt"]),
        (
            [OWN, f"step-00000004.model-{DIGEST}.{SAVE}.pt"],
            [f"step-00000004.model-{DIGEST}.{SAVE}.pt", OWN],
        ),
    ],
    ids=["own draft", "drafts of others", "other files", "no model", "model of another save", "complete"],
)
def test_what_incomplete_saves_left_is_removed_and_nothing_else(
    tmp_path: Path, names: list[str], kept: list[str]
) -> None:
    for name in names:
        (tmp_path / name).touch()

    remove_leftovers(tmp_path, "run2")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


class SilentStore:
    """A store in which nobody else says anything."""

    def wait(self, keys: list[str], limit: object) -> None:
        raise RuntimeError("timed out")

    def check(self, keys: list[str]) -> bool:
        return False


@pytest.mark.timeout(10)
def test_who_waits_for_a_rank_that_the_launcher_calls_lost_gets_an_error() -> None:
    place = {"node": "n", "pid": 1, "process": ""}
    peers = Peers(0, [place, place | {"node": "gone"}], is_lost=lambda: True)

    with pytest.raises(PeerLostError, match="a rank was lost while others waited in a checkpoint"):
        peers.wait_for_all(SilentStore(), "said", "a checkpoint", 3600.0)


@pytest.mark.timeout(10)
def test_who_waits_when_its_ranks_are_over_gets_the_reason() -> None:
    place = {"node": "n", "pid": 1, "process": ""}
    peers = Peers(0, [place, place | {"node": "gone"}], is_lost=lambda: False)
    peers.given_up = PeerLostError("this generation of ranks has ended")

    with pytest.raises(PeerLostError, match="this generation"):
        peers.wait_for_all(SilentStore(), "said", "a checkpoint", 3600.0)


def test_operations_are_counted_by_the_ranks_of_a_session_and_not_by_the_process() -> None:
    counts = [[peers.next_operation() for _ in range(2)] for peers in (Peers(0, []), Peers(0, []))]

    assert counts == [[1, 2], [1, 2]]
