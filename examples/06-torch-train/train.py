"""Train the digits network with `gangline.train`: any launcher, progress, checkpoints, exact resume.

The same script runs under `gangline run`, mpirun of any MPI, srun, torchrun, in a PyTorchJob, and alone.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gangline.train

TEST_SIZE, BATCH_SIZE, LEARNING_RATE, MOMENTUM = 360, 96, 0.1, 0.9


def load(path):
    """Return train images, train labels, test images, test labels, split at random with a fixed seed."""
    table = torch.from_numpy(np.random.default_rng(0).permutation(np.loadtxt(path, delimiter=","))).float()
    images, labels = table[:, :64] / 16, table[:, 64].long()
    return images[:-TEST_SIZE], labels[:-TEST_SIZE], images[-TEST_SIZE:], labels[-TEST_SIZE:]


def batch_of(step, count):
    """Return the images of a step: a new order every epoch, the same on all ranks and after a resume."""
    epoch, place = divmod(step, -(-count // BATCH_SIZE))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    return order[place * BATCH_SIZE : (place + 1) * BATCH_SIZE]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--checkpoints", default="checkpoints", help="folder, made if absent")
    parser.add_argument(
        "--kill-at", type=int, help="kill -9 of the last rank at this step, to try the resume"
    )
    parser.add_argument("--hang-at", type=int, help="the last rank loops for ever at this step")
    options = parser.parse_args()

    with gangline.train.init() as session:
        images, labels, test_images, test_labels = load(Path(__file__).with_name("digits.csv.gz"))
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
        parallel = session.parallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        torch.manual_seed(1 + session.rank)  # every rank drops others out

        checkpoints = session.checkpoints(options.checkpoints)
        found = checkpoints.resume()
        done = found.step if found else 0
        if found:
            model.load_state_dict(found.state["model"])
            optimizer.load_state_dict(found.state["optimizer"])
        if session.rank == 0:
            ranks = session.ranks
            print(
                f"{session.size} ranks ({ranks.launcher}), {session.backend} on {session.device}, step {done}"
            )

        progress = session.progress(steps=options.steps, items_per_step=BATCH_SIZE, done=done, interval_s=5)
        for step in range(done, options.steps):
            batch = batch_of(step, len(images))
            shard = batch[session.rank :: session.size]
            meddle(step, options, session)
            loss = nn.functional.cross_entropy(parallel(images[shard]), labels[shard], reduction="sum")
            loss = loss * session.size / len(batch)  # gradients are averaged over the ranks
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress.step(loss)
            if (step + 1) % options.save_every == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                checkpoints.save(step + 1, state)
        progress.close()

        if session.rank == 0:
            model.eval()
            accuracy = (model(test_images).argmax(dim=1) == test_labels).double().mean().item()
            flat = nn.utils.parameters_to_vector(model.parameters()).detach()
            print(
                f"accuracy {accuracy:.2%}, digest {hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]}"
            )


def meddle(step, options, session):
    """Do what goes wrong in real life, if asked to."""
    if session.rank != session.size - 1:
        return
    if step == options.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    while step == options.hang_at:
        pass


if __name__ == "__main__":
    main()
