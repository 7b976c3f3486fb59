"""Ascend 950 kernel of ``shuffle_image_tokens``."""

from typing import Any

import tilelang.ascend.language as T
from tilelang.ascend.language import simd as S

from cann_ops_tilelang.core import kernel, num_vector_cores

# int32 lanes of a vector register, and int16 elements of UB's 32-byte blocks.
LANES, BLOCK = 64, 16
# Images looked at together: a core reads their prefix sums with two DMAs of 8 KiB.
IMAGES = 2048
# int16 elements of the rows a core holds at a time: 224 KiB of UB's 248.
ROOM = 112 * 1024
# Bursts of a DMA that the hardware can count.
MAX_BURSTS = 4095
INT32_MAX = 2**31 - 1


def launch(input_embeds: Any, image_starts: Any, cu_image_tokens: Any, groups: int) -> None:
    num_tokens, hidden_size = input_embeds.shape
    # One group changes nothing, and no image has more groups than tokens.
    if not (input_embeds.numel() and image_starts.numel() and 1 < groups < num_tokens):
        return
    halves = input_embeds.element_size() // 2
    build(hidden_size * halves, num_vector_cores())(
        input_embeds.data_ptr(),
        image_starts.data_ptr(),
        cu_image_tokens.data_ptr(),
        groups,
        num_tokens,
        image_starts.shape[0],
        input_embeds.stride(0) * halves,
    )


