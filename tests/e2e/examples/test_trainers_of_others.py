"""Scripts on accelerate and Lightning that know nothing of Gangline run under `gangline run`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.train

ACCELERATE = """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
seen = accelerator.gather(torch.tensor([len(data)])).sum().item()
accelerator.print(f"{accelerator.num_processes} ranks did {seen} batches")
accelerator.end_training()
"""

LIGHTNING = """
import lightning, torch
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return self.line(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
quiet = dict(logger=False, enable_progress_bar=False, enable_checkpointing=False)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, **quiet)
trainer.fit(Net(), data)
if trainer.is_global_zero:
    print(f"{trainer.world_size} ranks did {trainer.global_step} batches", flush=True)
"""


@pytest.mark.parametrize("script", [ACCELERATE, LIGHTNING], ids=["accelerate", "lightning"])
def test_script_on_a_trainer_of_others_runs_as_it_is(gangline, torch_python, tmp_path: Path, script) -> None:
    (tmp_path / "train.py").write_text(script)

    done = gangline("run", "-n", "2", "--", torch_python, "train.py", cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert "2 ranks did 16 batches" in done.stdout
