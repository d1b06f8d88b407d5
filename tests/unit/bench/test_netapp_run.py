"""NetApp's run.py: the lines that it builds, from the published run on two DGX-1."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.bench.netapp_run import (
    NetappRun,
    clean_line,
    computed,
    count_mounts,
    limited,
    parse,
    remote_shell,
    results_name,
    spread,
    training_line,
)
from gangline.errors import UserError
from gangline.launch.hosts import Host

PUBLISHED = NetappRun(
    hosts=[Host("10.61.218.152", 8), Host("10.61.218.154", 8)],
    port=22122,
    dataset_dir="/mnt/mount_0/dataset/imagenet",
    interface="enp1s0f0",
    mounts=2,
)


def test_the_cache_is_cleared_once_on_every_node() -> None:
    assert clean_line(PUBLISHED, "ssh") == shlex.split(
        "mpirun -allow-run-as-root -np 2 -H 10.61.218.152:1,10.61.218.154:1 -mca pml ob1 -mca btl ^openib "
        '-mca btl_tcp_if_include enp1s0f0 -mca plm_rsh_agent ssh -mca plm_rsh_args "-p 22122" '
        "bash -c 'sync; echo 1 > /proc/sys/vm/drop_caches'"
    )


def test_the_training_line_is_the_published_one() -> None:
    line = training_line(PUBLISHED, "ssh", {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "HOME": "/"})

    assert line == shlex.split(
        "mpirun -allow-run-as-root -np 16 -H 10.61.218.152:8,10.61.218.154:8 -bind-to none -map-by slot "
        "-x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -x NCCL_IB_HCA=mlx5 -x NCCL_NET_GDR_READ=1 "
        "-x NCCL_IB_SL=3 -x NCCL_IB_GID_INDEX=3 -x NCCL_SOCKET_IFNAME=enp1s0f0 -x NCCL_IB_CUDA_SUPPORT=1 "
        "-mca orte_base_help_aggregate 0 -mca pml ob1 -mca btl ^openib -mca btl_tcp_if_include enp1s0f0 "
        '-mca plm_rsh_agent ssh -mca plm_rsh_args "-p 22122" '
        "python /netapp/tensorflow/benchmarks_190205/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py "
        "--model=resnet50 --batch_size=256 --device=gpu --force_gpu_compatible=True --num_intra_threads=1 "
        "--num_inter_threads=48 --variable_update=horovod --batch_group_size=20 --num_batches=500 "
        "--nodistortions --num_gpus=1 --data_format=NCHW --use_fp16=True --use_tf_layers=False "
        "--data_name=imagenet --use_datasets=True --data_dir=/mnt/mount_0/dataset/imagenet "
        "--datasets_parallel_interleave_cycle_length=10 --datasets_sloppy_parallel_interleave=False "
        "--num_mounts=2 --mount_prefix=/mnt/mount_%d --datasets_prefetch_buffer_size=2000 "
        "--datasets_use_prefetch=True --datasets_num_private_threads=4 --horovod_device=gpu"
    )


def test_the_published_command_line_is_taken() -> None:
    run = parse(
        shlex.split(
            "--dataset_dir=/mnt/mount_0/dataset/imagenet --port=22122 --num_devices=16 --dgx_version=dgx1 "
            "--nodes=10.61.218.152,10.61.218.154"
        )
    )

    assert (run.hosts, run.port, run.devices) == (PUBLISHED.hosts, 22122, 16)
    assert (run.model, run.batch_size, run.num_batches) == ("resnet50", 256, 500)


@pytest.mark.parametrize(
    ("nodes", "devices", "words"),
    [(["a", "b"], 15, "cannot be divided"), (["a"], 9, "9 each, but each has 8"), (["a"], 0, "cannot be")],
)
def test_devices_must_fit_the_nodes(nodes: list[str], devices: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        spread(nodes, devices, 8)


def test_two_pods_on_one_machines_network_are_one_host() -> None:
    assert spread(["10.0.0.1", "10.0.0.1"], 4, 8) == [Host("10.0.0.1", 4)]


def test_the_results_file_is_named_by_what_was_run() -> None:
    moment = time.struct_time((2019, 8, 14, 16, 16, 9, 0, 0, 0))

    assert results_name(PUBLISHED, moment, "fp16") == (
        "20190814_161609_torch_gangline_resnet50_gpu_16_256_b500_imagenet_nodistort_fp16_r10_m2_nockpt.txt"
    )
    small = limited(PUBLISHED, {"GANGLINE_BENCH_LIMITS": "model=resnet18,batch_size=4,num_batches=20"})
    assert results_name(small, moment, "bf16") == (
        "20190814_161609_torch_gangline_resnet18_gpu_16_4_b20_imagenet_nodistort_bf16_r10_m2_nockpt.txt"
    )


def test_the_precision_is_the_one_that_was_computed_in() -> None:
    on_cpu = replace(PUBLISHED, device="cpu")

    assert computed(PUBLISHED, []) == "fp16"
    assert computed(on_cpu, []) == "bf16"
    said = "Precision: fp16 is emulated on a CPU; computed in bf16"
    assert computed(PUBLISHED, ["Model: resnet50", said]) == "bf16"


def test_mounts_are_counted_from_the_first_on(tmp_path: Path) -> None:
    for number in (0, 1, 3):
        (tmp_path / f"mount_{number}" / "imagenet").mkdir(parents=True)

    assert count_mounts(str(tmp_path / "mount_0" / "imagenet")) == 2


def test_one_mount_is_not_striped(tmp_path: Path) -> None:
    assert count_mounts(str(tmp_path)) == 1
    line = training_line(replace(PUBLISHED, mounts=1), "ssh", {})

    assert not [word for word in line if "mount" in word and "data_dir" not in word]


def test_our_own_remote_shell_needs_its_secret() -> None:
    assert remote_shell({"PATH": "/bin"}) == "ssh"
    assert "remote_shell.py" in remote_shell({"PATH": "/none", "GANGLINE_SHELL_KEY": "x" * 32})
