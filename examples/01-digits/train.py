"""Train a small network on handwritten digits with data-parallel SGD: one MPI rank for each shard.

Every rank holds the same parameters and takes its share of each global batch; one Allreduce sums the
gradients, so that all ranks take the same step. Run it alone, or with `mpirun -n 4 python3 train.py`.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

SHAPES = [(64, 128), (128,), (128, 10), (10,)]  # hidden weights and bias, output weights and bias
TEST_SIZE, BATCH_SIZE, LEARNING_RATE, MOMENTUM = 360, 96, 0.1, 0.9


def load(path):
    """Return train images, train labels, test images, test labels, split at random with a fixed seed."""
    table = np.random.default_rng(0).permutation(np.loadtxt(path, delimiter=","))
    images, labels = table[:, :64] / 16, table[:, 64].astype(int)
    return images[:-TEST_SIZE], labels[:-TEST_SIZE], images[-TEST_SIZE:], labels[-TEST_SIZE:]


def split(flat):
    """Return views of one flat vector, a view for each parameter: one Allreduce then moves all of them."""
    parts = np.split(flat, np.cumsum([np.prod(shape) for shape in SHAPES])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def forward(parameters, images):
    w1, b1, w2, b2 = parameters
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = np.exp(hidden @ w2 + b2)
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def backward(parameters, gradients, images, labels, batch_size):
    """Fill `gradients` with this shard's part of the batch's mean gradient; return its part of the loss."""
    (hidden, scores), rows = forward(parameters, images), np.arange(len(labels))
    loss = -np.log(scores[rows, labels]).sum() / batch_size
    scores[rows, labels] -= 1
    scores /= batch_size
    hidden_error = (scores @ parameters[2].T) * (hidden > 0)
    terms = images.T @ hidden_error, hidden_error.sum(axis=0), hidden.T @ scores, scores.sum(axis=0)
    for gradient, value in zip(gradients, terms, strict=True):
        gradient[...] = value
    return loss


def train(comm, data, epochs, report=print):
    """Train over the ranks of `comm` and return all parameters as one vector, and the test accuracy."""
    images, labels, test_images, test_labels = data
    random = np.random.default_rng(1)  # the same seed: the same start and the same batches on every rank
    flat = random.normal(scale=0.15, size=sum(int(np.prod(shape)) for shape in SHAPES))
    step, speed = np.empty(flat.size + 1), np.zeros_like(flat)  # the last number of `step` is the loss
    parameters, gradients = split(flat), split(step[:-1])
    for epoch in range(1, epochs + 1):
        started, losses = time.perf_counter(), []
        order = random.permutation(len(images))
        for batch in np.split(order, range(BATCH_SIZE, len(order), BATCH_SIZE)):
            shard = batch[comm.rank :: comm.size]
            step[-1] = backward(parameters, gradients, images[shard], labels[shard], len(batch))
            comm.Allreduce(MPI.IN_PLACE, step)
            speed[:] = MOMENTUM * speed + step[:-1]
            flat -= LEARNING_RATE * speed
            losses.append(step[-1])
        if len(set(comm.allgather(hashlib.sha256(flat.tobytes()).hexdigest()))) != 1:
            raise SystemExit(f"rank {comm.rank}: the ranks' parameters differ after epoch {epoch}")
        accuracy = float((forward(parameters, test_images)[1].argmax(axis=1) == test_labels).mean())
        rate = f"{len(images) / (time.perf_counter() - started):7,.0f} images/s"
        report(f"epoch {epoch:2}  loss {np.mean(losses):.4f}  accuracy {accuracy:6.2%}  {rate}")
    return flat, accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--compare", action="store_true", help="train again on rank 0 alone and compare")
    options = parser.parse_args()
    comm, data = MPI.COMM_WORLD, load(Path(__file__).with_name("digits.csv.gz"))
    hosts = ", ".join(dict.fromkeys(comm.allgather(os.environ.get("HOSTNAME") or MPI.Get_processor_name())))
    say = (lambda line: print(line, flush=True)) if comm.rank == 0 else (lambda line: None)
    say(f"{comm.size} ranks on {hosts}; {len(data[0])} images, batch {BATCH_SIZE}")
    flat, accuracy = train(comm, data, options.epochs, say)
    say(f"test accuracy {accuracy:.2%}; parameters identical on {comm.size} ranks after every epoch")
    if options.epochs >= 10 and accuracy < 0.97:
        raise SystemExit(f"rank {comm.rank}: test accuracy {accuracy:.2%} is below 97 %")
    if options.compare and comm.rank == 0:
        difference = np.abs(flat - train(MPI.COMM_SELF, data, options.epochs, lambda line: None)[0]).max()
        say(f"largest difference from one process with the same global batch: {difference:.1e}")
        if difference > 1e-5:
            raise SystemExit("more than 1e-5 away from one process")


if __name__ == "__main__":
    main()
