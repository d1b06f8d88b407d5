"""What a user would write: a network, DistributedDataParallel, SGD, one random batch; prints images/s.

Started by `train_images.py`, one process for each rank, with the variables that torch reads. torch's defaults
throughout; the networks are those of Gangline's benchmarks, so that both train the same one.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from torch import nn

from gangline.bench.models import build, find


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--half", action="store_true", help="autocast to fp16 with a loss scaler")
    parser.add_argument("--channels-last", action="store_true", help="the memory layout that torch advises")
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if is_gpu else torch.device("cpu")
    if is_gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(1234)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model = build(options.model, 1001).to(device, memory_format=layout)
    if ranks > 1:
        torch.distributed.init_process_group("nccl" if is_gpu else "gloo")
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank] if is_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, weight_decay=4e-5)
    loss_function = nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler(device.type, enabled=options.half)
    size = find(options.model).image_size
    images = torch.randn(options.batch, 3, size, size, device=device).to(memory_format=layout)
    labels = torch.randint(0, 1001, (options.batch,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=options.half):
            loss = loss_function(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def wait() -> None:
        if is_gpu:
            torch.cuda.synchronize()

    for _ in range(options.warmup):
        step()
    wait()
    begin = time.perf_counter()
    for _ in range(options.steps):
        step()
    wait()
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({"images_per_s": ranks * options.batch * options.steps / seconds}), flush=True)
    if ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
