"""What a training is at: kept in memory at every commit, given to new ranks, gone back to after a loss."""

from __future__ import annotations

import io
from typing import Any

from gangline.train.checkpoints.snapshot import Snapshots
from gangline.train.elastic.board import Board


class RanksChangeError(Exception):
    """The ranks are to change; raised by `ElasticState.commit` on all of them at the same commit."""


class ElasticState:
    """Models, optimizers and numbers of a training, as attributes.

    What has ``state_dict`` and ``load_state_dict`` is kept by them, everything else as it is: numbers, texts,
    tensors, lists and dictionaries of such.

    Args:
        parts: by the names that they have as attributes: ``ElasticState(model=model, step=0)``.
    """

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)
        self._names = tuple(parts)
        self._snapshots = Snapshots()
        self._kept: dict[str, Any] = {}
        self._session: Any = None
        self._board: Board | None = None
        self.keep()

    def commit(self) -> None:
        """Keep the state as it is, in memory; all ranks call it after the same step.

        Raises:
            RanksChangeError: a rank was lost or comes: the function that trains is called again.
            PeerLostError: a rank ended that never came.
            CheckpointError: the ranks change, and what was saved behind the training could not be written.

        Cost: a copy of all tensors, and one number reduced over all ranks.
        """
        self.keep()
        if self._board is None or self._session is None:
            return
        if self._session.reduce({"changing": float(self._board.is_changing())}, "max")["changing"]:
            self._session.finish_saves()
            raise RanksChangeError

    def keep(self) -> None:
        """Copy the state to memory."""
        self._kept = self._snapshots.take({name: _taken(getattr(self, name)) for name in self._names})

    def restore(self) -> None:
        """Go back to what was kept last."""
        self._set(self._snapshots_of_kept())

    def enter(self, session: Any, board: Board | None) -> None:
        """Take rank 0's kept state on all ranks of a session. Cost: a broadcast of it."""
        self._session, self._board = session, board
        kept = self._kept if session.size == 1 else _broadcast(session, self._kept)
        self._set(kept)
        self.keep()

    def leave(self) -> None:
        """Forget the session."""
        self._session = None

    def _snapshots_of_kept(self) -> dict[str, Any]:
        found: dict[str, Any] = Snapshots().take(self._kept)
        return found

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            part = getattr(self, name)
            if hasattr(part, "load_state_dict"):
                part.load_state_dict(value)
            else:
                setattr(self, name, value)


def _taken(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "load_state_dict") else part


def _broadcast(session: Any, value: Any) -> Any:
    """Return rank 0's value on all ranks."""
    import torch
    import torch.distributed as dist

    file = io.BytesIO()
    if session.rank == 0:
        torch.save(value, file)
    data = torch.frombuffer(bytearray(file.getvalue() or b"\0"), dtype=torch.uint8)
    size = torch.tensor([data.numel()], device=session.device)
    dist.broadcast(size, 0)
    if session.rank != 0:
        data = torch.empty(int(size.item()), dtype=torch.uint8)
    data = data.to(session.device)
    dist.broadcast(data, 0)
    if session.rank == 0:
        return value
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), weights_only=True)
