"""No sample is lost or read twice in an epoch, for any number of samples, shards and ranks."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, islice

from hypothesis import given
from hypothesis import strategies as st

from gangline.bench.make_data import DataPlan
from gangline.train.data.sampling import epoch_order, locate, mount_of, rank_samples


@given(count=st.integers(1, 300), seed=st.integers(0, 2**32), epoch=st.integers(0, 5))
def test_order_of_an_epoch_has_every_sample_once(count: int, seed: int, epoch: int) -> None:
    order = epoch_order(count, seed, epoch)

    assert sorted(order[place] for place in range(count)) == list(range(count))


@given(count=st.integers(1, 200), ranks=st.integers(1, 17), epochs=st.integers(1, 3), seed=st.integers(0, 99))
def test_ranks_read_every_sample_once_in_each_epoch(count: int, ranks: int, epochs: int, seed: int) -> None:
    each = -(-count * epochs // ranks)  # what every rank reads until all epochs are through
    read: Counter[tuple[int, int]] = Counter()
    for rank in range(ranks):
        read.update(islice(rank_samples(count, rank=rank, ranks=ranks, seed=seed), each))

    whole = {key: times for key, times in read.items() if key[0] < epochs}
    assert whole == {(epoch, sample): 1 for epoch in range(epochs) for sample in range(count)}
    assert max(read.values()) == 1


@given(seed=st.integers(0, 99), count=st.integers(20, 300))
def test_epochs_are_shuffled_anew_and_the_same_on_all_ranks(seed: int, count: int) -> None:
    first, again, second = (epoch_order(count, seed, epoch) for epoch in (0, 0, 1))
    orders = [[order[place] for place in range(count)] for order in (first, again, second)]

    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != list(range(count))


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any))
def test_every_record_of_every_shard_is_a_sample(sizes: list[int]) -> None:
    ends = list(accumulate(sizes))

    found = [locate(sample, ends) for sample in range(ends[-1])]

    assert found == [(shard, record) for shard, size in enumerate(sizes) for record in range(size)]


@given(images=st.integers(1, 500), shards=st.integers(1, 40), folders=st.integers(1, 5))
def test_every_image_is_made_in_one_shard(images: int, shards: int, folders: int) -> None:
    plan = DataPlan(images, tuple(map(str, range(folders))), min(shards, images))

    members = [number for shard in range(plan.shards) for number in plan.members(shard)]

    assert members == list(range(images))
    assert min(len(plan.members(shard)) for shard in range(plan.shards)) >= 1


@given(shards=st.integers(1, 60), holders=st.integers(1, 4))
def test_mounts_take_turns(shards: int, holders: int) -> None:
    used = Counter(mount_of(shard, range(holders)) for shard in range(shards))

    assert max(used.values()) - min(used.get(mount, 0) for mount in range(holders)) <= 1
