"""Trains a GPT on random tokens and says how many a second; every rank runs it.

`gangline bench tokens` starts it; under any launcher ``python .../gangline/bench/tokens.py`` does the same.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry
from gangline.bench.entry import say
from gangline.bench.tokens_figures import Tokens, peak_tflops, tokens_of

WARM_UP_STEPS = 3


def options(words: Sequence[str]) -> argparse.Namespace:
    """Return what is asked for."""
    parser = argparse.ArgumentParser(prog="gangline bench tokens", description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["gpt2", "small"], default="small")
    parser.add_argument("--parallel", choices=["ddp", "fsdp2"], default="ddp")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch-size", type=int, default=4, help="sequences for each rank and step")
    parser.add_argument("--sequence", type=int, default=0, help="tokens; 0 is the model's own")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--peak-tflops", type=float, default=None)
    parser.add_argument("--json", default="")
    return parser.parse_args(list(words))


def main(words: Sequence[str]) -> None:
    """Train, and have rank 0 say and write the figures."""
    asked = options(words)
    entry.require("torch")
    entry.check_writable(asked.json)
    import torch

    import gangline.train
    from gangline.bench.models.gpt import SHAPES, Gpt, flops_of_token

    with gangline.train.init() as session:
        shape = SHAPES[asked.model]
        sequence = min(asked.sequence or shape.sequence, shape.sequence)
        torch.manual_seed(1)
        model = Gpt(shape)
        count = sum(parameter.numel() for parameter in model.parameters())
        network = _spread(session, model, asked.parallel, asked.precision)
        times_s, loss = _train(session, network, asked, sequence, shape.vocabulary)
        every: list[Any] = [None] * session.size
        mine = (times_s, entry.machine())
        if session.size > 1:
            import torch.distributed as dist

            dist.all_gather_object(every, mine)
        else:
            every = [mine]
        if session.rank == 0:
            device = every[0][1]["gpu"] or "cpu"
            peak = asked.peak_tflops or peak_tflops(device)
            flops = flops_of_token(count, shape, sequence)
            figures = tokens_of([times for times, _ in every], asked.batch_size * sequence, flops, peak)
            result = _result(asked, session, every, figures, count, sequence, peak, loss)
            _tell(result)
            entry.write_result(asked.json, result)


def _train(
    session: Any, network: Any, asked: argparse.Namespace, sequence: int, words: int
) -> tuple[list[float], float]:
    """Train on random words; return the times of the steps that count, and the last loss."""
    import torch

    from gangline.bench.training import StepClock

    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, fused=asked.parallel == "ddp")
    dtype = torch.bfloat16 if asked.precision == "bf16" and asked.parallel == "ddp" else None
    random = torch.Generator(session.device).manual_seed(session.rank)
    clock = StepClock(session.device)
    items = asked.batch_size * sequence * session.size
    progress = session.progress(steps=WARM_UP_STEPS + asked.steps, items_per_step=items, unit="tokens")
    for step in range(WARM_UP_STEPS + asked.steps):
        size = (asked.batch_size, sequence + 1)
        batch = torch.randint(words, size, generator=random, device=session.device)
        if step >= WARM_UP_STEPS:
            clock.begin()
        optimizer.zero_grad()
        with torch.autocast(session.device.type, dtype, enabled=dtype is not None):
            loss = network(batch)
        loss.backward()
        optimizer.step()
        if step >= WARM_UP_STEPS:
            clock.end()
        progress.step(loss)
    return list(clock.step_times_s()), float(loss.detach())


def _spread(session: Any, model: Any, parallel: str, precision: str) -> Any:
    """Return the model with its gradients averaged, or its parameters spread, over the ranks."""
    if parallel == "ddp":
        return session.parallel(model)
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    rules = {
        "mesh": init_device_mesh(session.device.type, (session.size,)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32),
    }
    model = model.to(session.device)
    for block in model.blocks:
        fully_shard(block, **rules)
    return fully_shard(model, **rules)


def _result(
    asked: argparse.Namespace,
    session: Any,
    every: Sequence[Any],
    figures: Tokens,
    parameters: int,
    sequence: int,
    peak: float | None,
    loss: float,
) -> dict[str, Any]:
    from gangline import __version__

    step_tokens = asked.batch_size * sequence
    ranks = [
        {
            "rank": rank,
            "host": machine["host"],
            "tokens_per_s": round(each, 1),
            "step_s": round(step_tokens / each, 5),
        }
        for rank, ((_, machine), each) in enumerate(zip(every, figures.each, strict=True))
    ]
    is_shared = session.backend == "gangline" and session.size > 1 and not session.no_shared_memory
    return {
        "benchmark": "tokens",
        "version": __version__,
        "command": shlex.join(sys.argv),
        "model": asked.model,
        "parameters": parameters,
        "parallel": asked.parallel,
        "precision": asked.precision,
        "backend": session.backend,
        "gradients": "shared memory" if is_shared else "",
        "batch_size": asked.batch_size,
        "sequence": sequence,
        "steps": asked.steps,
        "loss": round(loss, 4),
        "tokens_per_s": round(figures.total, 1),
        "mfu": None if figures.mfu is None else round(figures.mfu, 4),
        "peak_tflops": peak,
        "hosts": sorted({machine["host"] for _, machine in every}),
        "ranks": ranks,
        "machine": every[0][1],
    }


def _tell(result: dict[str, Any]) -> None:
    ranks, machine = result["ranks"], result["machine"]
    device = machine["gpu"] or machine["processor"]
    way = f"{result['parallel']} over {result['gradients'] or result['backend']}, {result['precision']}"
    say(f"model     {result['model']}, {result['parameters'] / 1e6:.1f} million parameters")
    say(f"ranks     {len(ranks)} on {', '.join(result['hosts'])}, {way}")
    say(f"device    {device}")
    speeds = ", ".join(f"{one['tokens_per_s']:,.0f}" for one in ranks[:8]) + (" …" if len(ranks) > 8 else "")
    say(f"each      {speeds} tokens/s")
    say(f"total     {result['tokens_per_s']:,.0f} tokens/s")
    if result["mfu"] is None:
        say("MFU       unknown: the peak of this device is not; --peak-tflops N gives it")
    else:
        say(f"MFU       {result['mfu']:.1%} of {result['peak_tflops']:.0f} TFLOP/s a device")


if __name__ == "__main__":
    entry.run(main)
