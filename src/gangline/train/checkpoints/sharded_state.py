"""State that is spread over the ranks (DTensors, of FSDP), in the files of torch.distributed.checkpoint.

Every rank writes its own part into one folder, and whoever resumes, on however many ranks, reads the parts
that it needs. What cannot be written so is refused by name. The tensors' names are those that
``torch.distributed.checkpoint.load`` looks for, so that a script without Gangline reads the folder too.
"""

from __future__ import annotations

import copy
import math
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.errors import UserError

Place = tuple[Any, ...]
"""Keys and indexes that lead from a state to a part of it."""

_METADATA = ".metadata"
_HOME = "torch.distributed.checkpoint"
_METADATA_TYPES = {
    *((f"{_HOME}.metadata", name) for name in "Metadata MetadataIndex TensorStorageMetadata".split()),
    *((f"{_HOME}.metadata", name) for name in "ChunkStorageMetadata TensorProperties StorageMeta".split()),
    *((f"{_HOME}.metadata", "_MEM_FORMAT_ENCODING"), (f"{_HOME}.filesystem", "_StorageInfo")),
    *(("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath")),
    ("pathlib._local", "PosixPath"),
}


@dataclass(frozen=True, slots=True)
class Shards:
    """A state taken apart.

    Attributes:
        rest: the state with None in the places of tensors that are spread over ranks.
        tensors: those, by their names.
        index: what must be known to make them again on other ranks, in plain values.
    """

    rest: Any
    tensors: dict[str, Any]
    index: list[dict[str, Any]]


def take_apart(state: Any, ranks: int) -> Shards | None:
    """Return the state taken apart, None when nothing of it is spread over ranks.

    Raises:
        UserError: something of it is spread in a way that could not be put together again.
    """
    found = {place: tensor for place, tensor in leaves(state) if _is_sharded(tensor, place)}
    if not found:
        return None
    tensors = {".".join(map(str, place)): tensor for place, tensor in found.items()}
    if len(tensors) < len(found):
        raise UserError("two keys of the state are the same once they are joined by dots")
    index = [_describe(tensor, place, ranks) for place, tensor in found.items()]
    return Shards(replaced(state, dict.fromkeys(found)), tensors, index)


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield everything in dictionaries, lists and tuples, with its place."""
    if isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*place, key))
    else:
        yield place, value


def replaced(value: Any, parts: Mapping[Place, Any]) -> Any:
    """Return a copy of nested containers with other values in some places."""
    if () in parts:
        return parts[()]
    below: dict[Any, dict[Place, Any]] = {}
    for place, part in parts.items():
        below.setdefault(place[0], {})[place[1:]] = part
    if isinstance(value, tuple):
        items = [replaced(one, below[number]) if number in below else one for number, one in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    changed = copy.copy(value)
    for key, inner in below.items():
        changed[key] = replaced(value[key], inner)
    return changed


def named(place: Place, name: str = "state") -> str:
    """Return ``state["model"]["0.weight"]``."""
    return name + "".join(f'["{key}"]' if isinstance(key, str) else f"[{key!r}]" for key in place)


def _is_sharded(tensor: Any, place: Place) -> bool:
    # Of what was not imported there are no tensors.
    old = sys.modules.get("torch.distributed._shard.sharded_tensor")
    if old is not None and isinstance(tensor, old.ShardedTensor):
        raise UserError(
            f"{named(place)} is a ShardedTensor, which only the same ranks could read",
            hint="give FSDP a device_mesh, or take a full state dict, or use fully_shard",
        )
    new = sys.modules.get("torch.distributed.tensor")
    return new is not None and isinstance(tensor, new.DTensor)


def _describe(tensor: Any, place: Place, ranks: int) -> dict[str, Any]:
    from torch.distributed.tensor import Replicate, Shard

    mesh = tensor.device_mesh
    if mesh.mesh.flatten().tolist() != [*range(ranks)]:
        raise UserError(
            f"{named(place)} is spread over some of the {ranks} ranks only (mesh {mesh.mesh.tolist()})",
            hint="write it with torch.distributed.checkpoint, whose load() takes the model's own tensors",
        )
    placements: list[int | None] = []
    for one in tensor.placements:
        if type(one) is not Shard and type(one) is not Replicate:
            raise UserError(
                f"{named(place)} is spread as {one}; only Shard and Replicate can be put together again",
                hint="redistribute it, or write it with torch.distributed.checkpoint",
            )
        placements.append(one.dim if type(one) is Shard else None)
    names = mesh.mesh_dim_names
    return {
        "place": place,
        "size": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "placements": placements,
        "mesh": tuple(mesh.mesh.shape),
        "names": None if names is None else tuple(names),
    }


def write(folder: Path, shards: Shards, group: Any = None) -> None:
    """Write the parts of all ranks, which call this together, into a folder, synced.

    Args:
        folder: made if absent.
        shards: this rank's.
        group: whose collectives are used; None for torch's own.

    Raises:
        OSError: the disk of some rank is full, for example; raised on all.
        RuntimeError: some rank could not; raised on all.
    """
    from torch.distributed import checkpoint

    with _plain_errors():
        checkpoint.save(dict(shards.tensors), storage_writer=_writer(folder), process_group=group)


def _writer(folder: Path) -> Any:
    """Return torch's writer, except that it says of a full disk that it is full."""
    from torch.distributed.checkpoint import FileSystemWriter

    class Writer(FileSystemWriter):
        def write_data(self, *words: Any, **named: Any) -> Any:
            try:
                return super().write_data(*words, **named)
            except RuntimeError as error:  # of the archive that could not be closed any more
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    return Writer(folder, sync_files=True)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Make an error of torch's, which is no Exception, one that says what went wrong on which rank."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        if isinstance(cause, OSError) and cause.strerror:
            raise OSError(cause.errno, f"{cause.strerror} (on rank {rank})") from error
        raise RuntimeError(f"{cause} (on rank {rank})") from error


