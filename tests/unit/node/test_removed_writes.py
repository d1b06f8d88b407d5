"""What of a pod's writes is worth a word when they go with it, and the words."""

import os

import pytest

from gangline.cluster.node.pods import removed_writes
from gangline.cluster.node.shim import removed_writes as shim
from gangline.cluster.node.shim.removed_writes import (
    LARGE_BYTES,
    Walk,
    find_worth_telling,
    is_checkpoint,
    layer_places,
    private_places,
)

MB = 1_000_000


@pytest.mark.parametrize(
    "path",
    [
        "/results/epoch-3.pt",
        "/m.pth",
        "/a/model-00001-of-00002.safetensors",
        "/a/model.ckpt-1000.index",
        "/a/variables.data-00000-of-00001",
        "/logs/events.out.tfevents.1700000000.host.1.0",
        "/out/checkpoint-500/trainer_state.json",
        "/out/global_step100/zero_pp_rank_0",
        "/out/arrays.npz",
    ],
)
def test_saved_work_is_known_by_its_name(path):
    assert is_checkpoint(path, 10)


@pytest.mark.parametrize(
    "path",
    [
        "/results/log.txt",
        "/results/pt",
        "/a/b.ptx",
        "/out/checkpoints.md",
        "/usr/lib/python3/site-packages/torch/test.pt",
    ],
)
def test_other_files_are_not(path):
    assert not is_checkpoint(path, 10)


def test_weights_of_any_program_count_by_their_size_and_empty_files_never():
    assert is_checkpoint("/a/pytorch_model.bin", 2 * MB)
    assert not is_checkpoint("/a/pytorch_model.bin", 10)
    assert not is_checkpoint("/a/m.pt", 0)


def test_much_below_one_top_folder_is_told_with_the_folder_that_all_share():
    files = [("/results/a/x", LARGE_BYTES // 2), ("/results/a/b/y", LARGE_BYTES // 2), ("/var/log/z", 5)]

    assert find_worth_telling(files) == [{"path": "/results/a", "bytes": LARGE_BYTES}]


def test_little_is_told_only_for_the_checkpoints_in_it():
    files = [("/results/m.pt", 4000), ("/results/log", 9000)]

    assert find_worth_telling(files) == [{"path": "/results/m.pt", "bytes": 4000}]


def test_scratch_folders_are_told_for_checkpoints_only():
    files = [("/tmp/cache", 5 * LARGE_BYTES), ("/tmp/run/m.pt", 4000), ("/tmp/run/n.pt", 1000)]

    assert find_worth_telling(files) == [{"path": "/tmp/run", "bytes": 5000}]


def test_files_in_the_root_are_each_their_own_and_the_largest_comes_first():
    files = [("/m.pt", 10), ("/n.pt", 20)]

    assert find_worth_telling(files) == [{"path": "/n.pt", "bytes": 20}, {"path": "/m.pt", "bytes": 10}]


def test_walk_sees_regular_files_only_with_what_they_take(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "m.pt").write_bytes(os.urandom(8192))
    (tmp_path / "link.pt").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe.pt")
    with (tmp_path / "hole.pt").open("wb") as hole:
        hole.truncate(10 * LARGE_BYTES)

    walk = Walk()
    found = dict(walk.files(str(tmp_path), "/"))

    assert found == {"/deep/er/m.pt": 8192, "/hole.pt": 0}
    assert not walk.is_cut


def test_walk_ends_at_its_bound_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(shim, "ENTRIES_MAX", 10)
    for number in range(20):
        (tmp_path / f"{number}.pt").write_bytes(b"x")

    walk = Walk()

    assert len(list(walk.files(str(tmp_path), "/"))) == 10
    assert walk.is_cut
    assert list(walk.files(str(tmp_path), "/")) == []


def test_layers_stand_for_the_folders_that_they_cover(tmp_path):
    for layer in ("root", "over-opt", "usr"):
        (tmp_path / "containers" / "main" / "upper" / layer).mkdir(parents=True)
    upper = tmp_path / "containers" / "main" / "upper"

    places = layer_places(str(tmp_path), ["main", "unknown"])

    assert sorted(places) == [
        (str(upper / "over-opt"), "/opt"),
        (str(upper / "root"), "/"),
        (str(upper / "usr"), "/usr"),
    ]


MOUNTS = """\
30 1 0:40 / / rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:41 / /usr rw,relatime - overlay overlay rw
32 30 0:42 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw
33 30 0:43 / /home/a\\040user rw,nosuid,nodev shared:7 - tmpfs tmpfs rw
34 30 0:44 / /fast rw - tmpfs tmpfs rw
35 30 0:45 / /dev rw,nosuid - tmpfs tmpfs rw
36 30 0:46 / /run/gangline/bin ro,nosuid - tmpfs tmpfs rw
37 30 8:1 /x /data rw - ext4 /dev/sda1 rw
"""


def test_folders_in_memory_are_looked_through_unless_they_are_volumes():
    assert private_places(MOUNTS, {"/fast", "/data"}) == ["/", "/tmp", "/home/a user"]


def test_home_and_scratch_folder_of_a_pod_without_files_of_its_own_are_places_too(tmp_path):
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()

    assert layer_places(str(tmp_path), []) == [
        (str(tmp_path / "home"), "~"),
        (str(tmp_path / "tmp"), "$TMPDIR"),
    ]
    files = [("~/a/x", LARGE_BYTES), ("~/b/y", 5), ("$TMPDIR/z", LARGE_BYTES)]
    assert find_worth_telling(files) == [{"path": "~/a/x", "bytes": LARGE_BYTES}]


@pytest.mark.parametrize(
    ("folders", "is_cut", "text"),
    [
        ([], False, ""),
        (
            [("/results", 1_200_000_000)],
            False,
            "wrote 1.1 GiB to /results, which is removed with the pod: mount a volume",
        ),
        (
            [("/a", 3 << 20), ("/b/m.pt", 2 << 20)],
            True,
            "wrote at least 3 MiB to /a and at least 2 MiB to /b/m.pt, which are removed with the pod: "
            "mount a volume",
        ),
        (
            [("/a", 1024), ("/b", 1024), ("/c", 1024), ("/d", 1024), ("/e", 1024)],
            False,
            "wrote 1 KiB to /a, 1 KiB to /b, 1 KiB to /c and to 2 more folders, which are removed with "
            "the pod: mount a volume",
        ),
    ],
)
def test_words(folders, is_cut, text):
    found = [{"path": path, "bytes": size} for path, size in folders]

    assert removed_writes.words(found, is_cut=is_cut, goes_with="the pod") == text
