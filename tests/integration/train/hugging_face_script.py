"""A script on Hugging Face's Trainer with Gangline's callback; steps as the first word."""

import sys
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from gangline.train.adapters.hugging_face import GanglineTrainerCallback


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        sample = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return {"sample": sample, "labels": sample.sum()}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)

    def forward(self, sample, labels):
        time.sleep(0.02)
        return {"loss": (self.line(sample)[:, 0] - labels).square().mean()}


arguments = TrainingArguments(
    "out",
    use_cpu=True,
    per_device_train_batch_size=4,
    max_steps=int(sys.argv[1]),
    logging_steps=5,
    save_steps=10,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(Net(), arguments, train_dataset=Data(), callbacks=[GanglineTrainerCallback(interval_s=0.1)])
trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if Path("out").exists() else None)
print("done at", trainer.state.global_step, flush=True)