@kernel("ascend", auto_schedule=False)
def build(width: int, num_cores: int) -> Any:
    """A kernel for rows of ``width`` int16: elements move as 16-bit halves, so that no bit changes.

    input_embeds (num_tokens, width), rows ``row_stride`` apart; indices int32; ``groups`` at least 2.

    The cores hold the rows of all images in their UB together: each reads an even, contiguous share of the rows, waits
    until all have read theirs, and writes them where they belong, the rows of one group ``groups`` apart. Rows move
    whole, or in slices as wide as the share allows: 1024 rows of 4 KiB take one slice of 4 KiB, 20,000 take seven of
    608 bytes. Every byte is read once and written once, by DMAs of many rows, whatever the number of tokens. 56 cores
    hold 401,408 rows in slices of 32 bytes; the rows of longer images move along the cycles of the permutation instead,
    through a buffer of one row, each core a strip of the columns.

    Images are taken together, up to 2048. Should their prefix sums decrease or exceed the tokens, which the shares are
    cut by, they are taken one by one. An image whose own prefix sums decrease, whose span leaves input_embeds, or whose
    tokens ``groups`` does not divide is left out.
    """
    num_tokens = T.dynamic("num_tokens")
    row_stride = T.dynamic("row_stride", "int64")
    num_images = T.dynamic("num_images")
    blocks = -(-width // BLOCK)
    strip = -(-blocks // num_cores) * BLOCK

    @T.macro
    def survey(found, firsts, lasts, count, begin, end):
        """found[0], found[1]: lowest and highest image that meets [begin, end); found[2]: whether an image has less
        than no tokens."""
        all32 = S.pset(32)
        lowest = S.alloc_local((1,), "int32")
        highest = S.alloc_local((1,), "int32")
        wrong = S.alloc_local((1,), "int32")
        lowest[0] = S.vdup(T.int32(IMAGES), "int32", all32)
        highest[0] = S.vdup(T.int32(-1), "int32", all32)
        wrong[0] = S.vdup(T.int32(-1), "int32", all32)
        for i in T.serial(T.ceildiv(count, LANES)):
            index = S.vci(i * LANES, "int32")
            first = S.vld(firsts[i * LANES])
            last = S.vld(lasts[i * LANES])
            present = S.vcmps(index, count, all32, "lt")
            inside = S.vcmps(last, begin, S.vcmps(first, end, present, "lt"), "gt")
            lowest[0] = S.vmin(lowest[0], S.vsel(index, lowest[0], inside), all32)
            highest[0] = S.vmax(highest[0], S.vsel(index, highest[0], inside), all32)
            wrong[0] = S.vmax(wrong[0], S.vsel(index, wrong[0], S.vcmp(first, last, present, "gt")), all32)
        S.vsts(found[0, 0], S.vcmin(lowest[0], all32), all32)
        S.vsts(found[1, 0], S.vcmax(highest[0], all32), all32)
        S.vsts(found[2, 0], S.vcmax(wrong[0], all32), all32)

    @T.macro
    def inspect(tokens, first, last, start, num_tokens, groups):
        """tokens[0]: the tokens of a group of the image, 0 if a value is wrong or nothing changes."""
        tokens[0] = 0
        if (
            first >= 0
            and last - first > groups
            and T.truncmod(last - first, groups) == 0
            and start >= 0
            and start <= num_tokens - (last - first)
        ):
            tokens[0] = T.truncdiv(last - first, groups)

    @T.prim_func
    def shuffle_image_tokens(
        input_embeds: T.StridedTensor((num_tokens, width), (row_stride, 1), "int16"),
        image_starts: T.Tensor((num_images,), "int32"),
        cu_image_tokens: T.Tensor((num_images + 1,), "int32"),
        groups: T.int32,
    ):
        with T.Kernel(num_cores) as core:
            firsts = T.alloc_shared((IMAGES,), "int32")
            lasts = T.alloc_shared((IMAGES,), "int32")
            found = T.alloc_shared((3, LANES), "int32")
            room = T.alloc_shared((ROOM,), "int16")
            tokens = T.alloc_local((1,), "int32")
            used = T.alloc_var("int32")
            begin = T.alloc_var("int32")
            end = T.alloc_var("int32")
            runs = T.alloc_var("int32")
            low = T.alloc_var("int32")
            high = T.alloc_var("int32")
            pitch = T.alloc_var("int32")
            slices = T.alloc_var("int32")
            left = T.alloc_var("int32")
            right = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            row = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            burst = T.alloc_var("int32")
            target = T.alloc_var("int32")
            leader = T.alloc_var("int32")
            moves = T.alloc_var("int32")
            rows = T.StridedTensor((ROOM, width), (pitch, 1), "int16", data=room.data)
            # The rows of a group, which stand `groups` apart after the shuffle.
            shuffled_embeds = T.StridedTensor(
                (T.ceildiv(num_tokens, groups), groups, width),
                (row_stride * groups, row_stride, 1),
                "int16",
                data=input_embeds.data,
            )

            T.ascend_set_flag("S_MTE2", 0)
            T.ascend_set_flag("MTE3_MTE2", 0)
            for block in T.serial(T.ceildiv(num_images, IMAGES)):
                base = block * IMAGES
                count = T.min(IMAGES, num_images - base)
                T.ascend_wait_flag("S_MTE2", 0)
                T.copy(cu_image_tokens[base : base + count], firsts[0:count])
                T.copy(cu_image_tokens[base + 1 : base + 1 + count], lasts[0:count])
                T.ascend_set_flag("MTE2_V", 0)
                used = cu_image_tokens[base + count] - cu_image_tokens[base]
                begin = cu_image_tokens[base] + core * T.ceildiv(used, num_cores)
                end = begin + T.ceildiv(used, num_cores)
                T.ascend_wait_flag("MTE2_V", 0)
                with T.SimdVF():
                    survey(found, firsts, lasts, count, begin, end)
                T.ascend_set_flag("V_S", 0)
                T.ascend_wait_flag("V_S", 0)
                low = found[0, 0]
                high = found[1, 0]
                runs = T.if_then_else(found[2, 0] < 0 and used >= 0 and used <= num_tokens, 1, count)
                for run in T.serial(runs):
                    if runs == count:
                        inspect(tokens, firsts[run], lasts[run], image_starts[base + run], num_tokens, groups)
                        used = tokens[0] * groups
                        begin = firsts[run] + core * T.ceildiv(used, num_cores)
                        end = begin + T.ceildiv(used, num_cores)
                        low = run
                        high = run
                    pitch = T.min(blocks, T.truncdiv(ROOM // BLOCK, T.max(T.ceildiv(used, num_cores), 1))) * BLOCK
                    if pitch > 0:
                        pitch = T.ceildiv(blocks, T.ceildiv(blocks * BLOCK, pitch)) * BLOCK
                        slices = T.ceildiv(width, pitch)
                        for s in T.serial(slices):
                            left = s * pitch
                            right = T.min(left + pitch, width)
                            T.ascend_wait_flag("MTE3_MTE2", 0)
                            slot = 0
                            for i in T.serial(low, high + 1):
                                first = firsts[i]
                                inspect(tokens, first, lasts[i], image_starts[base + i], num_tokens, groups)
                                row = T.max(begin - first, 0)
                                stop = T.min(end - first, tokens[0] * groups)
                                while row < stop:
                                    burst = T.min(stop - row, MAX_BURSTS)
                                    target = image_starts[base + i] + row
                                    T.copy(
                                        input_embeds[target : target + burst, left:right],
                                        rows[slot : slot + burst, 0 : right - left],
                                    )
                                    slot = slot + burst
                                    row = row + burst
                            # No row is overwritten before every core has read its own.
                            T.ascend_sync_inter_arrive("PIPE_MTE2", 0)
                            T.ascend_sync_inter_wait("PIPE_MTE3", 0)
                            slot = 0
                            for i in T.serial(low, high + 1):
                                first = firsts[i]
                                inspect(tokens, first, lasts[i], image_starts[base + i], num_tokens, groups)
                                row = T.max(begin - first, 0)
                                stop = T.min(end - first, tokens[0] * groups)
                                while row < stop:
                                    burst = T.min(stop - row, tokens[0] - T.truncmod(row, tokens[0]))
                                    burst = T.min(burst, MAX_BURSTS)
                                    target = T.truncmod(row, tokens[0]) * groups + T.truncdiv(row, tokens[0])
                                    target = image_starts[base + i] + target
                                    T.copy(
                                        rows[slot : slot + burst, 0 : right - left],
                                        shuffled_embeds[
                                            T.truncdiv(target, groups) : T.truncdiv(target, groups) + burst,
                                            T.truncmod(target, groups),
                                            left:right,
                                        ],
                                    )
                                    slot = slot + burst
                                    row = row + burst
                            T.ascend_set_flag("MTE3_MTE2", 0)
                    else:
                        pitch = strip
                        left = T.min(core * strip, width)
                        right = T.min(left + strip, width)
                        for i in T.serial(T.if_then_else(runs == 1, 0, run), T.if_then_else(runs == 1, count, run + 1)):
                            start = image_starts[base + i]
                            inspect(tokens, firsts[i], lasts[i], start, num_tokens, groups)
                            # The first and the last row stay.
                            moves = T.if_then_else(left < right, tokens[0] * groups - 2, 0)
                            leader = 1
                            while moves > 0:
                                row = T.truncmod(leader, groups) * tokens[0] + T.truncdiv(leader, groups)
                                while row > leader:
                                    row = T.truncmod(row, groups) * tokens[0] + T.truncdiv(row, groups)
                                # A row that leads to a smaller one is of a cycle that has been moved already.
                                if row == leader:
                                    T.ascend_wait_flag("MTE3_MTE2", 0)
                                    T.copy(input_embeds[start + row, left:right], rows[0, 0 : right - left])
                                    T.ascend_set_flag("MTE3_MTE2", 0)
                                    target = leader
                                    row = T.truncmod(row, groups) * tokens[0] + T.truncdiv(row, groups)
                                    while row != leader:
                                        T.ascend_wait_flag("MTE3_MTE2", 0)
                                        T.copy(input_embeds[start + row, left:right], rows[1, 0 : right - left])
                                        T.ascend_set_flag("MTE2_MTE3", 0)
                                        T.ascend_wait_flag("MTE2_MTE3", 0)
                                        T.copy(rows[1, 0 : right - left], input_embeds[start + target, left:right])
                                        T.ascend_set_flag("MTE3_MTE2", 0)
                                        target = row
                                        row = T.truncmod(row, groups) * tokens[0] + T.truncdiv(row, groups)
                                        moves = moves - 1
                                    T.ascend_set_flag("MTE2_MTE3", 0)
                                    T.ascend_wait_flag("MTE2_MTE3", 0)
                                    T.copy(rows[0, 0 : right - left], input_embeds[start + target, left:right])
                                    T.ascend_wait_flag("MTE3_MTE2", 0)
                                    T.ascend_set_flag("MTE3_MTE2", 0)
                                    moves = moves - 1
                                leader = leader + 1
                T.ascend_set_flag("S_MTE2", 0)
            T.ascend_wait_flag("S_MTE2", 0)
            T.ascend_wait_flag("MTE3_MTE2", 0)

    return shuffle_image_tokens
