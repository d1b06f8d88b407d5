"""Saves that are killed: rounds of two ranks that resume, save on, and are ended by SIGKILL at any moment.

Words: FOLDER ROUNDS SEED. This process has imported torch once and forks the ranks.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed.checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import gangline.train

NUMBERS = 5000


def rank(number, folder, acknowledge, sharded):
    """Resume, check, and save until killed; every save that returned is told."""
    session = gangline.train.init(shared_memory=False)
    checkpoints = session.checkpoints(folder, keep=2)
    found = checkpoints.resume()
    step = 0
    if found is not None:
        step = found.step
        for name in found.state:
            weight = found.state[name]
            whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
            assert torch.equal(whole, torch.full((NUMBERS,), float(step))), (name, step, whole)
        assert found.own == {"step": step, "rank": number}, found.own
    os.write(acknowledge, f"resumed {step}\n".encode())
    while True:
        step += 1
        weight = torch.full((NUMBERS,), float(step))
        state = {"plain": weight}
        if sharded:
            state["spread"] = distribute_tensor(weight, init_device_mesh("cpu", (2,)), [Shard(0)])
        checkpoints.save(step, state, own={"step": step, "rank": number})
        os.write(acknowledge, f"saved {step}\n".encode())


def main():
    folder, rounds, generator = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    acknowledged, tried, waited = 0, 0, []
    for turn in range(rounds):
        reads, writes = zip(*(os.pipe() for _ in range(2)), strict=True)
        pids = []
        for number in range(2):
            if (pid := os.fork()) == 0:
                os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number)}
                os.environ |= {"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": f"{os.getppid()}-{turn}"}
                try:
                    rank(number, folder, writes[number], turn % 3 == 2)
                except BaseException as error:
                    # a rank may notice the other's end before its own
                    os.write(
                        writes[number], f"error {type(error).__name__}: {error}\n".replace("\n", " ").encode()
                    )
                    os.write(writes[number], b"\n")
                os._exit(1)
            pids.append(pid)
        for end in writes:
            os.close(end)
        first = os.read(reads[0], 4096)  # it has resumed
        time.sleep(generator.random() * 0.3)
        for pid in generator.sample(pids, 2):
            os.kill(pid, signal.SIGKILL)
            time.sleep(generator.choice((0, 0, 0.005)))
        said = [first + rest(reads[0]), rest(reads[1])]
        for pid in pids:
            os.waitpid(pid, 0)
        lines = [line for one in said for line in one.decode().splitlines()]
        resumed = {int(line.split()[1]) for line in lines if line.startswith("resumed")}
        assert resumed, (turn, lines)
        assert len(resumed) == 1, (turn, lines)
        assert min(resumed) >= acknowledged, f"round {turn}: step {acknowledged} was lost: {lines}"
        saved = [int(line.split()[1]) for line in lines if line.startswith("saved")]
        tried += len(saved)
        acknowledged = max([acknowledged, *saved])
        waited.append(max(resumed))
    print(f"{rounds} rounds, {tried} saves acknowledged, last step {acknowledged}, none lost", flush=True)


def rest(end):
    data = b""
    while piece := os.read(end, 65536):
        data += piece
    os.close(end)
    return data


if __name__ == "__main__":
    main()
