"""A torch script of two ranks, start to end: `gangline run` beside torchrun and `launch`, in turns."""

from __future__ import annotations

import subprocess

from figures import Figure, elapsed_s, in_turns
from laboratory import Laboratory

SCRIPT = """\
import gc

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
network = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
for step in range(10):
    optimizer.zero_grad()
    loss = network(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} loss {loss.item():.3f}", flush=True)
# torch 2.13.0 aborts in 5 of 80 ranks ("terminate called without an active exception"), whatever starts
# them, where one leaves its group at once; in none of 80 where all meet first and the network is gone.
del network, loss
gc.collect()
dist.barrier()
dist.destroy_process_group()
"""


def run(laboratory: Laboratory) -> list[Figure]:
    python = laboratory.train_python
    if python is None:
        raise SystemExit(
            "script_start needs torch: `make test-train` makes the environment, or name its "
            "Python in GANGLINE_TRAIN_PYTHON"
        )
    script = laboratory.home / "ddp.py"
    script.write_text(SCRIPT)

    def took_s(*command: str) -> float:
        def once() -> None:
            done = subprocess.run(
                command,
                env=laboratory.environment | {"OMP_NUM_THREADS": "1"},
                cwd=laboratory.home,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            if done.returncode != 0 or "of 2 loss" not in done.stdout + done.stderr:
                raise SystemExit(
                    f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
                )

        return elapsed_s(once)

    program = ("-n", "2", "--", python, str(script))

    def cold_s() -> float:
        laboratory.gangline("down", check=False)
        return took_s(laboratory.program, "run", *program)

    torchrun = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    samples = in_turns(
        {
            "cold": cold_s,  # first, so that the cluster is up for the next one
            "run": lambda: took_s(laboratory.program, "run", *program),
            "launch": lambda: took_s(laboratory.program, "launch", *program),
            "torchrun": lambda: took_s(*torchrun),
        },
        laboratory.rounds,
    )
    beside = samples["torchrun"]
    return [
        Figure("gangline run -n 2, start to end, beside torchrun", "s", samples["run"], beside, goal="<= 1"),
        Figure("the same, no cluster up", "s", samples["cold"], beside),
        Figure(
            "gangline run -n 2 beside gangline launch", "s", samples["run"], samples["launch"], goal="<= 1.05"
        ),
    ]
