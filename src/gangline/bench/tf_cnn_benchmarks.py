"""``tf_cnn_benchmarks.py`` on torch: the same flags, the same lines, honest figures.

Runs as ``python -m gangline.bench.tf_cnn_benchmarks``, or by its path with a Python that has torch and no
Gangline. Flags that mean nothing on torch are named once. ``--xla`` compiles the network with torch.compile.

Like upstream every rank prints everything, a step line is this rank's own speed, and the total is that of
all ranks on the assumption that they ran equally fast. As under Horovod there the gradients of the ranks
are added up: the learning rate of the mean is multiplied by the number of ranks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry, limits, models, tf_cnn_flags, tf_cnn_output
from gangline.bench.figures import step_speed
from gangline.bench.tf_cnn_flags import Parameters
from gangline.errors import UserError
from gangline.train import init, read_ranks
from gangline.train.environment import tf_roles

if TYPE_CHECKING:
    from torch import Tensor

    from gangline.bench.image_reader import ImageReader
    from gangline.bench.training import Precision, TrainingStep
    from gangline.train import Session

NUM_BATCHES = 100
NUM_WARMUP_BATCHES = 10
LEARNING_RATE = 0.005
CLASSES = 1001
"""Those of ImageNet and one for the background, as upstream."""
IMAGENET_IMAGES = 1_281_167
ALL_REDUCING = ("replicated", "distributed_all_reduce", "collective_all_reduce")
"""Ways of sharing variables whose header has a line ``AllReduce``."""
PREFETCH_BATCHES_MAX = 16
"""For each decoding process; the 2000 of NetApp's command line would fill the memory."""


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What a command line asks for, after the limits.

    Attributes:
        precision: as asked; a CPU may compute in another.
        notes: lines to say before the header.
    """

    model: str
    batch_size: int
    num_batches: int
    num_warmup_batches: int
    image_size: int
    precision: Precision
    mode: str
    limited: limits.Limits
    notes: tuple[str, ...]


def make_plan(flags: Parameters, bounds: limits.Limits, ranks: int = 1) -> BenchmarkPlan:
    """Return what to do, from flags and limits; an epoch is shared out over the ranks.

    Raises:
        UserError: flags contradict each other, or ask for what is not offered.
    """
    _check(flags)
    model = bounds.model(flags.model)
    network = models.find(model)
    batch_size = bounds.count("batch_size", flags.batch_size or network.batch_size)
    num_batches = flags.num_batches or NUM_BATCHES
    if flags.num_epochs is not None:
        num_batches = max(1, ceil(flags.num_epochs * IMAGENET_IMAGES / (batch_size * ranks)))
    warmup = NUM_WARMUP_BATCHES if flags.num_warmup_batches is None else flags.num_warmup_batches
    notes = []
    if unused := flags.without_meaning():
        notes.append("Flags without a meaning on torch: " + " ".join(f"--{name}" for name in unused))
    return BenchmarkPlan(
        model=model,
        batch_size=batch_size,
        num_batches=bounds.count("num_batches", num_batches),
        num_warmup_batches=bounds.count("num_warmup_batches", warmup),
        image_size=network.image_size,
        precision="fp16" if flags.use_fp16 else "bf16" if flags.use_bf16 else "fp32",
        mode="forward only" if flags.forward_only else "training",
        limited=bounds,
        notes=tuple(notes),
    )


def _check(flags: Parameters) -> None:
    for name in (
        "batch_size",
        "num_batches",
        "num_warmup_batches",
        "display_every",
        "num_gpus",
        "num_mounts",
    ):
        lowest = 0 if name in ("batch_size", "num_warmup_batches") else 1
        value = getattr(flags, name)
        if value is not None and value < lowest:
            raise UserError(f"--{name} must be at least {lowest} (found `{value}`)")
    if flags.num_batches is not None and flags.num_epochs is not None:
        raise UserError("--num_batches and --num_epochs exclude each other")
    if flags.use_fp16 and flags.use_bf16:
        raise UserError("--use_fp16 and --use_bf16 exclude each other")
    if flags.eval:
        raise UserError("--eval needs a checkpoint, and this program writes none", hint="leave --eval out")
    if flags.num_gpus > 1:
        raise UserError(
            f"--num_gpus={flags.num_gpus}: one process computes on one device",
            hint=f"start {flags.num_gpus} ranks: mpirun -np {flags.num_gpus} python tf_cnn_benchmarks.py "
            "--num_gpus=1 --variable_update=horovod",
        )
    if flags.data_name not in (None, "imagenet"):
        raise UserError(f"--data_name={flags.data_name} is not offered", hint="the data set is imagenet")
    if flags.job_name == "ps":
        raise UserError(
            "--job_name=ps: there are no parameter servers here, ranks exchange their gradients",
            hint="start the workers alone, with --variable_update=horovod under mpirun",
        )


def main(words: Sequence[str]) -> None:
    """Run the benchmark that a command line asks for."""
    if {"--help", "-h", "--helpfull", "--helpshort"} & set(words):
        print(__doc__)
        print("\n".join(_help_lines()))
        return
    flags = tf_cnn_flags.parse(words)
    task, _ = tf_roles(os.environ)
    if task in _WITHOUT_WORK:
        _stand_by(task)
        return
    ranks = read_ranks(os.environ).size if flags.variable_update == "horovod" else 1
    bounds = limits.from_environment()
    flags.values["data_dir"] = bounds.data(flags.data_dir)
    plan = make_plan(flags, bounds, ranks)
    entry.check_writable(flags.json)
    entry.require("torch")
    if flags.data_dir:
        entry.require("PIL")
    with init(backend="gangline" if flags.device.lower() == "cpu" else "auto") as session:
        _Benchmark(flags, plan, session).run()


def _stand_by(task: str) -> None:
    """Say that a replica has nothing to do, and wait until the job ends it: its end would be the job's."""
    entry.say(f"{task}: {_AVERAGED}")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def _help_lines() -> Iterator[str]:
    for name, flag in sorted(tf_cnn_flags.FLAGS.items()):
        kind = "|".join(flag.choices) if flag.choices else flag.kind
        yield f"  --{name}={kind}  (default: {flag.default})" + (
            "" if flag.has_meaning else "  no meaning here"
        )


