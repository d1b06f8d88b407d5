"""Labelled JPEG files as batches for training: read through several mounts, decoded in worker processes.

Each rank has its own workers (torch's DataLoader). They read a record from its shard, decode the JPEG at the
smallest scale that is large enough, cut out and mirror it at random, and hand over bytes; the conversion to
floats is the device's work. ``stall`` is the share of the time that the rank waited for a batch.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gangline.bench.records import DamagedRecordError, decode, index
from gangline.errors import UserError
from gangline.train.data.sampling import locate, mount_of, rank_samples

if TYPE_CHECKING:
    from PIL.Image import Image

AREA_SMALLEST = 0.08
ASPECT_LARGEST = 4 / 3
WORKERS_MAX = 16


def mounts_of(data_dir: str, count: int, prefix: str) -> list[Path]:
    """Return the folders that show a data set: ``prefix % 0`` at its beginning becomes ``% 1``, ``% 2``, …

    Raises:
        UserError: the folder does not lie below the first mount.
    """
    if count == 1:
        return [Path(data_dir)]
    try:
        tops = [prefix % number for number in range(count)]
    except TypeError:
        tops = []
    if len(set(tops)) != count:
        raise UserError(f"--mount_prefix must hold one `%d` for the mount's number (found `{prefix}`)")
    if not Path(data_dir).is_relative_to(tops[0]):
        raise UserError(f"--data_dir must lie below the first mount, {tops[0]} (found `{data_dir}`)")
    return [Path(top, Path(data_dir).relative_to(tops[0])) for top in tops]


@dataclass(frozen=True)
class DataSet:
    """The shards of a data set, and which mounts show them.

    Attributes:
        shards: file names, sorted, and for each the folders in which it is.
        places: for each shard offset and size of its records.
    """

    shards: tuple[tuple[str, tuple[Path, ...]], ...]
    places: tuple[list[tuple[int, int]], ...]

    @classmethod
    def find(cls, folders: Sequence[Path]) -> DataSet:
        """Return the data set in some folders.

        Raises:
            UserError: there are no shards, or one cannot be read.
        """
        holders: dict[str, list[Path]] = {}
        for folder in folders:
            if not folder.is_dir():
                raise UserError(f"there is no folder {folder} to read the data set from")
            for path in folder.glob("train-*"):
                holders.setdefault(path.name, []).append(folder)
        if not holders:
            raise UserError(
                f"{folders[0]} has no shards `train-*`",
                hint=f"make some: gangline bench make-data --images 20000 --mounts {folders[0]}",
            )
        shards = tuple((name, tuple(holders[name])) for name in sorted(holders))
        try:
            places = tuple(index(Path(folders[0], name)) for name, folders in shards)
        except OSError as error:
            raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
        if not any(places):
            raise UserError(f"the shards in {', '.join(map(str, folders))} are empty")
        return cls(shards, places)

    def missing(self) -> list[str]:
        """Return the shards that the names of the others speak of, as ``train-00003-of-00008``."""
        known = {name for name, _ in self.shards}
        totals = {name.rpartition("-of-")[2] for name in known if "-of-" in name}
        return [
            name
            for total in sorted(filter(str.isdecimal, totals))
            for number in range(int(total))
            if (name := f"train-{number:05d}-of-{total}") not in known
        ]

    @cached_property
    def ends(self) -> list[int]:
        """For each shard the samples up to its end."""
        return list(accumulate(map(len, self.places)))

    def __len__(self) -> int:
        return self.ends[-1]

    def path(self, shard: int) -> Path:
        """Return the file through which a shard is read."""
        name, folders = self.shards[shard]
        return Path(folders[mount_of(shard, range(len(folders)))], name)


@dataclass
class DecodedImages(torch.utils.data.Dataset[Any]):
    """What a worker process does: a number of an epoch and a sample becomes pixels and a label."""

    data: DataSet
    size: int
    seed: int
    distort: bool = False
    _files: dict[int, int] = field(default_factory=dict)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        """Return pixels (size, size, 3) as bytes, and the label."""
        from PIL import Image, UnidentifiedImageError

        epoch, sample = key
        shard, record = locate(sample, self.data.ends)
        if shard not in self._files:
            self._files[shard] = os.open(self.data.path(shard), os.O_RDONLY | os.O_CLOEXEC)
        offset, length = self.data.places[shard][record]
        content = decode(os.pread(self._files[shard], length, offset))
        try:
            with Image.open(io.BytesIO(content.jpeg)) as image:
                pixels = cut(image, self.size, random.Random(f"{self.seed}/{epoch}/{sample}"), self.distort)
        except (UnidentifiedImageError, OSError) as error:
            raise DamagedRecordError(
                f"{self.data.path(shard)}: record {record} is no image: {error}"
            ) from error
        flat = torch.frombuffer(bytearray(pixels.tobytes()), dtype=torch.uint8)
        return flat.view(self.size, self.size, 3), content.label


def cut(image: Image, size: int, chance: random.Random, distort: bool = False) -> Image:
    """Return a random part of an image, scaled to a square, perhaps mirrored; with ``distort`` recoloured.

    Source: Szegedy et al. 2014, section 6: 8 to 100 % of the area, aspect ratio 3:4 to 4:3.
    """
    from PIL import Image as Pillow
    from PIL import ImageEnhance

    share = chance.uniform(AREA_SMALLEST, 1.0)
    aspect = ASPECT_LARGEST ** chance.uniform(-1, 1)
    width = min(image.width, max(1, round((image.width * image.height * share * aspect) ** 0.5)))
    height = min(image.height, max(1, round((image.width * image.height * share / aspect) ** 0.5)))
    left, top = chance.randint(0, image.width - width), chance.randint(0, image.height - height)
    box = (left, top, left + width, top + height)
    whole = image.size
    # The decoder leaves out what a smaller scale does not need: at most 2, 4 or 8 times.
    image.draft("RGB", (whole[0] * size // width, whole[1] * size // height))
    scale_x, scale_y = image.width / whole[0], image.height / whole[1]
    scaled = (box[0] * scale_x, box[1] * scale_y, box[2] * scale_x, box[3] * scale_y)
    part = image.convert("RGB").resize((size, size), Pillow.Resampling.BILINEAR, box=scaled)
    if chance.random() < 0.5:
        part = part.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT)
    if distort:
        part = ImageEnhance.Brightness(part).enhance(chance.uniform(0.875, 1.125))
        part = ImageEnhance.Color(part).enhance(chance.uniform(0.5, 1.5))
    return part


class ImageReader:
    """Batches of one rank, without end; iterate over it once.

    Args:
        data: the data set, also an attribute.
        batch_size: images of a batch.
        image_size: height and width in pixels.
        rank: of this process.
        ranks: number of ranks that share an epoch.
        device: on which batches are wanted.
        workers: decoding processes.
        prefetch: batches that each worker keeps ready.
        seed: the same on all ranks.
        distort: also recolour images.
    """

    def __init__(
        self,
        data: DataSet,
        *,
        batch_size: int,
        image_size: int,
        rank: int,
        ranks: int,
        device: torch.device,
        workers: int,
        prefetch: int = 2,
        seed: int = 0,
        distort: bool = False,
    ) -> None:
        samples = rank_samples(len(data), rank=rank, ranks=ranks, seed=seed)
        batches = ([next(samples) for _ in range(batch_size)] for _ in iter(int, 1))
        self.data = data
        self._device = device
        self._loader = torch.utils.data.DataLoader(
            DecodedImages(data, image_size, seed, distort),
            batch_sampler=batches,  # type: ignore[arg-type,unused-ignore]
            num_workers=workers,
            prefetch_factor=prefetch if workers else None,
            pin_memory=device.type == "cuda",
        )
        self._waited_s = 0.0
        self._began: float | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        source = iter(self._loader)
        while True:
            if self._device.type == "cuda" and self._began is not None:
                torch.cuda.synchronize()  # else work that is still queued would pass for waiting
            begin = time.perf_counter()
            pixels, labels = next(source)
            now = time.perf_counter()
            if self._began is not None:
                self._waited_s += now - begin
            yield self._convert(pixels), labels.to(self._device, non_blocking=True)

    def _convert(self, pixels: Tensor) -> Tensor:
        """Return pixels as floats from -1 to 1; in memory channels come last, as they are."""
        images = pixels.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        return images.float().div_(127.5).sub_(1.0)

    def start_clock(self) -> None:
        """Count waiting from now on: the warm-up is over."""
        self._began, self._waited_s = time.perf_counter(), 0.0

    def stall(self) -> float:
        """Return the share of the time since ``start_clock`` that went into waiting, 0 to 1."""
        if self._began is None:
            return 0.0
        return self._waited_s / max(1e-9, time.perf_counter() - self._began)


def default_workers(local_ranks: int) -> int:
    """Return how many decoding processes a rank has: its share of the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(WORKERS_MAX, cores // max(1, local_ranks)))


def stall_line(stalls: Sequence[float]) -> str:
    """Return the line about waiting, for the shares of all ranks."""
    mean, worst = sum(stalls) / len(stalls), max(stalls)
    line = f"Ranks waited {100 * mean:.1f} % of the time for data"
    return line + (f" (rank {stalls.index(worst)}: {100 * worst:.1f} %)" if len(stalls) > 1 else "")
