"""NVIDIA's ``resnet50v1.5/main.py --mode=training_benchmark`` on torch, with DLLogger's lines.

Rank 0 prints: the parameters, a line with ``total_ips`` for each step since the warm-up (upstream's, and the
losses), and ``train_throughput``. Images/s are of all ranks, on the assumption that they run equally fast.
Other modes than ``training_benchmark`` are refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import dllogger, entry, limits, models
from gangline.errors import UserError
from gangline.train import init

if TYPE_CHECKING:
    from gangline.train import Session

IMAGENET_IMAGES = 1_281_167
CLASSES = 1001
NETWORKS = {"resnet50": "resnet50_v1.5"}
"""Our names of the networks that this program calls otherwise."""
MODES = ("training_benchmark", "train", "train_and_evaluate", "evaluate", "predict", "inference_benchmark")

_WORDS = {
    "data_idx_dir": None,
    "export_dir": None,
    "to_predict": None,
    "model_dir": None,
    "finetune_checkpoint": None,
    "weight_init": "fan_out",
    "data_format": "NCHW",
    "precision": "fp32",
}
_NUMBERS = {
    "run_iter": -1,
    "quant_delay": 0,
    "lr_warmup_epochs": 5,
    "gpu_id": 0,
    "label_smoothing": 0.0,
    "mixup": 0.0,
    "gpu_memory_fraction": 0.7,
}
_SWITCHES = {
    "use_final_conv",
    "quantize",
    "use_qdq",
    "symmetric",
    "use_dali",
    "dali",
    "use_cosine_lr",
    "cosine_lr",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of upstream's flags, older and newer spellings, and ``--json``."""
    result = argparse.ArgumentParser(description="Images/s of ResNet-50 v1.5 on random data, over all ranks.")
    result.add_argument("--arch", default="resnet50", choices=["resnet50"])
    result.add_argument("--mode", default="train_and_evaluate", choices=MODES)
    result.add_argument("--data_dir")
    result.add_argument("--batch_size", type=int, required=True, help="images for each rank")
    result.add_argument("--num_iter", type=int, default=1, help="how many epochs or batches")
    result.add_argument("--iter_unit", choices=["epoch", "batch"], default="epoch")
    result.add_argument("--warmup_steps", type=int, default=50, help="steps that are not counted")
    result.add_argument("--results_dir", default=".", help="folder of the log file")
    result.add_argument("--log_filename", default="log.json")
    result.add_argument("--display_every", type=int, default=1)
    result.add_argument("--lr_init", type=float, default=0.1)
    result.add_argument("--weight_decay", type=float, default=1e-4)
    result.add_argument("--momentum", type=float, default=0.9)
    result.add_argument("--seed", type=int)
    result.add_argument("--loss_scale", "--static_loss_scale", type=float, default=256.0, dest="loss_scale")
    for older, newer in (("use_tf_amp", "amp"), ("use_xla", "xla"), ("use_static_loss_scaling", "")):
        names = [f"--{name}" for name in (older, newer) if name]
        result.add_argument(*names, action="store_true", dest=newer or older)
        result.add_argument(f"--no{older}", action="store_false", dest=newer or older)
    unused = result.add_argument_group("accepted, without a meaning on torch")
    for name, word in _WORDS.items():
        unused.add_argument(f"--{name}", default=word)
    for name, number in _NUMBERS.items():
        unused.add_argument(f"--{name}", type=type(number), default=number)
    for name in sorted(_SWITCHES):
        unused.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=False)
        unused.add_argument(f"--no{name}", action="store_false", dest=name, help=argparse.SUPPRESS)
    result.add_argument("--json", default="", metavar="FILE", help="write rank 0's figures there")
    return result


def main(words: Sequence[str]) -> None:
    """Run the benchmark that a command line asks for."""
    asked = parser().parse_args(words)
    if asked.mode != "training_benchmark":
        raise UserError(f"--mode={asked.mode} is not offered", hint="write --mode=training_benchmark")
    if asked.data_dir:
        raise UserError(
            "--data_dir is not read by this program", hint="tf_cnn_benchmarks.py reads it; leave it out here"
        )
    for name in ("batch_size", "num_iter", "display_every"):
        if getattr(asked, name) < 1:
            raise UserError(f"--{name} must be at least 1 (found `{getattr(asked, name)}`)")
    bounds = limits.from_environment()
    asked.batch_size = bounds.count("batch_size", asked.batch_size)
    asked.arch = bounds.model(asked.arch)
    models.find(NETWORKS.get(asked.arch, asked.arch))
    entry.check_writable(asked.json)
    entry.require("torch")
    with init() as session:
        _Benchmark(asked, bounds, session).run()


