"""Ascend 950 kernel of ``bmp_to_patches``."""

import math
from typing import Any

import tilelang.ascend.language as T
from tilelang.ascend.language import simd as S

from cann_ops_tilelang.core import kernel, num_vector_cores

# 16-bit and float32 lanes of a vector register, and 16-bit elements of UB's 32-byte blocks.
LANES, LANES32, BLOCK = 128, 64, 16
# Pixel bytes of a tile; its values take twice as many. Two tiles take turns. Offsets in a tile fit 16 bits.
TILE_BYTES = 24 * 1024
# Pixel bytes of a tile that is less than a patch: its two tables are as long.
PART_BYTES = 16 * 1024
# Values of a group of patches, the length of the tables. Groups end at blocks of 32 bytes.
GROUP_VALUES = 8192
THREADS = 512


def launch(
    patches: Any,
    pixels: Any,
    offsets: Any,
    sizes: Any,
    cu_patches: Any,
    total_patches: int,
    patch_size: int,
    mean: Any,
    std: Any,
    crops: Any,
) -> None:
    if total_patches == 0:
        return
    build(patch_size, crops is not None, num_vector_cores())(
        patches.data_ptr(),
        pixels.data_ptr(),
        offsets.data_ptr(),
        sizes.data_ptr(),
        cu_patches.data_ptr(),
        None if crops is None else crops.data_ptr(),
        *mean,
        *std,
        total_patches,
        pixels.shape[0],
        sizes.shape[0],
        cu_patches.shape[0] - 1,
    )


