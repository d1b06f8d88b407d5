"""A script on Lightning with Gangline's callback; steps as the first word."""

import sys
import time
from pathlib import Path

import lightning
import torch

from gangline.train.adapters.lightning import GanglineCallback


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        time.sleep(0.02)
        return self.line(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.DataLoader(torch.randn(8000, 8), batch_size=4)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_steps=int(sys.argv[1]),
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir="root",
    callbacks=[GanglineCallback(interval_s=0.1)],
)
resume = Path("root/resume.ckpt")
trainer.fit(Net(), data, ckpt_path=str(resume) if resume.exists() else None)
print("done at", trainer.global_step, flush=True)
