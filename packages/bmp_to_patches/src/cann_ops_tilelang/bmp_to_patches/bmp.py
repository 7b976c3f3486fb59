"""Reading BMP files into the arguments of ``bmp_to_patches``."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Union

import torch
from torch import Tensor

from .operator import row_bytes

BmpSource = Union[str, "os.PathLike[str]", bytes, BinaryIO]
Box = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class BmpBatch:
    """The arguments of ``bmp_to_patches`` by name: ``bmp_to_patches(**vars(batch))``."""

    pixels: Tensor
    offsets: Tensor
    sizes: Tensor
    cu_patches: Tensor
    total_patches: int
    patch_size: int
    crops: Tensor | None

    def to(self, device: str | torch.device) -> BmpBatch:
        """The batch on another device."""
        moved: dict[str, Any] = {
            name: value.to(device) if isinstance(value, Tensor) else value for name, value in vars(self).items()
        }
        return BmpBatch(**moved)


def pack_bmps(files: Sequence[BmpSource], *, patch_size: int, crops: Sequence[Sequence[int]] | None = None) -> BmpBatch:
    """Read 24-bit uncompressed BMP files into the arguments of ``bmp_to_patches``, on CPU.

    Args:
        files: paths, contents of files as bytes, or binary files, which are read from where they stand.
        patch_size: side of a patch in pixels.
        crops: (image, top, left, height, width) of every crop in pixels of the upright image; None: every image, whole.

    Raises:
        ValueError: a file is not a BMP file, has not 24 bits a pixel, is compressed or truncated or contradicts its
            header, or an image or a crop does not fit. The message names the file and the reason.
    """
    if patch_size < 1:
        raise ValueError(f"pack_bmps: patch_size must be >= 1, got {patch_size}")
    names = [_name(file, index) for index, file in enumerate(files)]
    arrays, sizes = [], []
    for file, name in zip(files, names):
        array, height, width = _read(_contents(file), name)
        arrays.append(array)
        sizes.append((height, width))
    if crops is None:
        boxes = [(image, 0, 0, abs(height), width) for image, (height, width) in enumerate(sizes)]
    else:
        boxes = [_box(crop, index, names, sizes) for index, crop in enumerate(crops)]
    counts = [0]
    for image, _, _, height, width in boxes:
        if height % patch_size or width % patch_size:
            what = "size" if crops is None else "crop"
            raise _error(names[image], f"its {what} of {height} x {width} is no multiple of patch_size {patch_size}")
        counts.append((height // patch_size) * (width // patch_size))
    lengths = torch.tensor([0, *map(len, arrays)])
    cu_patches = torch.tensor(counts).cumsum(0)
    return BmpBatch(
        pixels=torch.frombuffer(bytearray().join(arrays) or bytearray(1), dtype=torch.uint8)[: int(lengths.sum())],
        offsets=lengths.cumsum(0)[:-1],
        sizes=torch.tensor(sizes, dtype=torch.int32).view(-1, 2),
        cu_patches=cu_patches.int(),
        total_patches=int(cu_patches[-1]),
        patch_size=patch_size,
        crops=None if crops is None else torch.tensor(boxes, dtype=torch.int32).view(-1, 5),
    )


def _name(file: BmpSource, index: int) -> str:
    if isinstance(file, (str, os.PathLike)):
        return os.fspath(file)
    return f"file {index}"


def _contents(file: BmpSource) -> bytes:
    if isinstance(file, (str, os.PathLike)):
        return Path(file).read_bytes()
    return file if isinstance(file, bytes) else file.read()


def _read(data: bytes, name: str) -> tuple[memoryview, int, int]:
    """The pixel array of a BMP file, the height with the header's sign, and the width."""
    from PIL import Image

    if not data.startswith(b"BM"):
        raise _error(name, "it is not a BMP file")
    if _has_no_pixels(data):
        raise _error(name, "its width or height is zero")
    try:
        image = Image.open(io.BytesIO(data), formats=["BMP"])
    except Exception as error:  # Pillow raises many kinds for a broken header
        raise _error(name, f"its header cannot be read ({error})") from error
    with image:
        tile: tuple[Any, ...] = image.tile[0]
        width, height = image.size
    codec, _, offset, arguments = tile
    if codec != "raw":
        raise _error(name, "it is compressed")
    raw_mode, _, direction = arguments
    if raw_mode != "BGR":
        raise _error(name, f"it has not 24 bits a pixel but the layout {raw_mode}")
    header_size = 14 + int.from_bytes(data[14:18], "little")
    if offset < header_size:
        raise _error(name, f"its pixels begin at byte {offset}, inside its header of {header_size} bytes")
    length = height * row_bytes(width)
    if offset + length > len(data):
        raise _error(name, f"it is truncated: {height} x {width} pixels end at byte {offset + length} of {len(data)}")
    _check_size_fields(data, offset, length, name)
    return memoryview(data)[offset : offset + length], -direction * height, width


def _has_no_pixels(data: bytes) -> bool:
    """Whether width or height is zero, which Pillow reports as an unknown format."""
    core_header = data[14:18] == b"\x0c\0\0\0"
    width, height = (data[18:20], data[20:22]) if core_header else (data[18:22], data[22:26])
    return len(data) >= 26 and not (any(width) and any(height))


def _check_size_fields(data: bytes, offset: int, length: int, name: str) -> None:
    """Compare what Pillow ignores with the file: its size and, if the header gives one, the size of its pixel array."""
    file_size, header_size, array_size = (int.from_bytes(data[at : at + 4], "little") for at in (2, 14, 34))
    if file_size != len(data):
        raise _error(name, f"its header gives a size of {file_size} bytes, it has {len(data)}")
    if header_size >= 40 and array_size != 0 and not length <= array_size <= len(data) - offset:
        raise _error(
            name, f"its header gives {array_size} bytes of pixels, it has {len(data) - offset} and needs {length}"
        )


def _box(crop: Sequence[int], index: int, names: Sequence[str], sizes: Sequence[tuple[int, int]]) -> Box:
    if len(crop) != 5:
        raise ValueError(f"pack_bmps: crop {index} must be (image, top, left, height, width), got {tuple(crop)}")
    image, top, left, height, width = crop
    if not 0 <= image < len(names):
        raise ValueError(f"pack_bmps: crop {index} must be of one of {len(names)} files, got image {image}")
    rows, columns = abs(sizes[image][0]), sizes[image][1]
    if not (0 <= top <= top + height <= rows and 0 <= left <= left + width <= columns):
        raise _error(
            names[image], f"crop {index} of {height} x {width} at ({top}, {left}) leaves its {rows} x {columns} pixels"
        )
    return image, top, left, height, width


def _error(name: str, reason: str) -> ValueError:
    return ValueError(f"pack_bmps: {name}: {reason}")
