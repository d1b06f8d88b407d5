"""Reading real JPEG shards: through several mounts, by worker processes, each sample once in an epoch."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from gangline.bench.make_data import DataPlan, make_data
from gangline.bench.records import decode, index

pytestmark = pytest.mark.train

SOURCES = Path(__file__).resolve().parents[3] / "src"

READ = """
import json, sys, torch
from collections import Counter
from gangline.bench.image_reader import DataSet, DecodedImages, ImageReader, mounts_of

class Recorder(DecodedImages):
    def __getitem__(self, key):
        pixels, label = super().__getitem__(key)
        assert pixels.shape == (32, 32, 3) and pixels.dtype == torch.uint8
        return torch.tensor(key), label

folder, prefix, ranks, batch, batches = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
data = DataSet.find(mounts_of(folder, 2, prefix))
read, labels = Counter(), Counter()
for rank in range(ranks):
    reader = ImageReader(data, batch_size=batch, image_size=32, rank=rank, ranks=ranks,
                         device=torch.device("cpu"), workers=2, seed=7)
    reader._loader = torch.utils.data.DataLoader(
        Recorder(data, 32, 7), batch_sampler=reader._loader.batch_sampler, num_workers=2)
    source = iter(reader._loader)
    for _ in range(batches):
        keys, found = next(source)
        read.update(map(tuple, keys.tolist()))
        labels.update(found.tolist())
    del source
paths = Counter(data.path(shard).parent.name for shard in range(len(data.shards)))
times = sorted([*key, count] for key, count in read.items())
print(json.dumps([len(data), times, paths, sorted(labels.items())]))
"""


@pytest.fixture
def data(tmp_path: Path) -> DataPlan:
    plan = DataPlan(24, (str(tmp_path / "mount_0"), str(tmp_path / "mount_1")), shards=5, classes=6, seed=3)
    make_data(plan, workers=1, done=lambda *_: None)
    return plan


def test_two_epochs_of_three_ranks_hold_every_sample_twice(
    torch_python: str, data: DataPlan, tmp_path: Path
) -> None:
    # 24 samples, 3 ranks, batches of 4: two batches of each rank are an epoch.
    words = [data.folders[0], str(tmp_path / "mount_%d"), "3", "4", "4"]
    result = subprocess.run(
        [torch_python, "-c", READ, *words],
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert result.returncode == 0, result.stderr
    count, read, paths, labels = json.loads(result.stdout)
    assert count == 24
    assert read == [[epoch, sample, 1] for epoch in (0, 1) for sample in range(24)]
    assert paths == {"mount_0": 3, "mount_1": 2}
    made = [
        decode(content[at : at + size]).label
        for shard in range(5)
        for content in [data.path(shard).read_bytes()]
        for at, size in index(data.path(shard))
    ]
    assert labels == sorted([label, 2 * made.count(label)] for label in set(made))


def test_benchmark_trains_on_files_and_says_how_long_it_waited(
    run_ranks, data: DataPlan, tmp_path: Path
) -> None:
    ranks = run_ranks(
        "tf_cnn_benchmarks.py",
        *("--model=lenet", "--batch_size=4", "--num_batches=3", "--num_warmup_batches=1", "--device=cpu"),
        *("--variable_update=horovod", f"--data_dir={data.folders[0]}", "--num_mounts=2"),
        *(f"--mount_prefix={tmp_path}/mount_%d", "--datasets_num_private_threads=1", "--json=result.json"),
        ranks=2,
    )

    assert [rank.returncode for rank in ranks] == [0, 0], ranks[0].stderr
    assert "Dataset:     imagenet\n" in ranks[0].stdout
    assert re.search(
        r"^Ranks waited \d+\.\d % of the time for data \(rank [01]: ", ranks[0].stdout, re.MULTILINE
    )
    assert 0 <= json.loads((tmp_path / "result.json").read_text())["data_stall"] <= 1


MISSING = """
import json, sys
from pathlib import Path
from gangline.bench.image_reader import DataSet
sets = [DataSet.find([Path(folder) for folder in folders.split(",")]) for folders in sys.argv[1:]]
print(json.dumps([data.missing() for data in sets]))
"""


def test_shards_that_are_not_there_are_named(torch_python: str, data: DataPlan) -> None:
    first, second = data.folders

    result = subprocess.run(
        [torch_python, "-c", MISSING, f"{first},{second}", first],
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [[], ["train-00001-of-00005", "train-00003-of-00005"]]
