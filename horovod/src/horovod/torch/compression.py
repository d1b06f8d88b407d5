"""Gradients in fewer bits while they travel."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Makes a tensor smaller before a collective, and whole again after it."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send, and what `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor as it was."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor."""
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors in 16 bits."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor in 16 bits, and its type."""
        return (tensor.to(torch.float16) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its own type."""
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class Compression:
    """What can be chosen."""

    none = NoneCompressor
    fp16 = FP16Compressor
