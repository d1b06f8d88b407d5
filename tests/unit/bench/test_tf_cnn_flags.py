"""Flags of tf_cnn_benchmarks: upstream's names and defaults, and absl's way of writing them."""

from __future__ import annotations

import pytest

from gangline.bench.limits import Limits
from gangline.bench.tf_cnn_benchmarks import make_plan
from gangline.bench.tf_cnn_flags import FLAGS, parse
from gangline.errors import UserError

OURS = {"json", "use_bf16", "num_mounts", "mount_prefix"}

# What NetApp's AI control plane runs, with booleans written as absl wants them.
NETAPP = """--model=resnet50 --batch_size=256 --device=gpu --force_gpu_compatible=True --num_intra_threads=1
--num_inter_threads=48 --variable_update=horovod --batch_group_size=20 --num_batches=500 --nodistortions
--num_gpus=1 --data_format=NCHW --use_fp16=True --use_tf_layers=False --data_name=imagenet --use_datasets=True
--data_dir=/mnt/mount_0/dataset/imagenet --datasets_parallel_interleave_cycle_length=10
--datasets_sloppy_parallel_interleave=False --num_mounts=2 --mount_prefix=/mnt/mount_%d
--datasets_prefetch_buffer_size=2000 --datasets_use_prefetch=True --datasets_num_private_threads=4
--horovod_device=gpu"""


def test_there_are_as_many_flags_as_upstream_has() -> None:
    assert len(FLAGS.keys() - OURS) == 137


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("model", "trivial"),
        ("batch_size", 0),
        ("num_batches", None),
        ("num_warmup_batches", None),
        ("display_every", 10),
        ("num_gpus", 1),
        ("device", "gpu"),
        ("data_format", "NCHW"),
        ("distortions", False),
        ("use_datasets", True),
        ("datasets_prefetch_buffer_size", 1),
        ("batch_group_size", 1),
        ("num_inter_threads", 0),
        ("use_tf_layers", True),
        ("optimizer", "sgd"),
        ("momentum", 0.9),
        ("weight_decay", 4e-5),
        ("variable_update", "parameter_server"),
        ("local_parameter_device", "gpu"),
        ("horovod_device", ""),
        ("tf_random_seed", 1234),
        ("loss_type_to_report", "total_loss"),
    ],
)
def test_default_is_upstreams(name: str, default: object) -> None:
    assert getattr(parse([]), name) == default


def test_published_command_line_is_understood() -> None:
    flags = parse(NETAPP.split())

    assert (flags.batch_size, flags.use_fp16, flags.distortions, flags.num_mounts) == (256, True, False, 2)
    assert flags.mount_prefix == "/mnt/mount_%d"
    assert "use_tf_layers" in flags.without_meaning()
    assert not {"model", "batch_size", "data_dir", "num_mounts"} & set(flags.without_meaning())


def test_value_may_follow_as_a_word_and_one_dash_is_enough() -> None:
    flags = parse(["-batch_size", "64", "--model", "vgg16", "--xla"])

    assert (flags.batch_size, flags.model, flags.xla) == (64, "vgg16", True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--xla", "True"], "`True` is no flag"),
        (["--datasets_use_prefetch", "=True"], "`=True` is no flag"),
        (["resnet50"], "`resnet50` is no flag"),
        (["--batch_sice=3"], "unknown flag `--batch_sice`"),
        (["--batch_size=many"], "--batch_size must be a whole number"),
        (["--xla=perhaps"], "--xla must be True or False"),
        (["--optimizer=lamb"], "--optimizer must be one of sgd, momentum, rmsprop, adam"),
        (["--model"], "--model needs a value"),
    ],
)
def test_mistake_is_named(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(words)


def test_stray_space_behind_a_boolean_is_answered_with_the_right_spelling() -> None:
    with pytest.raises(UserError) as caught:
        parse(["--datasets_use_prefetch", "=True"])

    assert caught.value.hint == "write `--datasets_use_prefetch=True` without a space"


@pytest.mark.parametrize(("ranks", "steps"), [(1, 10_010), (2, 5_005), (16, 626)])
def test_an_epoch_is_shared_out_over_the_ranks(ranks: int, steps: int) -> None:
    """1,281,167 images in batches of 128: a last step that is not full counts, as upstream."""
    flags = parse(["--num_epochs=1", "--batch_size=128", "--model=resnet50"])

    assert make_plan(flags, Limits({}), ranks).num_batches == steps
