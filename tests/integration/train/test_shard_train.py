"""A data set's share of each rank: whole batches on all, nothing lost or twice, on any number of ranks."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.train

SCRIPT = """
import json, random, types
import torch
from torch.utils.data import DataLoader
from gangline.train import Session
from gangline.train.data.shard import Shard

def read(count, size, batch, passes, *, done=0, **options):
    each = [Shard(range(count), r, size, batch_size=batch, done=done, **options) for r in range(size)]
    steps = []
    for _ in range(passes):
        loaders = [DataLoader(range(count), batch_size=batch, sampler=one) for one in each]
        assert len({len(one) for one in each}) == 1
        whole = [[batch.tolist() for batch in loader] for loader in loaders]
        assert all(len(one) == batch for rank in whole for one in rank)
        steps += [[rank[j] for j in range(batch) for rank in ranks] for ranks in zip(*whole, strict=True)]
    return steps

generator = random.Random(1)
for _ in range(200):
    size, batch = generator.randint(1, 5), generator.randint(1, 6)
    count = generator.randint(size * batch, size * batch * 4)
    seen = sum(read(count, size, batch, 7, seed=3), [])
    for epoch in range(len(seen) // count):
        assert sorted(seen[epoch * count:(epoch + 1) * count]) == list(range(count)), (count, size, batch)
assert read(48, 4, 3, 2, seed=5) == read(48, 2, 6, 2, seed=5)  # the same global batches on half the ranks
assert read(48, 4, 3, 2, seed=5)[3:] == read(48, 2, 6, 2, seed=5, done=36)[:5]
assert read(48, 4, 3, 1) != read(48, 4, 3, 1, seed=1)
assert read(6, 2, 1, 1, shuffle=False) == [[0, 1], [2, 3], [4, 5]]
try:
    Shard(range(7), 0, 4, batch_size=2)
except Exception as error:
    print("error", error, flush=True)

compiled = torch.compile(torch.nn.Linear(2, 2))
assert type(Session.unwrap(compiled)) is torch.nn.Linear
print("fine", flush=True)
"""


def test_shares_are_whole_batches_and_follow_from_the_samples_done(ranks, torch_python, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ranks.start(torch_python, script, 1)

    assert ranks.wait() == [0], ranks.log(0)
    assert "fine\n" in ranks.log(0)
    assert "error shard() of 7 samples: 4 ranks with batches of 2 take 8 in a step" in ranks.log(0)


TOGETHER = """
import json, os
import torch, gangline.train
with gangline.train.init() as session:
    model = session.parallel(torch.nn.Linear(2, 1))
    assert type(session.unwrap(model)) is torch.nn.Linear
    with model.no_sync():
        model(torch.ones(1, 2)).sum().backward()
    loss = torch.tensor(float(session.rank + 1))
    found = [session.reduce({"loss": loss, "seen": 2}, how) for how in ("mean", "sum", "max")]
    os.write(1, (json.dumps(found) + "\\n").encode())
    progress = session.progress(stop_at_nan=True, lines=False)
    progress.step(loss)
    progress.step(float("nan") if session.rank == session.size - 1 else loss)
    session.barrier()
"""


@pytest.mark.parametrize("size", [1, 3])
def test_numbers_of_all_ranks_and_a_loss_that_is_none(ranks, torch_python, tmp_path, size) -> None:
    script = tmp_path / "script.py"
    script.write_text(TOGETHER)
    ranks.start(torch_python, script, size)

    assert ranks.wait() == [1] * size, ranks.log(0)
    for rank in range(size):
        found = json.loads(next(line for line in ranks.log(rank).splitlines() if line.startswith("[{")))
        assert [one["loss"] for one in found] == [(size + 1) / 2, size * (size + 1) / 2, size]
        assert [one["seen"] for one in found] == [2, 2 * size, 2]
    said = f"NotFiniteError: the loss of rank {size - 1} is nan after step 2"
    assert said in ranks.log(size - 1)
    if size > 1:
        assert "PeerLostError: rank 2" in ranks.log(0)
