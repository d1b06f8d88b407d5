"""Make a data set of labelled JPEG files in ImageNet's form, where there is no ImageNet.

Generated and seeded: the same arguments give the same bytes on every machine with the same Pillow. Sizes
are ImageNet's (mean 500 x 375 pixels and about 110 KB). Every class has a colour and a pattern of its own,
so that a network learns something. Needs numpy and Pillow.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.bench.records import LabelledImage, encode, frame
from gangline.errors import UserError

SHARD_IMAGES = 1024
CLASSES = 1000
QUALITY = 90


@dataclass(frozen=True, slots=True)
class DataPlan:
    """What is to be made.

    Attributes:
        images: in all.
        folders: shard i lies in folder i modulo their number.
        shards: number of files.
        classes: labels are 1 to this.
        seed: of everything random.
    """

    images: int
    folders: tuple[str, ...]
    shards: int
    classes: int = CLASSES
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.images < 1 or self.shards < 1 or self.classes < 1 or not self.folders:
            raise UserError("images, shards and classes must be at least 1, and there must be a folder")
        if self.shards > self.images:
            raise UserError(f"{self.images} images do not fill {self.shards} shards")

    def path(self, shard: int) -> Path:
        """Return the file of a shard, named as ImageNet's are."""
        name = f"train-{shard:05d}-of-{self.shards:05d}"
        return Path(self.folders[shard % len(self.folders)], name)

    def members(self, shard: int) -> range:
        """Return the numbers of the images in a shard; sizes differ by one at most."""
        return range(self.images * shard // self.shards, self.images * (shard + 1) // self.shards)


def draw(number: int, plan: DataPlan) -> LabelledImage:
    """Return one image of the data set."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng([plan.seed, number])
    label = 1 + int(random.integers(plan.classes))
    width, height = (int(value) for value in np.clip(random.normal([500, 375], [60, 50]), 160, 800))
    look = np.random.default_rng([plan.seed, plan.classes, label])
    colour, angle, pitch = look.uniform(40, 215, 3), look.uniform(0, np.pi), look.uniform(6, 40)
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    phase = random.uniform(0, 2 * np.pi)
    waves = np.sin((columns * np.cos(angle) + rows * np.sin(angle)) * (2 * np.pi / pitch) + phase)
    coarse = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    clouds = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
    grain = random.normal(0, 14, (height, width, 1)).astype(np.float32)
    pixels = 0.5 * clouds + 0.5 * colour.astype(np.float32) + 40 * waves[..., None] + grain
    buffer = io.BytesIO()
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    image.save(buffer, "JPEG", quality=QUALITY)
    return LabelledImage(buffer.getvalue(), label)


def write_shard(plan: DataPlan, shard: int) -> int:
    """Write one file, whole or not at all, and return its size in bytes."""
    target = plan.path(shard)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with draft.open("wb") as file:
        for number in plan.members(shard):
            file.write(frame(encode(draw(number, plan))))
        size = file.tell()
    draft.replace(target)
    return size


def make_data(plan: DataPlan, *, workers: int, done: Callable[[int, int], Any]) -> int:
    """Write all files in several processes and return their size in bytes.

    Args:
        plan: what to make.
        workers: number of processes.
        done: called with the shards and bytes that are written, after each shard.

    Raises:
        UserError: a folder cannot be written to, or holds other shards.
    """
    for folder in plan.folders:
        _prepare(Path(folder), plan)
    total = 0
    if workers == 1:
        for shard in range(plan.shards):
            total += write_shard(plan, shard)
            done(shard + 1, total)
        return total
    with ProcessPoolExecutor(workers) as pool:
        sizes = pool.map(write_shard, [plan] * plan.shards, range(plan.shards))
        for count, size in enumerate(sizes, 1):
            total += size
            done(count, total)
    return total


def _prepare(folder: Path, plan: DataPlan) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    own = {plan.path(shard).name for shard in range(plan.shards)}
    others = sorted(path.name for path in folder.glob("train-*") if path.name not in own)
    if others:
        raise UserError(
            f"{folder} holds shards of another data set, `{others[0]}`",
            hint="remove them, or name an empty folder: readers take all `train-*` files for one set",
        )


def default_shards(images: int, folders: Sequence[str]) -> int:
    """Return the number of files: about 1,024 images each, and enough for every folder."""
    return min(images, max(len(folders), -(-images // SHARD_IMAGES)))
