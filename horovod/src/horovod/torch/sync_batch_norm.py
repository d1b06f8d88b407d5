"""Batch normalisation over the batches of all ranks, on CPUs too."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.engine.agreement import SUM
from horovod.torch.lifecycle import size
from horovod.torch.reductions import allreduce


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over any number of dimensions whose mean and variance are those of all ranks' batches.

    Two reductions in a forward pass and two in a backward one, each of a few numbers for every channel.
    Batches
    may be of different sizes.

    Args:
        num_features: channels, the second dimension.
        eps: added to the variance.
        momentum: of the running mean and variance; None for a plain average.
        affine: learn a factor and an offset for every channel.
        track_running_stats: keep the running mean and variance.
    """

    def _check_input_dim(self, tensor: Any) -> None:
        if tensor.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm wants at least two dimensions, batch and channels, not {tensor.dim()}"
            )

    def forward(self, input: Any) -> Any:
        """Return the normalised batch."""
        self._check_input_dim(input)
        if size() == 1 or not (self.training or not self.track_running_stats):
            return super().forward(input)
        return self._over_all_ranks(input)

    def _over_all_ranks(self, batch: Any) -> Any:
        dims = [dim for dim in range(batch.dim()) if dim != 1]
        wide = batch.float() if batch.dtype in (torch.float16, torch.bfloat16) else batch
        here = torch.full((1,), batch.numel() // batch.size(1), dtype=wide.dtype, device=batch.device)
        sums = _sum(torch.cat([wide.sum(dims), here]))
        count = sums[-1].detach()
        mean = sums[:-1] / count
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        centred = wide - mean.view(shape)
        variance = _sum((centred * centred).sum(dims)) / count
        with torch.no_grad():
            self._track(mean.detach(), variance.detach(), count)
        normal = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(batch.dtype)

    def _track(self, mean: Any, variance: Any, count: Any) -> None:
        if not self.track_running_stats or not self.training:
            return
        self.num_batches_tracked += 1
        factor = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)


def _sum(tensor: Any) -> Any:
    """Return the sum over all ranks; its gradient is the sum of their gradients."""
    return allreduce(tensor, op=SUM)
