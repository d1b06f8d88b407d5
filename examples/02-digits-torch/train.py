"""Train the digits network with torch.distributed: a plain script that knows neither MPI nor Gangline.

It reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from its environment, as torch does under any launcher;
without them it trains alone.
"""

import argparse
import gc
import hashlib
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST_SIZE, BATCH_SIZE, LEARNING_RATE, MOMENTUM = 360, 96, 0.1, 0.9


def load(path):
    """Return train images, train labels, test images, test labels, split at random with a fixed seed."""
    table = torch.from_numpy(np.random.default_rng(0).permutation(np.loadtxt(path, delimiter=",")))
    images, labels = table[:, :64] / 16, table[:, 64].long()
    return images[:-TEST_SIZE], labels[:-TEST_SIZE], images[-TEST_SIZE:], labels[-TEST_SIZE:]


def digest(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def train(data, rank, size, options, report):
    """Train as `rank` of `size`, each with its share of every global batch; return all parameters."""
    images, labels, test_images, test_labels = data
    torch.manual_seed(1)  # the same seed: the same start and the same batches on every rank
    model = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10)).double()
    parallel = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for epoch in range(1, options.epochs + 1):
        started, losses = time.perf_counter(), []
        for batch in torch.randperm(len(images)).split(BATCH_SIZE):
            shard = batch[rank::size]
            loss = nn.functional.cross_entropy(parallel(images[shard]), labels[shard], reduction="sum")
            loss = loss * size / len(batch)  # DistributedDataParallel divides the sum of gradients by size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if size > 1:
            digests = [None] * size
            dist.all_gather_object(digests, digest(model))
            if len(set(digests)) != 1:
                raise SystemExit(f"rank {rank}: the ranks' parameters differ after epoch {epoch}")
        accuracy = (model(test_images).argmax(dim=1) == test_labels).double().mean().item()
        rate = f"{len(images) / (time.perf_counter() - started):7,.0f} images/s"
        report(f"epoch {epoch:2}  loss {np.mean(losses):.4f}  accuracy {accuracy:6.2%}  {rate}")
    if options.epochs >= 10 and accuracy < 0.97:
        raise SystemExit(f"rank {rank}: test accuracy {accuracy:.2%} is below 97 %")
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=128, help="width of the hidden layer")
    parser.add_argument("--compare", action="store_true", help="train again on rank 0 alone and compare")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        dist.init_process_group("gloo")
    say = (lambda line: print(line, flush=True)) if rank == 0 else (lambda line: None)
    data = load(Path(__file__).with_name("digits.csv.gz"))
    say(f"{size} ranks; {len(data[0])} images, batch {BATCH_SIZE}")
    flat = train(data, rank, size, options, say)
    say(f"parameters identical on {size} ranks after every epoch")
    if options.compare and rank == 0:
        difference = (flat - train(data, 0, 1, options, lambda line: None)).abs().max().item()
        say(f"largest difference from one process with the same global batch: {difference:.1e}")
        if difference > 1e-5:
            raise SystemExit("more than 1e-5 away from one process")
    if size > 1:
        gc.collect()  # what DistributedDataParallel wrapped goes before the group does, or torch may abort
        dist.barrier()  # rank 0 holds the store: nobody leaves before all have finished
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
