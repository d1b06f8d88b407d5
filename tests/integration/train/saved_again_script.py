"""One step saved twice, the second save killed before every single change of its files in turn.

Words: FOLDER MODE, which is ``plain`` or ``sharded``. This process imports torch once and forks the ranks.
"""

import itertools
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed.checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import gangline.train

STEP = 7
CHANGES = [(Path, "replace"), (Path, "unlink"), (shutil, "rmtree"), (os, "fsync")]
starts = itertools.count()


def save(checkpoints, number, content, sharded):
    weight = torch.full((64,), float(content))
    state = {"plain": weight}
    if sharded:
        state["spread"] = distribute_tensor(weight, init_device_mesh("cpu", (2,)), [Shard(0)])
    checkpoints.save(STEP, state, own=(content, number))


def content_of(checkpoints, number):
    found = checkpoints.resume()
    assert found is not None, "neither save is there"
    content, rank = found.own
    assert rank == number
    for name, weight in found.state.items():
        whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
        assert torch.equal(whole, torch.full((64,), float(content))), (name, content, whole)
    return content


def killed_before(change):
    """Have this process killed before its change number `change` of a file, counted from 0."""
    count = itertools.count()

    def dying(real):
        def call(*words, **named):
            if next(count) == change:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **named)

        return call

    for home, name in CHANGES:
        setattr(home, name, dying(getattr(home, name)))


def on_two_ranks(folder, work):
    """Return what `work(checkpoints, rank)` returned on each rank, None where it did not return."""
    turn, pids, ends = next(starts), [], []
    for number in range(2):
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number)}
            os.environ |= {"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": f"{os.getppid()}-{turn}"}
            try:
                session = gangline.train.init(shared_memory=False)
                answer = work(session.checkpoints(folder), number)
                os.write(writes, str(answer).encode())
                session.close()
            except AssertionError:
                traceback.print_exc()
            except BaseException:
                pass  # a rank notices the other's end
            os._exit(0)
        os.close(writes)
        pids.append(pid)
        ends.append(reads)
    said = []
    for pid, end in zip(pids, ends, strict=True):
        os.waitpid(pid, 0)
        said.append(os.read(end, 64).decode() or None)
        os.close(end)
    return said


def main():
    folder, sharded = Path(sys.argv[1]), sys.argv[2] == "sharded"
    old, seen = folder.with_name("old"), set()
    assert (
        on_two_ranks(old, lambda checkpoints, number: save(checkpoints, number, 1, sharded)) == ["None"] * 2
    )
    kills = 0
    for victim in range(2):
        for change in itertools.count():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(old, folder)

            def again(checkpoints, number, victim=victim, change=change):
                if number == victim:
                    killed_before(change)
                return save(checkpoints, number, 2, sharded)

            saved = on_two_ranks(folder, again)
            found = on_two_ranks(folder, content_of)
            assert found in (["1", "1"], ["2", "2"]), (
                victim,
                change,
                saved,
                found,
                sorted(path.name for path in folder.iterdir()),
            )
            if "None" in saved:  # it returned on some rank
                assert found == ["2", "2"], (victim, change, saved)
            seen.add(found[0])
            if saved == ["None", "None"]:
                assert len(list(folder.glob(f"step-{STEP:08d}.*"))) == (4 if sharded else 3)
                break
            kills += 1
    assert seen == {"1", "2"}
    for path in old.glob("*.pt"):  # named as before saves of one step were told apart
        path.rename(path.with_name(path.name.rsplit(".", 2)[0] + ".pt"))
    assert on_two_ranks(old, content_of) == ["1", "1"]
    print(f"{kills} kills, the old save or the new", flush=True)


if __name__ == "__main__":
    main()
