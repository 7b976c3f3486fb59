"""Benchmark of ``bmp_to_patches``."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from cann_ops_tilelang.bmp_to_patches import bmp_to_patches, pack_bmps
from cann_ops_tilelang.bmp_to_patches.reference import bmp_to_patches_reference
from cann_ops_tilelang.testing import bit_equal
from cann_ops_tilelang.tools.bench import Case, Scaling


def bmp(side: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "BMP")
    return file.getvalue()


def layout(pixels: Tensor, side: int, patch: int) -> Tensor:
    """The bytes of one image of known size in the order of the patches: (rows, columns, channels, patch, patch)."""
    row_bytes = (3 * side + 3) // 4 * 4
    image = pixels.view(side, row_bytes)[:, : 3 * side].view(side, side, 3).flip(0, 2)
    return image.unflatten(1, (-1, patch)).unflatten(0, (-1, patch)).permute(0, 2, 4, 1, 3)


def well_written(side: int, patch: int) -> Callable[[Tensor], Tensor]:
    """The operator for one image: order, then normalise."""

    def run(pixels: Tensor) -> Tensor:
        patches = layout(pixels, side, patch).reshape(-1, 3 * patch * patch)
        return ((patches / 255 - 0.5) / 0.5).bfloat16()

    return run


def looked_up(side: int, patch: int) -> Callable[[Tensor], Tensor]:
    """The operator for one image: every byte looked up in a table of normalised values."""
    table = ((torch.arange(256) / 255 - 0.5) / 0.5).bfloat16()
    return lambda pixels: table[layout(pixels, side, patch).int()].reshape(-1, 3 * patch * patch)


def pillow_unfold(data: bytes, patch: int) -> Tensor:
    """Decode, normalise, unfold: the usual preprocessing."""
    image = torch.from_numpy(np.array(Image.open(io.BytesIO(data)))).permute(2, 0, 1)[None]
    normalised = ((image / 255 - 0.5) / 0.5).bfloat16()
    return F.unfold(normalised, patch, stride=patch)[0].T.contiguous()


def equal(baseline: str, ours: Tensor, theirs: Tensor) -> bool:
    # Inductor contracts a multiplication and an addition into one, which rounds differently.
    if baseline.startswith("inductor"):
        return torch.allclose(ours.float(), theirs.float(), rtol=0, atol=2**-7)
    return bit_equal(ours, theirs)


def cases() -> Iterator[Case]:
    for side, patch in [(1024, 16), (1022, 14), (1020, 17)]:
        data = bmp(side)
        batch = pack_bmps([data], patch_size=patch)
        plain = well_written(side, patch)
        inductor = torch.compile(plain, dynamic=False)
        table = torch.compile(looked_up(side, patch), dynamic=False)
        baselines: dict[str, Callable[[], Any]] = {
            "eager": lambda batch=batch: bmp_to_patches_reference(**vars(batch)),
            "eager, well written": lambda batch=batch, plain=plain: plain(batch.pixels),
            "inductor": lambda batch=batch, inductor=inductor: inductor(batch.pixels),
            "inductor table": lambda batch=batch, table=table: table(batch.pixels),
            "Pillow + unfold": lambda data=data, patch=patch: pillow_unfold(data, patch),
        }

        yield Case(
            f"{side}, patch {patch}",
            lambda batch=batch: bmp_to_patches(**vars(batch)),
            baselines,
            equal=equal,
            num_bytes=side * side * 3 * 3,
            targets={"best": 2.2, "eager": 15, "Pillow + unfold": 25},
        )


def scaling() -> Scaling:
    calls = []
    for side in (16, 64, 256, 512, 1024, 2048, 4096, 6144):
        batch = pack_bmps([bmp(side)], patch_size=16)
        calls.append((side * side, lambda batch=batch: bmp_to_patches(**vars(batch))))
    return Scaling("pixels", calls)
