"""A worker reads its place from the board of its launcher."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from gangline.errors import UserError
from gangline.train.elastic.board import Board


def member(number: int, local_rank: int) -> dict[str, Any]:
    return {"number": number, "host": "a", "local_rank": local_rank, "local_size": 2, "node_rank": 0}


def write(
    path: Path, generation: int, *numbers: int, is_changing: bool = False, has_lost: bool = False
) -> None:
    members = [member(number, rank) for rank, number in enumerate(numbers)]
    said = {"generation": generation, "is_changing": is_changing, "has_lost": has_lost, "members": members}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(said | {"master": "127.0.0.1", "port": 20007}))
    draft.replace(path)


def test_place_is_that_of_the_generation_that_has_begun(tmp_path: Path, capsys) -> None:
    write(tmp_path / "board", 3, 2, 5)
    board = Board(tmp_path / "board", worker=5, generation=2)

    assert board.join() == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20007",
        "GANGLINE_GENERATION": "3",
    }
    assert '{"kind":"elastic-free","worker":5,"generation":2}' in capsys.readouterr().out
    assert not board.is_changing()
    write(tmp_path / "board", 3, 2, 5, is_changing=True)
    assert board.is_changing()


def test_loss_is_that_of_the_own_generation(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", worker=5, generation=3)
    write(tmp_path / "board", 3, 2, 5, is_changing=True)
    assert not board.has_lost()  # others come: that is no loss
    write(tmp_path / "board", 3, 2, 5, is_changing=True, has_lost=True)
    assert board.has_lost()
    write(tmp_path / "board", 4, 2, 5, is_changing=True, has_lost=True)
    assert not board.has_lost()


def test_worker_that_is_in_no_generation_any_more_has_no_place(tmp_path: Path) -> None:
    write(tmp_path / "board", 3, 2)
    assert Board(tmp_path / "board", worker=5, generation=2).join() is None


def test_new_worker_waits_for_the_generation_that_has_it(tmp_path: Path) -> None:
    write(tmp_path / "board", 3, 2)
    later = threading.Timer(0.12, write, (tmp_path / "board", 4, 2, 5))
    later.start()
    place = Board(tmp_path / "board", worker=5).join()
    later.join()

    assert place is not None
    assert (place["RANK"], place["GANGLINE_GENERATION"]) == ("1", "4")


def test_generation_that_ends_before_a_member_saw_it_begin_is_left_by_it(tmp_path: Path, capsys) -> None:
    write(tmp_path / "board", 3, 2, 5, is_changing=True, has_lost=True)
    later = threading.Timer(0.12, write, (tmp_path / "board", 4, 5))
    later.start()
    place = Board(tmp_path / "board", worker=5, generation=2).join()
    later.join()

    said = capsys.readouterr().out
    assert [f'"generation":{number}}}' in said for number in (2, 3, 4)] == [True, True, False]
    assert place is not None
    assert place["GANGLINE_GENERATION"] == "4"


def test_board_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the board of the launcher is gone"):
        Board(tmp_path / "board", worker=0).join()
