"""The lines of tf_cnn_benchmarks, character for character. Pure.

Source: upstream's ``print_info``, ``benchmark_one_step`` and published logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.bench.figures import Speed

DASHES = "-" * 64
END_OF_HEADER = "=" * 10


@dataclass(frozen=True, slots=True)
class Header:
    """What is said before the first step; upstream's words for the values.

    Attributes:
        framework: version, as it stands behind ``TensorFlow:``.
        mode: ``training``, ``forward only`` or ``evaluation``.
        batch_size: images of one step of all ranks.
        device_batch_size: images of one step of one device.
        batch_groups: batches in each preprocessing group where they are more than one.
        epochs: share of the data set that is trained on.
        numa_bind: whether threads were asked to be bound to NUMA nodes.
        all_reduce, sync, staged: values of lines that only some ways of sharing variables have; empty
            leaves the line out.
        horovod_device: ``cpu`` or ``gpu`` where the user named one.
    """

    framework: str
    model: str
    dataset: str
    mode: str
    batch_size: int
    device_batch_size: int
    num_batches: int
    epochs: float
    devices: Sequence[str]
    data_format: str
    optimizer: str
    variables: str
    batch_groups: int = 1
    single_session: bool = False
    numa_bind: bool = False
    all_reduce: str = ""
    sync: str = ""
    staged: str = ""
    horovod_device: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines, the closing one included."""
        yield f"TensorFlow:  {self.framework}"
        yield f"Model:       {self.model}"
        yield f"Dataset:     {self.dataset}"
        yield f"Mode:        {self.mode}"
        yield f"SingleSess:  {self.single_session}"
        yield f"Batch size:  {self.batch_size} global"
        yield f"             {self.device_batch_size} per device"
        if self.batch_groups > 1:
            yield f"             {self.batch_groups} batches per prepocessing group"
        yield f"Num batches: {self.num_batches}"
        yield f"Num epochs:  {self.epochs:.2f}"
        yield f"Devices:     {list(self.devices)}"
        yield f"NUMA bind:   {self.numa_bind}"
        yield f"Data format: {self.data_format}"
        yield f"Optimizer:   {self.optimizer}"
        yield f"Variables:   {self.variables}"
        if self.all_reduce:
            yield f"AllReduce:   {self.all_reduce}"
        if self.sync:
            yield f"Sync:        {self.sync}"
        if self.staged:
            yield f"Staged vars: {self.staged}"
        if self.horovod_device:
            yield f"Horovod on:  {self.horovod_device}"
        yield END_OF_HEADER


def column_line(loss: str, *, has_accuracy: bool = False) -> str:
    """Return the line above the steps; ``loss`` is ``total_loss`` or ``base_loss``."""
    return f"Step\tImg/sec\t{loss}" + ("\ttop_1_accuracy\ttop_5_accuracy" if has_accuracy else "")


def step_line(step: int, speed: Speed, loss: float, accuracy: Sequence[float] = ()) -> str:
    """Return the line of a step, which counts from 1; ``accuracy``: of the first and the first five."""
    speeds = f"images/sec: {speed.mean:.1f} +/- {speed.uncertainty:.1f} (jitter = {speed.jitter:.1f})"
    return "\t".join([str(step), speeds, f"{loss:.3f}", *(f"{share:.3f}" for share in accuracy)])


def total_lines(images_per_s: float) -> list[str]:
    """Return the closing lines of a training."""
    return [DASHES, f"total images/sec: {images_per_s:.2f}", DASHES]


def is_displayed(step: int, every: int) -> bool:
    """Whether a step, counted from 1, has a line: the first and every ``every``th."""
    return step == 1 or step % every == 0
