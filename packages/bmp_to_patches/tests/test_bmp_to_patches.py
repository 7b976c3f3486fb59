"""``bmp_to_patches`` and ``pack_bmps``: real files against Pillow, every byte, crops, and what wrong values do."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from cann_ops_tilelang.bmp_to_patches import BmpBatch, bmp_to_patches, pack_bmps
from cann_ops_tilelang.bmp_to_patches.reference import bmp_to_patches_reference
from cann_ops_tilelang.testing import Call, OperatorTests, behind, bit_equal

CLIP = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
WHOLE_RANGE = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def random_image(height: int, width: int) -> Image.Image:
    return Image.frombytes("RGB", (width, height), bytes(torch.randint(0, 256, (height * width * 3,)).tolist()))


def bmp(image: Image.Image, top_down: bool = False) -> bytes:
    """The file that Pillow writes; with ``top_down``, its rows in the other order and the header's height negated."""
    file = io.BytesIO()
    if not top_down:
        image.save(file, "BMP")
        return file.getvalue()
    image.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(file, "BMP")
    data = bytearray(file.getvalue())
    struct.pack_into("<i", data, 22, -image.height)
    return bytes(data)


def decoded(data: bytes) -> Tensor:
    """Pillow's decode: (height, width, RGB)."""
    image = Image.open(io.BytesIO(data))
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3)