@kernel("ascend", auto_schedule=False)
def build(patch_size: int, cropped: bool, num_cores: int) -> Any:
    """One kernel for each patch_size, with or without crops.

    patches (total_patches, 3 * patch_size ** 2) bfloat16 as uint16; pixels (num_bytes,) uint8; the others as stated by
    the contract. ``crops`` is not touched unless ``cropped``.

    A core has a contiguous share of the patches, cut into tiles: neighbours in one row of patches, for size 16 up to
    32. Their pixels come with one DMA of patch_size bursts and the values leave with one, each byte moved once; one
    tile loads while another is computed and stored. A page of 1024 x 1024 takes 360 DMAs of 26 KB on average.

    A result depends on a byte and its channel alone, so a core divides, exactly and in float32, for 256 levels of three
    channels. Every 128 values then cost five vector instructions: two gathers, one for their bytes, by a table that
    holds the layout of a group of patches and is turned over with the rows of the image, and one for the results.

    Paths: tiles of ``packed`` groups, which are stored as they are; of channels padded to blocks of 32 bytes, where a
    few patches together do not fill such blocks; of parts of a patch, where one is too large for UB. Tiles that
    leave their image or the buffer, and patches that no crop claims, go pixel by pixel and get zeros. A crop claims
    patches if they are as many as its size has; where one does not, every crop is looked at.
    """
    area = patch_size * patch_size
    num_values = 3 * area
    # A tile: `rows` x `columns` pixels of each of up to `tile_patches` neighbouring patches.
    group = BLOCK // math.gcd(num_values, BLOCK)
    packed = num_values * group <= GROUP_VALUES
    rows, columns = patch_size, patch_size
    if num_values > PART_BYTES:
        columns = min(patch_size, PART_BYTES // 3 // BLOCK * BLOCK)
        rows = PART_BYTES // (3 * columns) if columns == patch_size else 1
    if packed:
        group *= max(1, LANES // (num_values * group))
        plane = area
        span = group * num_values
    else:
        group = 1
        plane = -(-rows * columns // BLOCK) * BLOCK
        span = 3 * plane
    groups = max(1, TILE_BYTES // (3 * rows * columns * group))
    tile_patches = groups * group
    pitch = -(-3 * columns * tile_patches // 32) * 32
    vectors = -(-span // LANES)
    # What the last vector, or the last step of all threads, writes past the values.
    slot_values = groups * span + max(LANES, THREADS)
    row_tiles = -(-patch_size // rows)
    column_tiles = -(-patch_size // columns)
    row_count, row_length = (tile_patches, num_values) if packed else (3 * tile_patches, plane)
    levels = range(0, 256, LANES32)
    total_patches = T.dynamic("total_patches")
    num_bytes = T.dynamic("num_bytes", "int64")
    num_images = T.dynamic("num_images")
    num_crops = T.dynamic("num_crops")

    @T.macro
    def value_table(values, channel, mean, std):
        """values[256 * channel + p]: the result for byte p."""
        all32 = S.pset(32)
        for first in levels:
            level = S.vcvt(S.vci(first, "int32"), "float32", all32)
            level = S.vdiv(level, S.vdup(T.float32(255), "float32", all32), all32, precision="exact")
            level = S.vdiv(S.vsub(level, mean, all32), std, all32, precision="exact")
            level = T.reinterpret(S.vcvt(level, "bfloat16", all32, sat=False), "uint16x128")
            S.vsts(values[256 * channel + first], level, all32, "PK_B32")

    @T.macro
    def clear(tile):
        """Gathers take whole groups; what they read and nobody loaded must at least be bytes."""
        zero = S.vdup(T.uint8(0), "uint8")
        for slot in T.serial(2):
            for i in T.serial(-(-rows * pitch // 256)):
                S.vsts(tile[slot, 0, i * 256], zero, S.update_mask(rows * pitch - i * 256, 8), "NORM_B8")

    @T.macro
    def source_tables(sources, channels, flipped):
        """Where in a tile the values of a group come from, and 256 times their channel."""
        for step in T.serial(-(-vectors * LANES // THREADS)):
            for thread in T.Parallel(THREADS):
                i = step * THREADS + thread
                if i < vectors * LANES:
                    patch = T.truncdiv(i, 3 * plane)
                    channel = T.truncdiv(i, plane) - 3 * patch
                    place = T.truncmod(i, plane)
                    row = T.truncdiv(place, columns)
                    column = place - row * columns
                    inside = i < span and row < rows
                    row = T.if_then_else(flipped > 0, rows - 1 - row, row)
                    offset = row * pitch + 3 * (patch * patch_size + column) + 2 - channel
                    sources[i] = T.cast(T.if_then_else(inside, offset, 0), "uint16")
                    channels[i] = T.cast(T.if_then_else(inside, 256 * channel, 0), "uint16")

    @T.macro
    def look_up(result, tile, sources, channels, values, slot, count):
        """The values of the tile's patches, by two gathers for every 128."""
        all8 = S.pset(8)
        all16 = S.pset(16)
        for v in T.serial(vectors):
            source = S.vld(sources[v * LANES])
            channel = S.vld(channels[v * LANES])
            present = S.update_mask(span - v * LANES, 16)
            for g in T.serial(T.ceildiv(count, group)):
                moved = S.vadds(source, T.uint16(g * (3 * group * patch_size)), all16)
                byte = S.vgather2(tile[slot, 0, 0], moved, all8)
                value = S.vgather2(values[0], S.vadd(byte, channel, all16), all16)
                S.vsts(result[slot, g * span + v * LANES], value, present)

    @T.macro
    def look_up_checked(
        result, pixels, values, slot, count, top, left, height, width, offset, step, flipped, num_bytes
    ):
        """The same, pixel by pixel from global memory; zero for a pixel outside its image or the buffer."""
        for part in T.serial(T.ceildiv(count * span, THREADS)):
            for thread in T.Parallel(THREADS):
                i = part * THREADS + thread
                patch = T.truncdiv(i, 3 * plane)
                channel = T.truncdiv(i, plane) - 3 * patch
                place = T.truncmod(i, plane)
                row = top + T.truncdiv(place, columns)
                column = left + patch * patch_size + T.truncmod(place, columns)
                value = T.alloc_var("uint16")
                value = T.uint16(0)
                if row >= 0 and row < height and column >= 0 and column < width:
                    stored = T.if_then_else(flipped > 0, height - 1 - row, row)
                    if offset >= 0 and stored <= T.truncdiv(num_bytes - offset, step):
                        address = offset + stored * step + 3 * column + 2 - channel
                        if address < num_bytes:
                            value = values[256 * channel + T.cast(pixels[address], "int32")]
                result[slot, i] = value

    @T.prim_func
    def bmp_to_patches(
        patches: T.Tensor((total_patches, num_values), "uint16"),
        pixels: T.Tensor((num_bytes,), "uint8"),
        offsets: T.Tensor((num_images,), "int64"),
        sizes: T.Tensor((num_images, 2), "int32"),
        cu_patches: T.Tensor((num_crops + 1,), "int32"),
        crops: T.Tensor((num_crops, 5), "int32"),
        mean_r: T.float32,
        mean_g: T.float32,
        mean_b: T.float32,
        std_r: T.float32,
        std_g: T.float32,
        std_b: T.float32,
    ):
        with T.Kernel(num_cores) as core:
            values = T.alloc_shared((3 * 256,), "uint16")
            sources = T.alloc_shared((vectors * LANES,), "uint16")
            channels = T.alloc_shared((vectors * LANES,), "uint16")
            tile = T.alloc_shared((2, rows, pitch), "uint8")
            result = T.alloc_shared((2, slot_values), "uint16")
            patch = T.alloc_var("int32")
            end = T.alloc_var("int32")
            crop = T.alloc_var("int32")
            other = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            claimed = T.alloc_var("bool")
            misled = T.alloc_var("bool")
            count = T.alloc_var("int32")
            turn = T.alloc_var("int32")
            oriented = T.alloc_var("int32")
            flipped = T.alloc_var("int32")
            image = T.alloc_var("int32")
            height = T.alloc_var("int64")
            width = T.alloc_var("int64")
            step = T.alloc_var("int64")
            offset = T.alloc_var("int64")
            crop_height = T.alloc_var("int64")
            crop_width = T.alloc_var("int64")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            valid = T.alloc_var("bool")
            y = T.alloc_var("int64")
            x = T.alloc_var("int64")
            pixel_rows = T.StridedTensor((rows, num_bytes), (step, 1), "uint8", data=pixels.data)
            # The values of a patch, or of a channel of a part of one, as rows in UB and in global memory.
            result_rows = T.StridedTensor(
                (2, row_count, row_length), (slot_values, row_length, 1), "uint16", data=result.data
            )

            with T.SimdVF():
                value_table(values, 0, S.vdup(mean_r, "float32"), S.vdup(std_r, "float32"))
                value_table(values, 1, S.vdup(mean_g, "float32"), S.vdup(std_g, "float32"))
                value_table(values, 2, S.vdup(mean_b, "float32"), S.vdup(std_b, "float32"))
                clear(tile)
            oriented = -1
            turn = 0
            for flag in T.serial(2):
                T.ascend_set_flag("V_MTE2", flag)
                T.ascend_set_flag("MTE3_V", flag)
            patch = T.min(core * T.ceildiv(total_patches, num_cores), total_patches)
            end = T.min(patch + T.ceildiv(total_patches, num_cores), total_patches)
            # The last crop that begins at or before the first patch.
            crop = 0
            stop = num_crops
            while stop - crop > 1:
                if cu_patches[(crop + stop) >> 1] <= patch:
                    crop = (crop + stop) >> 1
                else:
                    stop = (crop + stop) >> 1
            while patch < end:
                while crop < num_crops - 1 and cu_patches[crop + 1] <= patch:
                    crop = crop + 1
                # Which crop claims the patch? If none does, `stop` is where the next one begins.
                claimed = False
                misled = False
                stop = end
                other = crop
                while other < num_crops and not claimed:
                    first = cu_patches[other]
                    last = cu_patches[other + 1]
                    image = other
                    if cropped:
                        image = crops[other, 0]
                    valid = False
                    if image >= 0 and image < num_images:
                        height = T.cast(sizes[image, 0], "int64")
                        width = T.cast(sizes[image, 1], "int64")
                        offset = offsets[image]
                        flipped = T.cast(height > 0, "int32")
                        height = T.max(height, -height)
                        step = width * 3 + 3 & -4
                        y = 0
                        x = 0
                        crop_height = height
                        crop_width = width
                        if cropped:
                            y = T.cast(crops[other, 1], "int64")
                            x = T.cast(crops[other, 2], "int64")
                            crop_height = T.cast(crops[other, 3], "int64")
                            crop_width = T.cast(crops[other, 4], "int64")
                        valid = (
                            width > 0
                            and crop_height >= 0
                            and crop_width >= 0
                            and T.truncmod(crop_height, patch_size) == 0
                            and T.truncmod(crop_width, patch_size) == 0
                            and T.truncdiv(crop_height, patch_size) * T.truncdiv(crop_width, patch_size)
                            == T.cast(last, "int64") - first
                        )
                    claimed = valid and first <= patch and patch < last
                    if valid and patch < first:
                        stop = T.min(stop, first)
                    if not claimed and not misled:
                        # Behind the last crop nothing follows. Elsewhere the prefix sums have misled the search.
                        misled = True
                        other = T.if_then_else(valid and last <= patch and other == num_crops - 1, num_crops, -1)
                    other = other + 1
                if claimed:
                    per_row = T.truncdiv(T.cast(crop_width, "int32"), patch_size)
                    y = y + T.truncdiv(patch - first, per_row) * patch_size
                    x = x + T.truncmod(patch - first, per_row) * patch_size
                    stop = T.min(patch + per_row - T.truncmod(patch - first, per_row), end)
                else:
                    width = 0
                count = T.min(stop - patch, tile_patches)
                for part in T.serial(row_tiles * column_tiles):
                    slot = turn % 2
                    top = y + part // column_tiles * rows
                    left = x + part % column_tiles * columns
                    tall = T.min(rows, patch_size - part // column_tiles * rows)
                    wide = T.min(columns, patch_size - part % column_tiles * columns)
                    right = left + (count - 1) * patch_size + wide
                    low = T.if_then_else(flipped > 0, height - top - tall, top)
                    inside = top >= 0 and top + tall <= height and left >= 0 and right <= width
                    inside = inside and offset >= 0 and low + tall <= T.truncdiv(num_bytes - offset, step) + 1
                    inside = inside and offset + (low + tall - 1) * step + 3 * right <= num_bytes
                    if inside:
                        if oriented != flipped:
                            oriented = flipped
                            with T.SimtVF(threads=THREADS):
                                source_tables(sources, channels, flipped)
                        base = T.if_then_else(flipped > 0, rows - tall, 0)
                        address = offset + low * step + 3 * left
                        T.ascend_wait_flag("V_MTE2", slot)
                        T.copy(
                            pixel_rows[0:tall, address : address + 3 * (right - left)],
                            tile[slot, base : base + tall, 0 : 3 * (right - left)],
                        )
                        T.ascend_set_flag("MTE2_V", slot)
                        T.ascend_wait_flag("MTE2_V", slot)
                        T.ascend_wait_flag("MTE3_V", slot)
                        with T.SimdVF():
                            look_up(result, tile, sources, channels, values, slot, count)
                        T.ascend_set_flag("V_MTE2", slot)
                    else:
                        T.ascend_wait_flag("MTE3_V", slot)
                        with T.SimtVF(threads=THREADS):
                            look_up_checked(
                                result,
                                pixels,
                                values,
                                slot,
                                count,
                                top,
                                left,
                                height,
                                width,
                                offset,
                                step,
                                flipped,
                                num_bytes,
                            )
                    T.ascend_set_flag("V_MTE3", slot)
                    T.ascend_wait_flag("V_MTE3", slot)
                    if packed:
                        T.copy(result_rows[slot, 0:count, 0:num_values], patches[patch : patch + count, 0:num_values])
                    else:
                        begin = part // column_tiles * (rows * patch_size) + part % column_tiles * columns
                        planes = T.StridedTensor((3 * total_patches, area), (area, 1), "uint16", data=patches.data)
                        T.copy(
                            result_rows[slot, 0 : 3 * count, 0 : tall * wide],
                            planes[3 * patch : 3 * (patch + count), begin : begin + tall * wide],
                        )
                    T.ascend_set_flag("MTE3_V", slot)
                    turn = turn + 1
                patch = patch + count
            for flag in T.serial(2):
                T.ascend_wait_flag("V_MTE2", flag)
                T.ascend_wait_flag("MTE3_V", flag)

    return bmp_to_patches
