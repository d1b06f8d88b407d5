"""Images/s of the benchmarks' image reader beside Pillow in a loop on the same cores.

    python benchmarks/train_reader.py [--images 600] [--workers 1,2] [--rounds 3]

needs a Python with torch and Pillow: this one, or the one that GANGLINE_TRAIN_PYTHON names. Both decode the
same JPEG files, made in a temporary folder, cut out 224 x 224 pixels and mirror them. The loop is what a user
writes without a library: one process for each core, each with a share of the files, nothing batched.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
BATCH, SIZE = 32, 224


def main() -> None:
    parser = argparse.ArgumentParser(description="images/s of the image reader against Pillow in a loop")
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    python = os.environ.get("GANGLINE_TRAIN_PYTHON", sys.executable)
    if python != sys.executable:
        os.execve(python, [python, *sys.argv], os.environ | {"PYTHONPATH": str(REPOSITORY / "src")})
    from gangline.bench.make_data import DataPlan, make_data

    with tempfile.TemporaryDirectory() as folder:
        plan = DataPlan(options.images, (folder,), shards=4)
        size = make_data(plan, workers=len(os.sched_getaffinity(0)), done=lambda *_: None)
        print(f"{options.images} images of {size / options.images / 1e3:.0f} KB on the average")
        print(f"{'workers':>7} {'reader':>10} {'loop':>10} {'ratio':>7}")
        for workers in map(int, options.workers.split(",")):
            ours, loop = [], []
            for _ in range(options.rounds):
                ours.append(read(folder, options.images, workers))
                loop.append(plain_loop(folder, options.images, workers))
            first, second = statistics.median(ours), statistics.median(loop)
            print(f"{workers:>7} {first:>8.1f}/s {second:>8.1f}/s {first / second:>6.2f}x", flush=True)


def read(folder: str, images: int, workers: int) -> float:
    """Return images/s of the reader, the start of its workers left out."""
    import torch

    from gangline.bench.image_reader import DataSet, ImageReader

    data = DataSet.find([Path(folder)])
    reader = ImageReader(
        data,
        batch_size=BATCH,
        image_size=SIZE,
        rank=0,
        ranks=1,
        device=torch.device("cpu"),
        workers=workers,
    )
    batches = iter(reader)
    for _ in range(2 * workers + 1):  # what is prefetched while the workers start
        next(batches)
    begin, count = time.perf_counter(), max(1, images // BATCH)
    for _ in range(count):
        next(batches)
    return count * BATCH / (time.perf_counter() - begin)


def plain_loop(folder: str, images: int, workers: int) -> float:
    """Return images/s of Pillow in a loop in so many processes, their start left out."""
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(abs, range(workers)))
        begin = time.perf_counter()
        done = sum(pool.map(decode_share, [folder] * workers, range(workers), [workers] * workers))
        return done / (time.perf_counter() - begin)


def decode_share(folder: str, share: int, shares: int) -> int:
    """Decode every image of a share, as a user would, and return their number."""
    import io
    import random

    from PIL import Image, ImageOps

    from gangline.bench.records import decode, index

    count = 0
    for path in sorted(Path(folder).glob("train-*")):
        with path.open("rb") as file:
            for number, (offset, length) in enumerate(index(path)):
                if number % shares != share:
                    continue
                file.seek(offset)
                image = Image.open(io.BytesIO(decode(file.read(length)).jpeg)).convert("RGB")
                area = random.uniform(0.08, 1.0) ** 0.5
                width, height = int(image.width * area), int(image.height * area)
                left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
                image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE))
                if random.random() < 0.5:
                    image = ImageOps.mirror(image)
                image.tobytes()
                count += 1
    return count


if __name__ == "__main__":
    main()
