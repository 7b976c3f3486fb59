"""Ascend 950 kernel of ``engram_grad_w_reduce``."""

from typing import Any

import tilelang.ascend.language as T
from tilelang.ascend.language import simd as S

from cann_ops_tilelang.core import kernel, num_vector_cores

# A chunk is one vector register of float32; the contract makes the number of columns a multiple of it.
LANES = 64
# Chunks of a tile. Three: a tile's DMAs average more than 512 bytes even for a single partial (24 bytes a column, seven
# DMAs). Eight: as many accumulators, all in registers, hide the latency of an addition.
MIN_CHUNKS, MAX_CHUNKS = 3, 8
# Partials are summed in pieces of this size, one loading while the other is summed.
PIECE_BYTES = 1 << 15
# A single chunk has no neighbour to halve its loads with. It is summed in pieces that fill UB, which saves the carries.
WHOLE_BYTES = 240 * 1024


def launch(
    grad_w_partial: Any, weight_hidden: Any, weight_embed: Any, grad_weight_hidden: Any, grad_weight_embed: Any
) -> None:
    build(weight_hidden.numel(), num_vector_cores())(
        grad_w_partial.data_ptr(),
        weight_hidden.data_ptr(),
        weight_embed.data_ptr(),
        grad_weight_hidden.data_ptr(),
        grad_weight_embed.data_ptr(),
        grad_w_partial.shape[0],
    )


def ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def tile_chunks(chunks: int, num_cores: int) -> int:
    """The width of a tile, in chunks: the widest of those that leave the busiest core least to do.

    The columns that the last tile lacks are computed for nothing: not where that costs more than two instructions a
    partial and chunk, what a kernel without tiles would need.
    """

    def busiest(width: int) -> int:
        return ceildiv(ceildiv(chunks, width), num_cores) * width

    def wasteful(width: int) -> bool:
        return ceildiv(chunks, width) * (3 * (width // 2) + 2 * (width % 2)) > 2 * chunks

    widths = range(min(MIN_CHUNKS, chunks), min(MAX_CHUNKS, chunks) + 1)
    return min(widths, key=lambda width: (wasteful(width), busiest(width), -width))


@kernel("ascend")
def build(columns: int, num_cores: int) -> Any:
    """One kernel for every number of partials.

    grad_w_partial (num_partials, columns) float32; weights (columns,) bfloat16; gradients (columns,) float32.

    Tiles of columns are dealt to the cores; each core streams the rows of its tiles through UB, so every byte is moved
    once. The sum of a column starts from its first partial and adds the others in order, each addition rounded to
    float32; the gradient is then ``fma(sum, weight, gradient)``, rounded once. Neither depends on the number of cores.

    Registers are filled two at a time by the load that separates even and odd columns. It halves the loads, and gives
    the order in which one bfloat16 register widens into two of float32. A pair of chunks costs
    ``3 * num_partials + 16`` vector instructions and four for every further piece; two chunks one by one would cost
    ``4 * num_partials + 18``.
    """
    chunks = columns // LANES
    width = tile_chunks(chunks, num_cores) * LANES
    tiles = ceildiv(columns, width)
    blocks = min(tiles, num_cores)
    stages, piece_bytes = (2, PIECE_BYTES) if chunks > 1 else (1, WHOLE_BYTES)
    rows = piece_bytes // (4 * width)
    pairs = tuple(range(0, width - LANES, 2 * LANES))
    single = tuple(range(width - LANES if width // LANES % 2 else width, width, LANES))
    num_partials = T.dynamic("num_partials")

    @T.macro
    def load_row(total, source, row):
        for column in pairs:
            even, odd = S.vld2(source[row, column], "DINTLV_B32")
            total[column // LANES] = even
            total[column // LANES + 1] = odd
        for column in single:
            total[column // LANES] = S.vld(source[row, column])

    @T.macro
    def add_row(total, source, row, all32):
        for column in pairs:
            even, odd = S.vld2(source[row, column], "DINTLV_B32")
            total[column // LANES] = S.vadd(total[column // LANES], even, all32)
            total[column // LANES + 1] = S.vadd(total[column // LANES + 1], odd, all32)
        for column in single:
            total[column // LANES] = S.vadd(total[column // LANES], S.vld(source[row, column]), all32)

    @T.macro
    def store_row(total, target, row, all32):
        for column in pairs:
            low, high = S.vintlv(total[column // LANES], total[column // LANES + 1])
            S.vsts(target[row, column], low, all32)
            S.vsts(target[row, column + LANES], high, all32)
        for column in single:
            S.vsts(target[row, column], total[column // LANES], all32)

    @T.macro
    def accumulate(total, weight, grad, all32, all16):
        gradient = S.alloc_local((2,), "float32")
        for column in pairs:
            factors = S.vld(weight[column])
            even, odd = S.vld2(grad[column], "DINTLV_B32")
            gradient[0] = even
            gradient[1] = odd
            S.vmula(gradient[0], total[column // LANES], S.vcvt(factors, "float32", all16, part=0), all32)
            S.vmula(gradient[1], total[column // LANES + 1], S.vcvt(factors, "float32", all16, part=1), all32)
            low, high = S.vintlv(gradient[0], gradient[1])
            S.vsts(grad[column], low, all32)
            S.vsts(grad[column + LANES], high, all32)
        for column in single:
            factor = S.vcvt(S.vld(weight[column], "UNPK_B16"), "float32", all16, part=0)
            gradient[0] = S.vld(grad[column])
            S.vmula(gradient[0], total[column // LANES], factor, all32)
            S.vsts(grad[column], gradient[0], all32)

    @T.prim_func
    def engram_grad_w_reduce(
        grad_w_partial: T.Tensor((num_partials, columns), "float32"),
        weight_hidden: T.Tensor((columns,), "bfloat16"),
        weight_embed: T.Tensor((columns,), "bfloat16"),
        grad_weight_hidden: T.Tensor((columns,), "float32"),
        grad_weight_embed: T.Tensor((columns,), "float32"),
    ):
        with T.Kernel(blocks) as core:
            piece_ub = T.alloc_shared((rows, width), "float32")
            carry_ub = T.alloc_shared((1, width), "float32")
            hidden_ub = T.alloc_shared((width,), "bfloat16")
            embed_ub = T.alloc_shared((width,), "bfloat16")
            grad_hidden_ub = T.alloc_shared((width,), "float32")
            grad_embed_ub = T.alloc_shared((width,), "float32")

            for tile in T.Persistent([tiles], blocks, core, group_size=1, num_stages=2):
                first = tile * width
                end = T.min(first + width, columns)
                pieces = T.ceildiv(num_partials, rows)
                T.copy(weight_hidden[first:end], hidden_ub[0 : end - first])
                T.copy(weight_embed[first:end], embed_ub[0 : end - first])
                T.copy(grad_weight_hidden[first:end], grad_hidden_ub[0 : end - first])
                T.copy(grad_weight_embed[first:end], grad_embed_ub[0 : end - first])
                for piece in T.Pipelined(pieces, num_stages=stages):
                    p = piece * rows
                    n = T.min(rows, num_partials - p)
                    T.copy(grad_w_partial[p : p + n, first:end], piece_ub[0:n, 0 : end - first])
                    with T.SimdVF():
                        all32 = S.pset(32)
                        all16 = S.pset(16)
                        total = S.alloc_local((width // LANES,), "float32")
                        if piece == 0:
                            load_row(total, piece_ub, 0)
                        else:
                            load_row(total, carry_ub, 0)
                            add_row(total, piece_ub, 0, all32)
                        for row in T.serial(1, n):
                            add_row(total, piece_ub, row, all32)
                        if piece < pieces - 1:
                            store_row(total, carry_ub, 0, all32)
                        else:
                            accumulate(total, embed_ub, grad_hidden_ub, all32, all16)
                            accumulate(total, hidden_ub, grad_embed_ub, all32, all16)
                T.copy(grad_hidden_ub[0 : end - first], grad_weight_hidden[first:end])
                T.copy(grad_embed_ub[0 : end - first], grad_weight_embed[first:end])

    return engram_grad_w_reduce
