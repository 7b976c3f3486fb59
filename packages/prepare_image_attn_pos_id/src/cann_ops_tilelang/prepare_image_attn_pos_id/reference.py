"""``prepare_image_attn_pos_id`` in plain PyTorch."""

import torch
from torch import Tensor


def prepare_image_attn_pos_id_reference(
    grid_hw: Tensor, cu_seqlens_vit: Tensor, *, total_seqlens_vit: int, window_size: int = 1
) -> Tensor:
    """Same arguments and result as ``prepare_image_attn_pos_id``."""
    positions = grid_hw.new_full((total_seqlens_vit, 2), -1)
    for (rows, columns), start in zip(grid_hw.tolist(), cu_seqlens_vit.tolist()):
        grid = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).view(rows, columns, 2)
        windows = grid.unflatten(1, (-1, window_size)).unflatten(0, (-1, window_size)).transpose(1, 2)
        positions[start : start + rows * columns] = windows.reshape(-1, 2).to(positions)
    return positions