def formula(pixels: Tensor, patch_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """The contract's words: a convolution's patches of the normalised image."""
    values = (pixels.float() / 255 - torch.tensor(mean)) / torch.tensor(std)
    channels = values.permute(2, 0, 1)[None].bfloat16()
    patches = torch.nn.functional.unfold(channels.float(), patch_size, stride=patch_size)
    return patches[0].T.bfloat16()


def random_batch(
    sizes: list[tuple[int, int]], patch_size: int, crops: list[tuple[int, ...]] | None = None, padding: int = 0
) -> Call:
    """Pixels at any offsets, with other bytes around them; heights carry the header's sign."""
    offsets, position = [], 5
    for height, width in sizes:
        offsets.append(position)
        position += abs(height) * ((3 * width + 3) // 4 * 4) + 3
    boxes = [(image, 0, 0, abs(size[0]), size[1]) for image, size in enumerate(sizes)] if crops is None else crops
    counts = [(box[3] // patch_size) * (box[4] // patch_size) for box in boxes]
    return Call(
        (
            torch.randint(0, 256, (position,), dtype=torch.uint8),
            torch.tensor(offsets, dtype=torch.int64),
            torch.tensor(sizes, dtype=torch.int32).view(-1, 2),
            torch.tensor([0, *counts]).cumsum(0).int(),
        ),
        {
            "total_patches": sum(counts) + padding,
            "patch_size": patch_size,
            "crops": None if crops is None else torch.tensor(crops, dtype=torch.int32).view(-1, 5),
        },
    )


def check(call: Call, device: str) -> None:
    assert bit_equal(call.to(device)(bmp_to_patches), call(bmp_to_patches_reference))


class TestBmpToPatches(OperatorTests):
    operator = staticmethod(bmp_to_patches)
    reference = staticmethod(bmp_to_patches_reference)

    def calls(self) -> list[Call]:
        return [
            random_batch([(8, 12), (-4, 4)], 4, crops=[(1, 0, 0, 4, 4), (0, 3, 5, 4, 4), (0, 0, 1, 8, 8)], padding=2),
            random_batch([(224, 336), (-112, 14)], 14),
            random_batch([(34, 51), (-17, 17), (17, 34)], 17).with_args(**CLIP),
            random_batch([(-320, 320)], 16, crops=[(0, 1, 7, 304, 288), (0, 0, 0, 16, 16)]).with_args(**IMAGENET),
        ]

    def other(self) -> Call:
        return random_batch([(-4, 4), (8, 12)], 4, crops=[(0, 0, 0, 4, 4), (1, 0, 0, 8, 8), (1, 4, 8, 4, 4)], padding=2)


@pytest.mark.parametrize("patch_size", [1, 14, 16, 17, 22])
@pytest.mark.parametrize("top_down", [False, True])
@pytest.mark.parametrize("constants", [HALF, CLIP, IMAGENET, WHOLE_RANGE], ids=["half", "clip", "imagenet", "range"])
def test_equals_the_formula_on_what_pillow_decodes(
    device: str, tmp_path: Path, patch_size: int, top_down: bool, constants: dict[str, tuple[float, ...]]
) -> None:
    """Several files of sizes whose rows need 0 to 3 bytes of padding; the batch may be packed from paths."""
    sizes = [(patch_size * rows, patch_size * columns) for rows, columns in ((1, 1), (2, 3), (3, 2), (1, 4), (4, 5))]
    files = [bmp(random_image(*size), top_down) for size in sizes]
    paths = [tmp_path / f"{index}.bmp" for index in range(len(files))]
    for path, data in zip(paths, files):
        path.write_bytes(data)
    batch = pack_bmps(paths, patch_size=patch_size)
    actual = bmp_to_patches(**vars(batch.to(device)), **constants)
    expected = torch.cat([formula(decoded(data), patch_size, **constants) for data in files])
    assert bit_equal(actual, expected)


@pytest.mark.parametrize("patch_size", [1, 14, 16, 17])
def test_crops_of_real_files(device: str, patch_size: int) -> None:
    p = patch_size
    files = [bmp(random_image(5 * p, 3 * p + 1)), bmp(random_image(2 * p + 3, 4 * p), top_down=True)]
    crops = [(1, 3, p, 2 * p, 2 * p), (0, 0, 1, p, 3 * p), (1, 0, 0, p, p), (0, 4 * p, 0, p, p), (0, 2, 1, p, p)]
    batch = pack_bmps(files, patch_size=p, crops=crops)
    expected = [
        formula(decoded(files[image])[top : top + height, left : left + width], p, **CLIP)
        for image, top, left, height, width in crops
    ]
    assert bit_equal(bmp_to_patches(**vars(batch.to(device)), **CLIP), torch.cat(expected))


@pytest.mark.parametrize("seed", range(20))
def test_every_byte_with_random_constants(device: str, seed: int) -> None:
    """All 256 values in each channel, divided twice and rounded once."""
    generator = torch.Generator().manual_seed(seed)
    mean = tuple((torch.rand(3, generator=generator) * 2 - 0.5).tolist())
    std = tuple((torch.rand(3, generator=generator).double().exp() ** (seed - 10)).tolist())
    image = Image.frombytes("RGB", (16, 16), bytes(value for index in range(256) for value in (index, index, index)))
    batch = pack_bmps([bmp(image)], patch_size=16)
    actual = bmp_to_patches(**vars(batch.to(device)), mean=mean, std=std)
    levels = torch.arange(256, dtype=torch.float32)
    expected = [((levels / 255 - m) / s).bfloat16() for m, s in zip(torch.tensor(mean), torch.tensor(std))]
    assert bit_equal(actual, torch.cat(expected)[None])


def test_equals_a_patch_embedding_convolution(device: str) -> None:
    image = random_image(28, 42)
    convolution = torch.nn.Conv2d(3, 8, 14, stride=14, dtype=torch.float32)
    batch = pack_bmps([bmp(image)], patch_size=14)
    patches = bmp_to_patches(**vars(batch.to(device)), **CLIP).cpu().float()
    values = (decoded(bmp(image)).float() / 255 - torch.tensor(CLIP["mean"])) / torch.tensor(CLIP["std"])
    expected = convolution(values.permute(2, 0, 1)[None].bfloat16().float())[0].flatten(1).T
    actual = torch.nn.functional.linear(patches, convolution.weight.flatten(1), convolution.bias)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "patch_size",
    [
        100,
        *(pytest.param(size, marks=pytest.mark.level(2)) for size in (2, 3, 4, 5, 8, 13, 20, 21, 23, 42, 43, 63, 65)),
    ],
)
def test_more_patch_sizes(device: str, patch_size: int) -> None:
    """Whole images and crops; the last row of the last image ends with the buffer."""
    call = random_batch([(2 * patch_size, 3 * patch_size), (-patch_size, patch_size)], patch_size).with_args(**CLIP)
    end = int(call.args[1][1]) + patch_size * ((3 * patch_size + 3) // 4 * 4)
    check(Call((call.args[0][:end].clone(), *call.args[1:]), call.kwargs), device)
    check(
        random_batch([(2 * patch_size, 40 + patch_size)], patch_size, crops=[(0, 1, 33, patch_size, patch_size)]),
        device,
    )


@pytest.mark.parametrize("patch_size", [14, 16, 17])
def test_acceptance_sizes(device: str, patch_size: int) -> None:
    side = 1024 // patch_size * patch_size
    check(random_batch([(side, side)], patch_size), device)


@pytest.mark.parametrize("patch_size", [1, 16])
def test_padding_patches_are_zero(device: str, patch_size: int) -> None:
    call = random_batch([(2 * patch_size, patch_size)], patch_size, padding=7)
    check(call, device)
    assert (call.to(device)(bmp_to_patches)[2:] == 0).all()


@pytest.mark.parametrize("total_patches", [0, 3])
@pytest.mark.parametrize("crops", [None, []])
def test_no_images(device: str, total_patches: int, crops: list[tuple[int, ...]] | None) -> None:
    check(random_batch([], 4, crops=crops, padding=total_patches), device)
    batch = pack_bmps([], patch_size=4, crops=crops)
    assert bmp_to_patches(**vars(batch.to(device))).shape == (0, 48)


def test_empty_crops(device: str) -> None:
    check(random_batch([(8, 8)], 4, crops=[(0, 8, 8, 0, 0), (0, 0, 0, 4, 8), (0, 2, 0, 4, 0)], padding=1), device)


@pytest.mark.parametrize("count", [63, 64, 65, 1000])
def test_many_images(device: str, count: int) -> None:
    sizes = [(4 * (index % 3 + 1) * (-1) ** index, 4 * (index % 2 + 1)) for index in range(count)]
    check(random_batch(sizes, 4), device)
    crops = [(index * 7 % count, 0, index % 2 * (sizes[index * 7 % count][1] - 4), 4, 4) for index in range(count)]
    check(random_batch(sizes, 4, crops=crops, padding=3), device)


@pytest.mark.on("cpu")
def test_many_empty_crops_of_no_image() -> None:
    with pytest.raises(ValueError, match="crops must be of one of 0 images, got image 0 for crop 0"):
        random_batch([], 4, crops=[(0, 0, 0, 0, 0)] * 100).to("cpu")(bmp_to_patches)


@pytest.mark.on("cpu")
@pytest.mark.parametrize("patch_size", [16, 22])
def test_the_portable_kernel_gives_the_same_bits(patch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one for processors without AVX-512 VBMI, and a file that ends with the last pixel."""
    from cann_ops_tilelang.bmp_to_patches.kernels import cpu

    call = random_batch([(2 * patch_size, 3 * patch_size), (-patch_size, patch_size)], patch_size).with_args(**CLIP)
    expected = call(bmp_to_patches)
    monkeypatch.setattr(cpu, "has_vbmi", lambda: False)
    assert bit_equal(call(bmp_to_patches), expected)
    check(call, "cpu")


def test_rejects_a_std_that_divides_by_nothing(device: str) -> None:
    call = random_batch([(4, 4)], 4)
    for std in ((0.5, 0.0, 0.5), (-1.0, 1.0, 1.0), (1.0, float("inf"), 1.0), (1.0, 1.0, float("nan"))):
        with pytest.raises(ValueError, match="bmp_to_patches: std must be positive and finite"):
            call.to(device).with_args(std=std)(bmp_to_patches)


def test_rejects_prefix_sums_of_another_number_of_images(device: str) -> None:
    call = random_batch([(4, 4), (8, 4)], 4)
    sums = torch.tensor([0, 1], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"bmp_to_patches: cu_patches must have shape .* num_images = 2"):
        Call((*call.args[:3], sums), call.kwargs).to(device)(bmp_to_patches)


def wrong(sizes: object = None, offsets: object = None, cu: object = None, **options: object) -> dict[str, object]:
    return {"sizes": sizes, "offsets": offsets, "cu": cu, **options}


WRONG = {
    "height is 0": (wrong(sizes=[(8, 8), (0, 4)]), "sizes .* got 0 x 4 for image 1"),
    "width is 0": (wrong(sizes=[(8, 0), (4, 4)]), "sizes .* got 8 x 0 for image 0"),
    "width is negative": (wrong(sizes=[(8, 8), (4, -4)]), "sizes .* got 4 x -4 for image 1"),
    "height is the smallest number": (wrong(sizes=[(8, 8), (-(2**31), 4)]), "offsets .* for image 1 of"),
    "offset is negative": (wrong(offsets=[-1, 200]), "offsets .* got -1 for image 0"),
    "offset passes the end": (wrong(offsets=[5, 2**40]), "offsets .* for image 1 of 48 bytes"),
    "last row passes the end": (wrong(offsets=[5, 212]), "offsets .* got 212 for image 1 of 48 bytes"),
    "size is no multiple": (wrong(sizes=[(8, 8), (4, 3)]), "sizes .* patch_size 4, got 4 x 3 for image 1"),
    "sums do not start at 0": (wrong(cu=[1, 4, 5]), "cu_patches must start at 0, got 1 for image 0"),
    "sums do not match": (wrong(cu=[0, 4, 6]), "cu_patches .* 1 for image 1, got 2"),
    "sums decrease": (wrong(cu=[0, 4, 3]), "cu_patches .* 1 for image 1, got -1"),
    "too few patches": (wrong(total_patches=4), "total_patches .* patches up to image 1"),
    "crop of no image": (wrong(crops=[(0, 0, 0, 8, 8), (2, 0, 0, 4, 4)]), "crops .* got image 2 for crop 1"),
    "crop of a negative image": (wrong(crops=[(-1, 0, 0, 8, 8), (1, 0, 0, 4, 4)]), "crops .* got image -1 for crop 0"),
    "crop above": (wrong(crops=[(0, -1, 0, 8, 8), (1, 0, 0, 4, 4)]), "crops .* for crop 0 of image 0"),
    "crop below": (wrong(crops=[(0, 0, 0, 8, 8), (1, 1, 0, 4, 4)]), "crops .* for crop 1 of image 1"),
    "crop to the left": (wrong(crops=[(0, 0, -4, 8, 8), (1, 0, 0, 4, 4)]), "crops .* for crop 0 of image 0"),
    "crop to the right": (wrong(crops=[(0, 0, 4, 8, 8), (1, 0, 0, 4, 4)]), "crops .* for crop 0 of image 0"),
    "crop of negative size": (wrong(crops=[(0, 8, 8, -8, -8), (1, 0, 0, 4, 4)]), "crops .* for crop 0 of image 0"),
    "crop far away": (
        wrong(crops=[(0, 2**31 - 1, 0, 2**31 - 1, 8), (1, 0, 0, 4, 4)]),
        "crops .* for crop 0 of image 0",
    ),
    "crop is no multiple": (
        wrong(crops=[(0, 0, 0, 8, 6), (1, 0, 0, 4, 4)]),
        "crops .* got 8 x 6 for crop 0 of image 0",
    ),
}


@pytest.mark.on("cpu")
@pytest.mark.parametrize(("values", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_name_the_image(values: dict[str, object], message: str) -> None:
    """Behind no or many valid images, eager or compiled."""
    valid = random_batch([(8, 8), (4, 4)], 4)
    pixels, offsets, sizes, cu = (argument.tolist() for argument in valid.args)
    sizes, offsets, cu = (values[n] or v for n, v in (("sizes", sizes), ("offsets", offsets), ("cu", cu)))
    total, crops = values.get("total_patches", 5), values.get("crops")
    compiled = torch.compile(bmp_to_patches, backend="eager")
    for before in [0] if cu[0] else [0, 100]:
        boxes = [(0, 0, 0, 4, 4)] * before
        if crops is not None:
            boxes += [(image + (before if image >= 0 else 0), *box) for image, *box in crops]
        call = Call(
            (
                torch.tensor(pixels, dtype=torch.uint8),
                torch.tensor([5] * before + offsets),
                torch.tensor([[4, 4]] * before + [list(size) for size in sizes], dtype=torch.int32),
                torch.tensor([*range(before), *(before + number for number in cu)], dtype=torch.int32),
            ),
            {
                "total_patches": total + before,
                "patch_size": 4,
                "crops": None if crops is None else torch.tensor(boxes, dtype=torch.int32),
            },
        )
        expected = behind(message, before)
        for function in (bmp_to_patches, compiled):
            with pytest.raises(ValueError, match=f"bmp_to_patches: {expected}"):
                call(function)


# -- pack_bmps ---------------------------------------------------------------------------------------------------------


def test_pack_takes_paths_bytes_and_binary_files(tmp_path: Path) -> None:
    data = bmp(random_image(6, 10))
    path = tmp_path / "page.bmp"
    path.write_bytes(data)
    with path.open("rb") as file:
        batches = [pack_bmps([source], patch_size=2) for source in (path, str(path), data, io.BytesIO(data), file)]
    for batch in batches:
        assert torch.equal(batch.pixels, torch.frombuffer(bytearray(data[54:]), dtype=torch.uint8))
        assert (batch.offsets.tolist(), batch.sizes.tolist(), batch.cu_patches.tolist()) == ([0], [[6, 10]], [0, 15])
        assert (batch.total_patches, batch.patch_size, batch.crops) == (15, 2, None)
        dtypes = [batch.pixels.dtype, batch.offsets.dtype, batch.sizes.dtype, batch.cu_patches.dtype]
        assert dtypes == [torch.uint8, torch.int64, torch.int32, torch.int32]


def test_pack_keeps_the_direction_of_rows() -> None:
    image = random_image(4, 4)
    batch = pack_bmps([bmp(image), bmp(image, top_down=True)], patch_size=4)
    assert batch.sizes.tolist() == [[4, 4], [-4, 4]]
    first, second = bmp_to_patches(**vars(batch))
    assert bit_equal(first, second)


def test_pack_reads_other_headers() -> None:
    """An OS/2 core header, a version 5 header, and pixels that do not follow the header at once."""
    plain = bmp(random_image(3, 5))
    pixels = plain[54:]
    core = struct.pack("<2sIHHI", b"BM", 26 + len(pixels), 0, 0, 26) + struct.pack("<IHHHH", 12, 5, 3, 1, 24) + pixels
    large = struct.pack("<2sIHHI", b"BM", 150 + len(pixels), 0, 0, 150)
    large += struct.pack("<I", 124) + plain[18:54] + bytes(84) + bytes(12) + pixels
    for data in (plain, core, large):
        batch = pack_bmps([data], patch_size=1)
        assert torch.equal(batch.pixels, torch.frombuffer(bytearray(pixels), dtype=torch.uint8))
        assert batch.sizes.tolist() == [[3, 5]]


def png() -> bytes:
    file = io.BytesIO()
    random_image(4, 4).save(file, "PNG")
    return file.getvalue()


def patched(at: int, kind: str, value: int, image: Image.Image | None = None) -> bytes:
    data = bytearray(bmp(random_image(4, 4) if image is None else image))
    struct.pack_into("<" + kind, data, at, value)
    return bytes(data)


def run_length_encoded() -> bytes:
    palette = Image.new("P", (4, 4))
    palette.putpalette(list(range(9)))
    return patched(30, "I", 1, palette)


REJECTED = {
    "PNG": (png, "it is not a BMP file"),
    "empty": (bytes, "it is not a BMP file"),
    "only the magic": (lambda: b"BM", "its header cannot be read"),
    "1 bit": (lambda: bmp(Image.new("1", (4, 4))), "not 24 bits a pixel"),
    "8-bit grey": (lambda: bmp(Image.new("L", (4, 4))), "not 24 bits a pixel"),
    "8-bit palette": (lambda: bmp(random_image(4, 4).quantize(7)), "not 24 bits a pixel"),
    "16 bit": (lambda: patched(28, "H", 16), "not 24 bits a pixel"),
    "32 bit": (lambda: bmp(Image.new("RGBA", (4, 4))), "not 24 bits a pixel"),
    "RLE": (run_length_encoded, "it is compressed"),
    "JPEG inside": (lambda: patched(30, "I", 4), "its header cannot be read .*compression"),
    "OS/2 header of 16 bytes": (lambda: patched(14, "I", 16), "its header cannot be read"),
    "header of a size nobody knows": (lambda: patched(14, "I", 41), "its header cannot be read"),
    "truncated header": (lambda: bmp(random_image(4, 4))[:30], "its header cannot be read"),
    "truncated pixels": (lambda: bmp(random_image(4, 4))[:-1], "it is truncated"),
    "no pixels": (lambda: bmp(random_image(4, 4))[:54], "it is truncated"),
    "zero width": (lambda: patched(18, "i", 0), "its width or height is zero"),
    "zero height": (lambda: patched(22, "i", 0), "its width or height is zero"),
    "negative width": (lambda: patched(18, "i", -4), "(it is truncated|header cannot be read)"),
    "height larger than the file": (lambda: patched(22, "i", 5), "it is truncated"),
    "pixels behind the end": (lambda: patched(10, "I", 10**6), "it is truncated"),
    "pixels inside the header": (lambda: patched(10, "I", 20), "its pixels begin at byte 20, inside its header"),
    "file size too small": (lambda: patched(2, "I", 60), "its header gives a size of 60 bytes, it has 102"),
    "file size too large": (lambda: patched(2, "I", 10**6), "its header gives a size of 1000000 bytes, it has 102"),
    "pixel size too small": (lambda: patched(34, "I", 47), "its header gives 47 bytes of pixels"),
    "pixel size too large": (lambda: patched(34, "I", 49), "its header gives 49 bytes of pixels"),
    "height no multiple": (lambda: bmp(random_image(6, 4)), "its size of 6 x 4 is no multiple of patch_size 4"),
    "width no multiple": (lambda: bmp(random_image(4, 7)), "its size of 4 x 7 is no multiple of patch_size 4"),
}


@pytest.mark.parametrize(("make", "reason"), REJECTED.values(), ids=REJECTED.keys())
def test_pack_rejects_and_names_file_and_reason(make: object, reason: str, tmp_path: Path) -> None:
    good, bad = bmp(random_image(4, 4)), make()  # type: ignore[operator]
    path = tmp_path / "page.bmp"
    path.write_bytes(bad)
    with pytest.raises(ValueError, match=f"^pack_bmps: {re.escape(str(path))}: .*{reason}"):
        pack_bmps([good, path], patch_size=4)
    with pytest.raises(ValueError, match=f"^pack_bmps: file 1: .*{reason}"):
        pack_bmps([good, bad], patch_size=4)


@pytest.mark.parametrize(
    ("crop", "reason"),
    [
        ((2, 0, 0, 4, 4), "crop 0 must be of one of 2 files, got image 2"),
        ((-1, 0, 0, 4, 4), "crop 0 must be of one of 2 files, got image -1"),
        ((1, 5, 0, 4, 4), r"file 1: crop 0 of 4 x 4 at \(5, 0\) leaves its 8 x 12 pixels"),
        ((1, 0, 9, 4, 4), "file 1: crop 0 of 4 x 4"),
        ((1, 0, -1, 4, 4), "file 1: crop 0 of 4 x 4"),
        ((1, 4, 4, -4, 4), "file 1: crop 0 of -4 x 4"),
        ((1, 0, 0, 4, 6), "file 1: its crop of 4 x 6 is no multiple of patch_size 4"),
        ((1, 0, 0, 4), r"crop 0 must be \(image, top, left, height, width\)"),
    ],
)
def test_pack_rejects_crops(crop: tuple[int, ...], reason: str) -> None:
    files = [bmp(random_image(7, 7)), bmp(random_image(8, 12))]
    with pytest.raises(ValueError, match=f"^pack_bmps: {reason}"):
        pack_bmps(files, patch_size=4, crops=[crop])


def test_pack_rejects_a_patch_size_below_1() -> None:
    with pytest.raises(ValueError, match="pack_bmps: patch_size must be >= 1, got 0"):
        pack_bmps([], patch_size=0)


def test_batch_moves_as_a_whole() -> None:
    batch = pack_bmps([bmp(random_image(4, 4))], patch_size=2, crops=[(0, 0, 0, 2, 2)])
    moved = batch.to("meta")
    assert isinstance(moved, BmpBatch)
    assert all(value.is_meta for value in vars(moved).values() if isinstance(value, Tensor))
    assert bmp_to_patches(**vars(moved)).shape == (1, 12)