_AVERAGED = "not used here: workers average their gradients among themselves"
_WITHOUT_WORK = ("ps", "evaluator")
"""Replicas of a TFJob that do not train."""


class _Benchmark:
    """One rank's run."""

    def __init__(self, flags: Parameters, plan: BenchmarkPlan, session: Session) -> None:
        from gangline.bench.training import usable_precision

        self.flags, self.plan, self.place = flags, plan, session
        self.is_joined = flags.variable_update == "horovod"
        self.ranks = session.size if self.is_joined else 1
        self.precision = usable_precision(plan.precision, session.device)
        self.reader = self._open_reader() if flags.data_dir else None

    def run(self) -> None:
        """Warm up, time the steps, print, write the result."""
        import torch

        from gangline.bench.training import StepClock

        flags, plan = self.flags, self.plan
        torch.manual_seed(flags.tf_random_seed)
        if flags.num_intra_threads:
            torch.set_num_threads(flags.num_intra_threads)
        self._say_header(torch.__version__)
        entry.say("Generating training model")
        step = self._make_step()
        entry.say("Initializing graph")
        batches = self._batches()
        entry.say("Running warm up")
        for _ in range(plan.num_warmup_batches):
            step(*next(batches))
        if self.ranks > 1:
            torch.distributed.barrier()
        entry.say("Done warm up")
        has_accuracy = flags.print_training_accuracy or flags.forward_only
        entry.say(tf_cnn_output.column_line(flags.loss_type_to_report, has_accuracy=has_accuracy))
        clock = StepClock(self.place.device)
        if self.reader is not None:
            self.reader.start_clock()
        loss = 0.0
        for number in range(1, plan.num_batches + 1):
            clock.begin()
            images, labels = next(batches)
            tensor = step(images, labels)
            clock.end()
            if tf_cnn_output.is_displayed(number, flags.display_every) or number == plan.num_batches:
                loss = self._loss(step, tensor)
                speed = step_speed(plan.batch_size, clock.step_times_s(), flags.display_perf_ewma or 0.0)
            if tf_cnn_output.is_displayed(number, flags.display_every):
                accuracy = [step.accuracy(labels, first) for first in (1, 5)] if has_accuracy else []
                entry.say(tf_cnn_output.step_line(number, speed, loss, accuracy))
        total = self.ranks * plan.num_batches * plan.batch_size / clock.total_s()
        stalls = self._stalls()
        entry.say("\n".join(tf_cnn_output.total_lines(total)))
        if self.place.rank == 0:
            if stalls:
                from gangline.bench.image_reader import stall_line

                entry.say(stall_line(stalls))
            if limited := plan.limited.line():
                entry.say(limited)
            entry.write_result(flags.json, self._result(total, speed, loss, stalls))

    def _open_reader(self) -> ImageReader:
        from gangline.bench.image_reader import DataSet, ImageReader, default_workers, mounts_of

        flags, place = self.flags, self.place
        data = DataSet.find(mounts_of(flags.data_dir, flags.num_mounts, flags.mount_prefix))
        return ImageReader(
            data,
            batch_size=self.plan.batch_size,
            image_size=self.plan.image_size,
            rank=place.rank,
            ranks=place.size,
            device=place.device,
            workers=flags.datasets_num_private_threads or default_workers(place.ranks.local_size or 1),
            prefetch=max(2, min(PREFETCH_BATCHES_MAX, flags.datasets_prefetch_buffer_size)),
            seed=flags.tf_random_seed,
            distort=flags.distortions,
        )

    def _stalls(self) -> list[float]:
        """Return the share of the time that each rank waited for data; empty for synthetic data."""
        import torch

        if self.reader is None:
            return []
        own = torch.tensor([self.reader.stall()], device=self.place.device)
        if self.place.size == 1:
            return [float(own)]
        all_of_them = [torch.zeros_like(own) for _ in range(self.place.size)]
        torch.distributed.all_gather(all_of_them, own)
        return [float(one) for one in all_of_them]

    def _say_header(self, torch_version: str) -> None:
        flags, plan, place = self.flags, self.plan, self.place
        kind = "gpu" if place.device.type == "cuda" else "cpu"
        notes = list(plan.notes) if place.rank == 0 else []
        if place.rank == 0 and self.precision != plan.precision:
            notes.append(f"Precision: {plan.precision} is emulated on a CPU; computed in {self.precision}")
        if place.rank == 0 and kind == "cpu" and flags.device.lower() == "gpu":
            notes.append("Device: this machine has no GPU that torch can use; computed on the CPU")
        if place.rank == 0 and place.size > 1 and not self.is_joined:
            notes.append(
                f"Ranks: each of the {place.size} trains by itself; --variable_update=horovod joins them"
            )
        if place.rank == 0 and "ps" in tf_roles(os.environ)[1]:
            notes.append(f"Parameter servers: {_AVERAGED}")
        if place.rank == 0 and self.reader is not None and (missing := self.reader.data.missing()):
            notes.append(f"Data: {len(missing)} shards are not there, the first is {missing[0]}")
        if place.rank == 0 and (limited := plan.limited.line()):
            notes.append(limited)
        names = [f"horovod/{kind}:{rank}" for rank in range(place.size)] if self.is_joined else [f"/{kind}:0"]
        header = tf_cnn_output.Header(
            framework=f"none (torch {torch_version.partition('+')[0]})",
            model=plan.model,
            dataset=self._dataset(),
            mode=plan.mode,
            batch_size=self.ranks * plan.batch_size,
            device_batch_size=plan.batch_size,
            num_batches=plan.num_batches,
            epochs=self.ranks * plan.batch_size * plan.num_batches / IMAGENET_IMAGES,
            devices=names,
            data_format=flags.data_format,
            optimizer=flags.optimizer,
            variables=flags.variable_update,
            batch_groups=flags.batch_group_size,
            single_session=flags.variable_update == "distributed_all_reduce",
            numa_bind=flags.use_numa_affinity,
            all_reduce=str(flags.all_reduce_spec) if flags.variable_update in ALL_REDUCING else "",
            sync=str(flags.cross_replica_sync) if flags.job_name else "",
            staged="True" if flags.staged_vars else "",
            horovod_device=kind if flags.horovod_device and self.is_joined else "",
        )
        entry.say("\n".join([*notes, *header.lines()]))  # at once: ranks share one output

    def _dataset(self) -> str:
        name = self.flags.data_name or "imagenet"
        return name if self.flags.data_dir else f"{name} (synthetic)"

    def _make_step(self) -> TrainingStep:
        from gangline.bench.training import FP16_LOSS_SCALE, StepSettings, TrainingStep

        flags = self.flags
        options: dict[str, float] = {}
        if flags.optimizer == "momentum":
            options = {"nesterov": True}  # as upstream
        if flags.optimizer == "adam":
            options = {"beta1": flags.adam_beta1, "beta2": flags.adam_beta2, "eps": flags.adam_epsilon}
        if flags.optimizer == "rmsprop":
            options = {"alpha": flags.rmsprop_decay, "eps": flags.rmsprop_epsilon}
        scale = None if flags.fp16_enable_auto_loss_scale else flags.fp16_loss_scale or FP16_LOSS_SCALE
        rate = LEARNING_RATE if flags.init_learning_rate is None else flags.init_learning_rate
        return TrainingStep(
            StepSettings(
                model=self.plan.model,
                classes=CLASSES,
                precision=self.precision,
                optimizer=flags.optimizer,
                learning_rate=rate * self.ranks,
                momentum=flags.rmsprop_momentum if flags.optimizer == "rmsprop" else flags.momentum,
                weight_decay=flags.weight_decay,
                options=tuple(options.items()),
                loss_scale=scale,
                compile=flags.xla or flags.xla_compile,
                joined=self.is_joined,
                forward_only=flags.forward_only,
            ),
            self.place,
            self.plan.num_warmup_batches + self.plan.num_batches,
        )

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.reader is not None:
            return iter(self.reader)
        return self._synthetic()

    def _synthetic(self) -> Iterator[tuple[Tensor, Tensor]]:
        from gangline.bench.training import synthetic_batch

        plan, seed = self.plan, self.flags.tf_random_seed + self.place.rank
        batch = synthetic_batch(plan.batch_size, plan.image_size, CLASSES, self.place.device, seed)
        while True:
            yield batch

    def _loss(self, step: TrainingStep, tensor: Tensor) -> float:
        """Return the loss to show; upstream shows 0 in forward-only mode."""
        if self.flags.forward_only:
            return 0.0
        decay = step.decay_loss() if self.flags.loss_type_to_report == "total_loss" else 0.0
        return float(tensor) + decay

    def _result(self, total: float, speed: Any, loss: float, stalls: list[float]) -> dict[str, Any]:
        plan = self.plan
        return {
            "program": "tf_cnn_benchmarks",
            "model": plan.model,
            "mode": plan.mode,
            "batch_size": plan.batch_size,
            "ranks": self.ranks,
            "steps": plan.num_batches,
            "device": "gpu" if self.place.device.type == "cuda" else "cpu",
            "precision": self.precision,
            "data": self._dataset(),
            "images_per_s": total,
            "images_per_s_per_rank": speed.mean,
            "uncertainty": speed.uncertainty,
            "jitter": speed.jitter,
            "loss": loss,
            **({"data_stall": sum(stalls) / len(stalls)} if stalls else {}),
            "limited": plan.limited.record(),
            "machine": entry.machine(),
        }


if __name__ == "__main__":
    entry.run(main)
