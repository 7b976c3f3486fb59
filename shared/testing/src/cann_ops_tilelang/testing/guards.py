"""Seeing what an operator touches: tensors inside poisoned buffers, and bytes compared before and after."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

POISON = 0xA5
MARGIN = 64


def bits(tensor: Tensor) -> Tensor:
    """The elements' bytes on the host, in logical order."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


class Guarded:
    """A copy of a tensor inside a larger poisoned buffer, with its strides and a storage offset that is not zero."""

    def __init__(self, tensor: Tensor, *, margin: int = MARGIN) -> None:
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        extent = max(extent, 0) if tensor.numel() else 0
        size = tensor.element_size()
        host = torch.full(((extent + 2 * margin) * size,), POISON, dtype=torch.uint8)
        inside = torch.zeros(extent + 2 * margin, dtype=torch.bool)
        inside.as_strided(tensor.shape, tensor.stride(), margin).fill_(True)
        self._inside = inside.repeat_interleave(size)
        self._buffer = host.view(tensor.dtype).to(tensor.device)
        self.tensor = self._buffer.as_strided(tensor.shape, tensor.stride(), margin)
        self.tensor.copy_(tensor)

    def check(self) -> None:
        """Raise AssertionError if a byte outside the tensor changed."""
        touched = (bits(self._buffer) != POISON) & ~self._inside
        if touched.any():
            where = touched.nonzero().flatten()[:8].tolist()
            raise AssertionError(f"bytes outside the tensor were written, at offsets {where} of the buffer around it")


@contextlib.contextmanager
def unchanged(*tensors: Tensor) -> Iterator[None]:
    """Assert that the block leaves every byte of the tensors' storages as it was."""

    def snapshot(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided or tensor.is_meta:
            return torch.empty(0, dtype=torch.uint8)
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        return whole.cpu().clone()

    before = [snapshot(tensor) for tensor in tensors]
    yield
    for index, (tensor, old) in enumerate(zip(tensors, before)):
        if not torch.equal(snapshot(tensor), old):
            raise AssertionError(f"tensor {index} of shape {tuple(tensor.shape)} was written")