def steps_of(num_iter: int, unit: str, global_batch: int) -> int:
    """Return the number of steps that are asked for; an epoch is ImageNet's."""
    return num_iter * (IMAGENET_IMAGES // global_batch if unit == "epoch" else 1)


class _Benchmark:
    """One rank's run; only rank 0 says anything."""

    def __init__(self, asked: Any, bounds: limits.Limits, place: Session) -> None:
        self.asked, self.bounds, self.place = asked, bounds, place
        self.model = NETWORKS.get(asked.arch, asked.arch)
        self.global_batch = asked.batch_size * place.size
        self.steps = bounds.count("num_batches", steps_of(asked.num_iter, asked.iter_unit, self.global_batch))
        self.warmup = bounds.count("num_warmup_batches", asked.warmup_steps)
        if self.warmup >= self.steps:
            self.warmup = bounds.lower("num_warmup_batches", self.warmup, self.steps // 5)
        self.files: list[dllogger.JsonLog] = []
        if place.rank == 0:
            with suppress(OSError):  # a folder of the cluster that this machine does not have
                self.files = [dllogger.JsonLog(Path(asked.results_dir, asked.log_filename))]

    def log(self, step: dllogger.Step, data: dict[str, Any]) -> None:
        """Write a line to the output and to the file."""
        if self.place.rank != 0:
            return
        now = datetime.now().astimezone().replace(tzinfo=None)
        entry.say(dllogger.line(now, step, data))
        for file in self.files:
            file.log(now, step, data)

    def run(self) -> None:
        """Train, print, write the result."""
        import torch

        from gangline.bench.figures import step_speed
        from gangline.bench.training import StepClock, StepSettings, TrainingStep, synthetic_batch

        asked, place = self.asked, self.place
        torch.manual_seed(asked.seed or 0)
        for line in self._notes():
            entry.say(line)
        self.log("PARAMETER", {key: value for key, value in vars(asked).items() if key != "json"})
        settings = StepSettings(
            model=self.model,
            classes=CLASSES,
            precision=self._precision(),
            optimizer="momentum",
            learning_rate=asked.lr_init * self.global_batch / 256 / 5,
            momentum=asked.momentum,
            weight_decay=asked.weight_decay,
            loss_scale=asked.loss_scale if asked.use_static_loss_scaling else None,
            compile=asked.xla,
        )
        step = TrainingStep(settings, place, self.steps)
        size = models.find(self.model).image_size
        batch = synthetic_batch(asked.batch_size, size, CLASSES, place.device, 1234 + place.rank)
        clock = StepClock(place.device)
        for number in range(self.steps):
            if number < self.warmup:
                step(*batch)
                continue
            clock.begin()
            loss = step(*batch)
            clock.end()
            if place.rank == 0 and (number - self.warmup) % asked.display_every == 0:
                entropy, decay = float(loss), step.decay_loss()
                data = {
                    "total_ips": self.global_batch / clock.step_times_s()[-1],
                    "cross_entropy": entropy,
                    "l2_loss": decay,
                    "total_loss": entropy + decay,
                    "learning_rate": settings.learning_rate,
                }
                self.log((0, number), data)
        times_s = clock.step_times_s()
        speed = step_speed(asked.batch_size, times_s)
        # As there: the mean of the steps' speeds, not of their times.
        self.log((), {"train_throughput": fmean(self.global_batch / seconds for seconds in times_s)})
        if place.rank == 0:
            if limited := self.bounds.line():
                entry.say(limited)
            entry.write_result(asked.json, self._result(speed))

    def _precision(self) -> Any:
        from gangline.bench.training import usable_precision

        return usable_precision("fp16" if self.asked.amp else "fp32", self.place.device)

    def _notes(self) -> Iterator[str]:
        if self.place.rank != 0:
            return
        defaults = vars(parser().parse_args(["--batch_size=1"]))
        given = [
            f"--{name}"
            for name in (*_WORDS, *_NUMBERS, *sorted(_SWITCHES))
            if getattr(self.asked, name) != defaults[name]
        ]
        if given:
            yield f"Flags without a meaning on torch: {' '.join(given)}"
        if self.place.device.type == "cpu":
            yield "Device: this machine has no GPU that torch can use; computed on the CPU"
            if self.asked.amp:
                yield "Precision: fp16 is emulated on a CPU; computed in bf16"
        if not self.files:
            yield f"Log file: {self.asked.results_dir} cannot be written to; there is none"
        if limited := self.bounds.line():
            yield limited

    def _result(self, speed: Any) -> dict[str, Any]:
        return {
            "program": "nvidia_main",
            "model": self.model,
            "mode": "training",
            "batch_size": self.asked.batch_size,
            "ranks": self.place.size,
            "steps": self.steps - self.warmup,
            "device": "gpu" if self.place.device.type == "cuda" else "cpu",
            "precision": self._precision(),
            "data": "synthetic",
            "images_per_s": self.place.size * speed.mean,
            "images_per_s_per_rank": speed.mean,
            "uncertainty": speed.uncertainty,
            "jitter": speed.jitter,
            "limited": self.bounds.record(),
            "machine": entry.machine(),
        }


if __name__ == "__main__":
    entry.run(main)