def files_of(folder: Path, rank: int) -> list[str]:
    """Return the names of the files that a rank wrote; rank 0's include the folder's own."""
    own = [path.name for path in folder.glob(f"__{rank}_*")]
    return [*own, _METADATA] if rank == 0 else own


def read(folder: Path, rest: Any, index: list[dict[str, Any]], ranks: int, device_type: str) -> Any:
    """Return the state put together on the ranks that are here now, which call this together.

    Args:
        folder: written by `write` on any number of ranks.
        rest: the state without its spread tensors.
        index: as it was when they were written.
        ranks: their number now.
        device_type: where they go, ``cpu`` or ``cuda``.

    Raises:
        UserError: so many ranks cannot be laid out as those were that wrote it.
    """
    from torch.distributed import checkpoint, tensor
    from torch.distributed.device_mesh import init_device_mesh

    meshes: dict[Any, Any] = {}
    found: dict[Place, Any] = {}
    for one in index:
        names = one["names"]
        shape = mesh_shape(one["mesh"], ranks)
        if (shape, names) not in meshes:
            meshes[shape, names] = init_device_mesh(device_type, shape, mesh_dim_names=names)
        placements = [tensor.Replicate() if dim is None else tensor.Shard(dim) for dim in one["placements"]]
        found[one["place"]] = tensor.empty(
            *one["size"], dtype=one["dtype"], device_mesh=meshes[shape, names], placements=placements
        )
    tensors = {".".join(map(str, place)): made for place, made in found.items()}
    with _plain_errors():
        checkpoint.load(tensors, storage_reader=_reader(folder))
    return replaced(rest, found)


def mesh_shape(shape: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """Return how ranks are laid out that were laid out in `shape`: the first dimension takes the difference.

    Raises:
        UserError: the number of ranks is no multiple of the others.
    """
    inner = math.prod(shape[1:])
    if ranks % inner:
        raise UserError(
            f"the state was spread over {' x '.join(map(str, shape))} ranks; {ranks} cannot be laid out so",
            hint=f"resume on a multiple of {inner} ranks",
        )
    return (ranks // inner, *shape[1:])


def _reader(folder: Path) -> Any:
    """Return torch's reader, except that it takes nothing from the folder but a table of tensors."""
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    class Reader(FileSystemReader):
        def read_metadata(self, *_: Any, **__: Any) -> Any:
            with (folder / _METADATA).open("rb") as file:
                metadata = _MetadataUnpickler(file).load()
            odd = [
                key
                for key, one in metadata.state_dict_metadata.items()
                if type(one) is not TensorStorageMetadata
            ]
            if odd:
                raise pickle.UnpicklingError(f"`{odd[0]}` is no tensor")
            metadata.storage_meta.load_id = self.load_id
            return metadata

    return Reader(folder)


class _MetadataUnpickler(pickle.Unpickler):
    """Reads the table of a folder, which torch reads as a pickle that may do anything."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the few types that a table of tensors is made of."""
        import torch

        if (module, name) in _METADATA_TYPES:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a table of tensors")
