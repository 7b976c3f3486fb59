"""CPU kernel of ``attn_rel_h_rel_w``: attention by tiles of keys, with a softmax that is kept up as they pass."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# Queries stand side by side in vectors of 16 lanes; four vectors meet a tile of keys together.
LANES = 16
VECTORS = 4
# Vectors of a task: keys and values are copied once for all of them; bias and sums stay in the second-level cache.
BLOCK = 16
# Most keys of a tile: the scores of four vectors are 32 KiB.
KEYS = 128
# Least multiply-adds worth a thread: about 20 us.
GRAIN = 1 << 21

LOG2_E = math.log2(math.e)


def launch(
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    rel_h: Any,
    rel_w: Any,
    scale: float | None,
    grid_hw: Sequence[int] | None,
) -> None:
    batch, seq_len, heads, head_dim = q.shape
    if out.numel() == 0:
        return
    grid_h, grid_w = grid_hw or (math.isqrt(seq_len), math.isqrt(seq_len))
    strides = [stride for tensor in (q, k, v, rel_h, rel_w) for stride in tensor.stride()[:3]]
    c_strides = (ctypes.c_int64 * len(strides))(*strides)
    blocks = -(-seq_len // (BLOCK * LANES))
    build(head_dim)(
        out.data_ptr(),
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        rel_h.data_ptr(),
        rel_w.data_ptr(),
        ctypes.addressof(c_strides),
        head_dim**-0.5 if scale is None else scale,
        heads,
        grid_h,
        grid_w,
        blocks,
        out.numel(),
        batch * heads * blocks,
        GRAIN // (2 * (seq_len // blocks) * seq_len * head_dim) + 1,
    )


@kernel("cpu")
def build(head_dim: int, bf16_dot: bool = True) -> Any:
    """One kernel per head_dim, for every grid.

    out, q, k, v (batch, seq_len, heads, head_dim) and rel_h, rel_w (batch, heads, seq_len, columns) are bfloat16 as
    int16. Of the inputs the last dimension is contiguous and ``strides`` holds the others; out is contiguous.

    A task is one head and a block of queries. The grid of keys is walked in strips of columns and, inside a strip, in
    tiles of whole rows: the bias of a tile is one vector per row plus one vector per column. As queries are the lanes,
    neither bias nor softmax needs shuffles or sums across lanes, whatever the size of the grid. What a query gets does
    not depend on the block it is in.

    Scratch of a thread in bytes, at head_dim 64 0.42 MiB:
    head_dim * (6 * BLOCK * LANES + 4 * KEYS) for queries, sums, keys and values, 8 * KEYS * BLOCK * LANES for bias,
    6 * KEYS * VECTORS * LANES for scores and weights.

    ``bf16_dot`` allows the dot products of AVX512-BF16, where the compiler has them.
    """
    assert head_dim % LANES == 0 and KEYS % 4 == 0
    pairs = head_dim // 2

    @T.macro
    def keep_outside(buffer):
        # A buffer that is touched only inside loops is moved there, and TileLang works on that for seconds.
        buffer[(0,) * len(buffer.shape)] = T.cast(0, buffer.dtype)

    @T.macro
    def load_queries(queries, q, offset, stride, block_vectors, count):
        # Pairs of dimensions, as the dot products take them. The last query is repeated up to a whole vector. Going
        # through a small tile lets the compiler transpose in registers.
        tile = T.alloc_local((LANES, pairs), "int32")
        for n in T.serial(block_vectors):
            for lane in T.serial(LANES):
                row: T.int64 = offset + T.cast(T.min(n * LANES + lane, count - 1), "int64") * stride
                for d in T.serial(pairs):
                    tile[lane, d] = pair_of(q[row + 2 * d], q[row + 2 * d + 1])
            for d in T.serial(pairs):
                for lane in T.serial(LANES):
                    queries[n, d, lane] = tile[lane, d]

    @T.macro
    def load_bias(bias, rel, offset, stride, columns, block_vectors, count):
        for n in T.serial(block_vectors):
            for lane in T.serial(LANES):
                row: T.int64 = offset + T.cast(T.min(n * LANES + lane, count - 1), "int64") * stride
                for c in T.serial(columns):
                    bias[n, c, lane] = to_float32(rel[row + c])

    @T.macro
    def load_tokens(keys, values, k, v, k_offset, v_offset, k_stride, v_stride, grid_w, columns, count):
        # Two tokens at a time, up to a multiple of 4: the last key is repeated, an odd value is paired with zeros.
        for j in T.serial(T.ceildiv(count, 4) * 2):
            first: T.int64 = token_of(T.min(2 * j, count - 1), columns, grid_w)
            second: T.int64 = token_of(T.min(2 * j + 1, count - 1), columns, grid_w)
            for d in T.serial(head_dim):
                keys[2 * j, d] = k[k_offset + first * k_stride + d]
            for d in T.serial(head_dim):
                keys[2 * j + 1, d] = k[k_offset + second * k_stride + d]
            if 2 * j + 1 < count:
                for d in T.serial(head_dim):
                    values[j, d] = pair_of(v[v_offset + first * v_stride + d], v[v_offset + second * v_stride + d])
            else:
                for d in T.serial(head_dim):
                    values[j, d] = pair_of(v[v_offset + first * v_stride + d], 0)

    @T.macro
    def dot_keys(scores, keys, queries, vector, vectors, count):
        """scores[., key, query] = key . query"""
        if T.call_extern("int32", "bf16_dot") > 0:
            T.call_extern(
                "int32",
                "bf16_dot_keys",
                scores.data,
                keys.data,
                queries.data,
                vector,
                vectors,
                T.ceildiv(count, 4),
                head_dim,
            )
        else:
            dot = T.alloc_local((4, LANES), "float32")
            for n in T.serial(vectors):
                for j in T.serial(T.ceildiv(count, 4)):
                    for r in T.unroll(4):
                        for lane in T.serial(LANES):
                            dot[r, lane] = T.float32(0)
                    for d in T.serial(pairs):
                        for r in T.unroll(4):
                            for lane in T.serial(LANES):
                                query: T.int32 = queries[vector + n, d, lane]
                                dot[r, lane] = (
                                    dot[r, lane]
                                    + to_float32(keys[4 * j + r, 2 * d]) * low_of(query)
                                    + to_float32(keys[4 * j + r, 2 * d + 1]) * high_of(query)
                                )
                    for r in T.unroll(4):
                        for lane in T.serial(LANES):
                            scores[n, 4 * j + r, lane] = dot[r, lane]

    @T.macro
    def add_bias(scores, top, bias_h, bias_w, vector, vectors, rows, columns, scale):
        """scores = scale * scores + bias; top = max(top, scores over keys)"""
        best = T.alloc_local((LANES,), "float32")
        for n in T.serial(vectors):
            for lane in T.serial(LANES):
                best[lane] = top[vector + n, lane]
            for a in T.serial(rows):
                for c in T.serial(columns):
                    for lane in T.serial(LANES):
                        score: T.float32 = scores[n, a * columns + c, lane] * scale + (
                            bias_h[vector + n, a, lane] + bias_w[vector + n, c, lane]
                        )
                        scores[n, a * columns + c, lane] = score
                        best[lane] = T.max(best[lane], score)
            for lane in T.serial(LANES):
                top[vector + n, lane] = best[lane]

    @T.macro
    def exp2(result, lane, exponent):
        """result[lane] = 2^exponent for exponents <= 0, to a relative error of 3e-6; 0 below 2^-126, NaN for NaN.

        The fraction in [-1/2, 1/2] goes through a polynomial of least relative error, the integer to the exponent.
        """
        exact: T.float32 = exponent
        clamped: T.float32 = T.Select(exact < T.float32(-127), T.float32(-127), exact)
        integer: T.float32 = T.nearbyint(clamped)
        fraction: T.float32 = clamped - integer
        power: T.float32 = (
            ((0.009582853168915353 * fraction + 0.05590642503646097) * fraction + 0.24024098611259403) * fraction
            + 0.6931241933678398
        ) * fraction + 1.0
        result[lane] = power * T.reinterpret((T.cast(integer, "int32") + 127) << 23, "float32")

    @T.macro
    def exponentiate(weights, factor, scores, top, total, vector, vectors, count):
        """weights = exp(scores - top), by pairs of keys; total = factor * total + their sum

        factor comes as the old top and leaves as exp(old top - top).
        """
        shift = T.alloc_local((LANES,), "float32")
        partial = T.alloc_local((LANES,), "float32")
        low = T.alloc_local((LANES,), "float32")
        high = T.alloc_local((LANES,), "float32")
        for n in T.serial(vectors):
            for lane in T.serial(LANES):
                best: T.float32 = top[vector + n, lane]
                # While every key so far is removed, -inf - -inf must not make a NaN that later keys inherit.
                shift[lane] = T.Select(best == -T.infinity("float32"), T.float32(0), best)
                exp2(low, lane, (factor[n, lane] - shift[lane]) * LOG2_E)
                factor[n, lane] = low[lane]
                partial[lane] = total[vector + n, lane] * low[lane]
            for j in T.serial(T.ceildiv(count, 2)):
                for lane in T.serial(LANES):
                    exp2(low, lane, (scores[n, 2 * j, lane] - shift[lane]) * LOG2_E)
                    exp2(high, lane, (scores[n, 2 * j + 1, lane] - shift[lane]) * LOG2_E)
                    partial[lane] = partial[lane] + (low[lane] + high[lane])
                    # Rounded to nearest, ties up: weights are not negative.
                    low_bits: T.int32 = T.reinterpret(low[lane], "int32") + 32768
                    high_bits: T.int32 = T.reinterpret(high[lane], "int32") + 32768
                    weights[n, j, lane] = ((low_bits >> 16) & 65535) | (high_bits & -65536)
            for lane in T.serial(LANES):
                total[vector + n, lane] = partial[lane]

    @T.macro
    def dot_values(sums, weights, values, factor, vector, vectors, count):
        """sums[query] = factor[query] * sums[query] + weights[query] . values"""
        if T.call_extern("int32", "bf16_dot") > 0:
            T.call_extern(
                "int32",
                "bf16_dot_values",
                sums.data,
                weights.data,
                values.data,
                factor.data,
                vector,
                vectors,
                T.ceildiv(count, 2),
                head_dim,
            )
        else:
            dot = T.alloc_local((4, LANES), "float32")
            for i in T.serial(vectors * (LANES // 4)):
                for d in T.serial(head_dim // LANES):
                    for r in T.unroll(4):
                        for lane in T.serial(LANES):
                            dot[r, lane] = (
                                sums[vector * LANES + 4 * i + r, d * LANES + lane] * factor[i // 4, i % 4 * 4 + r]
                            )
                    for j in T.serial(T.ceildiv(count, 2)):
                        for r in T.unroll(4):
                            for lane in T.serial(LANES):
                                weight: T.int32 = weights[i // 4, j, i % 4 * 4 + r]
                                value: T.int32 = values[j, d * LANES + lane]
                                dot[r, lane] = (
                                    dot[r, lane] + low_of(weight) * low_of(value) + high_of(weight) * high_of(value)
                                )
                    for r in T.unroll(4):
                        for lane in T.serial(LANES):
                            sums[vector * LANES + 4 * i + r, d * LANES + lane] = dot[r, lane]

    @T.macro
    def store(out, sums, total, offset, stride, count):
        for i in T.serial(count):
            inverse: T.float32 = T.float32(1) / total[i // LANES, i % LANES]
            for d in T.serial(head_dim):
                bits: T.int32 = T.reinterpret(sums[i, d] * inverse, "int32")
                out[offset + T.cast(i, "int64") * stride + d] = T.cast(bfloat16_bits(bits), "int16")

    @T.prim_func
    def attn_rel_h_rel_w(
        out: T.Tensor((T.dynamic("size", "int64"),), "int16"),
        q: T.Tensor((T.dynamic("size", "int64"),), "int16"),
        k: T.Tensor((T.dynamic("size", "int64"),), "int16"),
        v: T.Tensor((T.dynamic("size", "int64"),), "int16"),
        rel_h: T.Tensor((T.dynamic("size", "int64"),), "int16"),
        rel_w: T.Tensor((T.dynamic("size", "int64"),), "int16"),
        strides: T.Tensor((5, 3), "int64"),
        scale: T.float32,
        heads: T.int32,
        grid_h: T.int32,
        grid_w: T.int32,
        blocks: T.int32,
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1, prelude=BF16_DOT if bf16_dot else NO_BF16_DOT):
            queries = T.alloc_local((BLOCK, pairs, LANES), "int32")
            keys = T.alloc_local((KEYS, head_dim), "int16")
            values = T.alloc_local((KEYS // 2, head_dim), "int32")
            bias_h = T.alloc_local((BLOCK, KEYS, LANES), "float32")
            bias_w = T.alloc_local((BLOCK, KEYS, LANES), "float32")
            scores = T.alloc_local((VECTORS, KEYS + 2, LANES), "float32")
            weights = T.alloc_local((VECTORS, KEYS // 2 + 1, LANES), "int32")
            sums = T.alloc_local((BLOCK * LANES, head_dim), "float32")
            top = T.alloc_local((BLOCK, LANES), "float32")
            total = T.alloc_local((BLOCK, LANES), "float32")
            factor = T.alloc_local((VECTORS, LANES), "float32")
            keep_outside(queries)
            keep_outside(keys)
            keep_outside(values)
            keep_outside(bias_h)
            keep_outside(bias_w)
            keep_outside(scores)
            keep_outside(weights)
            keep_outside(sums)
            keep_outside(top)
            keep_outside(total)
            keep_outside(factor)
            # Variables, so that TileLang does not carry these expressions into every index.
            task_vectors = T.alloc_var("int32", init=0)
            first = T.alloc_var("int32", init=0)
            count = T.alloc_var("int32", init=0)
            column = T.alloc_var("int32", init=0)
            columns = T.alloc_var("int32", init=0)
            row = T.alloc_var("int32", init=0)
            rows = T.alloc_var("int32", init=0)
            vector = T.alloc_var("int32", init=0)
            vectors = T.alloc_var("int32", init=0)
            b = T.alloc_var("int64", init=0)
            h = T.alloc_var("int64", init=0)
            query = T.alloc_var("int64", init=0)
            token = T.alloc_var("int64", init=0)
            seq_len: T.int32 = grid_h * grid_w
            all_vectors: T.int32 = (seq_len + LANES - 1) // LANES
            strips: T.int32 = (grid_w + KEYS - 1) // KEYS
            for task in T.serial(begin, end):
                block: T.int32 = T.truncmod(task, blocks)
                head: T.int32 = T.truncdiv(task, blocks)
                b = T.cast(T.truncdiv(head, heads), "int64")
                h = T.cast(T.truncmod(head, heads), "int64")
                # Whole vectors, shared out evenly: over blocks, and in a block over groups that meet a tile together.
                first = share(all_vectors, block, blocks)
                task_vectors = share(all_vectors, block + 1, blocks) - first
                count = T.min(task_vectors * LANES, seq_len - first * LANES)
                query = T.cast(first * LANES, "int64")
                q_offset: T.int64 = b * strides[0, 0] + query * strides[0, 1] + h * strides[0, 2]
                load_queries(queries, q, q_offset, strides[0, 1], task_vectors, count)
                for n in T.serial(task_vectors):
                    for lane in T.serial(LANES):
                        top[n, lane] = -T.infinity("float32")
                        total[n, lane] = T.float32(0)
                for i in T.serial(task_vectors * LANES):
                    for d in T.serial(head_dim):
                        sums[i, d] = T.float32(0)
                for strip in T.serial(strips):
                    column = share(grid_w, strip, strips)
                    columns = share(grid_w, strip + 1, strips) - column
                    w_offset: T.int64 = b * strides[4, 0] + h * strides[4, 1] + query * strides[4, 2] + column
                    load_bias(bias_w, rel_w, w_offset, strides[4, 2], columns, task_vectors, count)
                    rows_per_tile: T.int32 = T.truncdiv(KEYS, columns)
                    tiles: T.int32 = T.truncdiv(grid_h + rows_per_tile - 1, rows_per_tile)
                    for tile in T.serial(tiles):
                        row = share(grid_h, tile, tiles)
                        rows = share(grid_h, tile + 1, tiles) - row
                        h_offset: T.int64 = b * strides[3, 0] + h * strides[3, 1] + query * strides[3, 2] + row
                        load_bias(bias_h, rel_h, h_offset, strides[3, 2], rows, task_vectors, count)
                        token = T.cast(row * grid_w + column, "int64")
                        k_offset: T.int64 = b * strides[1, 0] + token * strides[1, 1] + h * strides[1, 2]
                        v_offset: T.int64 = b * strides[2, 0] + token * strides[2, 1] + h * strides[2, 2]
                        load_tokens(
                            keys,
                            values,
                            k,
                            v,
                            k_offset,
                            v_offset,
                            strides[1, 1],
                            strides[2, 1],
                            grid_w,
                            columns,
                            rows * columns,
                        )
                        groups: T.int32 = (task_vectors + VECTORS - 1) // VECTORS
                        for group in T.serial(groups):
                            vector = share(task_vectors, group, groups)
                            vectors = share(task_vectors, group + 1, groups) - vector
                            for n in T.serial(vectors):
                                for lane in T.serial(LANES):
                                    factor[n, lane] = top[vector + n, lane]
                            dot_keys(scores, keys, queries, vector, vectors, rows * columns)
                            add_bias(scores, top, bias_h, bias_w, vector, vectors, rows, columns, scale)
                            if rows * columns % 2 == 1:
                                for n in T.serial(vectors):
                                    for lane in T.serial(LANES):
                                        scores[n, rows * columns, lane] = -T.infinity("float32")
                            exponentiate(weights, factor, scores, top, total, vector, vectors, rows * columns)
                            dot_values(sums, weights, values, factor, vector, vectors, rows * columns)
                out_stride = T.cast(heads * head_dim, "int64")
                store(out, sums, total, (b * seq_len + query) * out_stride + h * head_dim, out_stride, count)

    return attn_rel_h_rel_w


def share(total: Any, part: Any, parts: Any) -> Any:
    """Where a part begins, of a total shared out evenly."""
    return T.truncdiv(total, parts) * part + T.min(part, T.truncmod(total, parts))


def token_of(key: Any, columns: Any, grid_w: Any) -> Any:
    """The distance, in tokens, of a key of a tile from its first."""
    return T.cast(T.truncdiv(key, columns) * grid_w + T.truncmod(key, columns), "int64")


def to_float32(bits: Any) -> Any:
    """The float32 of a bfloat16's bits."""
    return T.reinterpret(T.cast(bits, "int32") << 16, "float32")


def pair_of(low: Any, high: Any) -> Any:
    """Two bfloat16 in one int32."""
    return (T.cast(low, "int32") & 65535) | (T.cast(high, "int32") << 16)


def low_of(pair: Any) -> Any:
    return T.reinterpret(pair << 16, "float32")


def high_of(pair: Any) -> Any:
    return T.reinterpret(pair & T.int32(-65536), "float32")


def bfloat16_bits(bits: Any) -> Any:
    """A float32's bits to those of the nearest bfloat16, ties to even, as int32 below 2^16."""
    return ((bits + 32767 + ((bits >> 16) & 1)) >> 16) & 65535


# What the C code generator cannot express: products of bfloat16 pairs added to float32. The compiler decides if it can.
BF16_DOT = """
#if defined(__AVX512BF16__)
#include <immintrin.h>
#include <string.h>

namespace {

inline __m512bh broadcast_pair(const void* pair) {
  int32_t bits;
  memcpy(&bits, pair, sizeof bits);
  return (__m512bh)_mm512_set1_epi32(bits);
}

inline __m512bh load_pairs(const void* pairs) { return (__m512bh)_mm512_loadu_si512(pairs); }

// scores[vector][key][lane] for 4 keys.
template <int N>
inline void keys_by_vectors(
    float* scores, const int16_t* keys, const int32_t* queries, int32_t tiles, int32_t head_dim) {
  for (int32_t tile = 0; tile < tiles; ++tile, keys += 4 * head_dim, scores += 4 * LANES) {
    __m512 dot[4][N];
    for (int r = 0; r < 4; ++r)
      for (int n = 0; n < N; ++n) dot[r][n] = _mm512_setzero_ps();
    for (int32_t d = 0; d < head_dim; d += 2) {
      __m512bh query[N];
      for (int n = 0; n < N; ++n) query[n] = load_pairs(queries + (n * head_dim + d) / 2 * LANES);
      for (int r = 0; r < 4; ++r) {
        const __m512bh key = broadcast_pair(keys + r * head_dim + d);
        for (int n = 0; n < N; ++n) dot[r][n] = _mm512_dpbf16_ps(dot[r][n], query[n], key);
      }
    }
    for (int r = 0; r < 4; ++r)
      for (int n = 0; n < N; ++n) _mm512_storeu_ps(scores + (n * (KEYS + 2) + r) * LANES, dot[r][n]);
  }
}

// 4 queries by N vectors of dimensions.
template <int N>
inline void weights_by_vectors(
    float* sums, const int32_t* weights, const int32_t* values, const float* factor, int32_t pairs, int32_t head_dim) {
  __m512 dot[4][N];
  for (int r = 0; r < 4; ++r)
    for (int n = 0; n < N; ++n)
      dot[r][n] = _mm512_mul_ps(_mm512_loadu_ps(sums + r * head_dim + n * LANES), _mm512_set1_ps(factor[r]));
  for (int32_t j = 0; j < pairs; ++j) {
    __m512bh value[N];
    for (int n = 0; n < N; ++n) value[n] = load_pairs(values + j * head_dim + n * LANES);
    for (int r = 0; r < 4; ++r) {
      const __m512bh weight = broadcast_pair(weights + j * LANES + r);
      for (int n = 0; n < N; ++n) dot[r][n] = _mm512_dpbf16_ps(dot[r][n], value[n], weight);
    }
  }
  for (int r = 0; r < 4; ++r)
    for (int n = 0; n < N; ++n) _mm512_storeu_ps(sums + r * head_dim + n * LANES, dot[r][n]);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) int32_t bf16_dot() { return 1; }

extern "C" __attribute__((visibility("hidden"))) int32_t bf16_dot_keys(
    float* scores, int16_t* keys, int32_t* queries, int32_t vector, int32_t vectors, int32_t tiles, int32_t head_dim) {
  queries += vector * head_dim / 2 * LANES;
  switch (vectors) {
    case 1: keys_by_vectors<1>(scores, keys, queries, tiles, head_dim); break;
    case 2: keys_by_vectors<2>(scores, keys, queries, tiles, head_dim); break;
    case 3: keys_by_vectors<3>(scores, keys, queries, tiles, head_dim); break;
    default: keys_by_vectors<4>(scores, keys, queries, tiles, head_dim);
  }
  return 0;
}

extern "C" __attribute__((visibility("hidden"))) int32_t bf16_dot_values(
    float* sums, int32_t* weights, int32_t* values, float* factor, int32_t vector, int32_t vectors, int32_t pairs,
    int32_t head_dim) {
  const int columns = head_dim / LANES, parts = (columns + 3) / 4;
  for (int32_t query = 0; query < vectors * LANES; query += 4) {
    for (int part = 0; part < parts; ++part) {
      const int begin = columns * part / parts, end = columns * (part + 1) / parts;
      float* sum = sums + (vector * LANES + query) * head_dim + begin * LANES;
      const int32_t* weight = weights + query / LANES * (KEYS / 2 + 1) * LANES + query % LANES;
      const int32_t* value = values + begin * LANES;
      switch (end - begin) {
        case 1: weights_by_vectors<1>(sum, weight, value, factor + query, pairs, head_dim); break;
        case 2: weights_by_vectors<2>(sum, weight, value, factor + query, pairs, head_dim); break;
        case 3: weights_by_vectors<3>(sum, weight, value, factor + query, pairs, head_dim); break;
        default: weights_by_vectors<4>(sum, weight, value, factor + query, pairs, head_dim);
      }
    }
  }
  return 0;
}
#else
NO_BF16_DOT
#endif
"""
NO_BF16_DOT = """
extern "C" __attribute__((visibility("hidden"))) int32_t bf16_dot() { return 0; }
extern "C" __attribute__((visibility("hidden"))) int32_t bf16_dot_keys(
    float*, int16_t*, int32_t*, int32_t, int32_t, int32_t, int32_t) { return 0; }
extern "C" __attribute__((visibility("hidden"))) int32_t bf16_dot_values(
    float*, int32_t*, int32_t*, float*, int32_t, int32_t, int32_t, int32_t) { return 0; }
"""
BF16_DOT = BF16_DOT.replace("LANES", str(LANES)).replace("KEYS", str(KEYS)).replace("NO_BF16_DOT", NO_BF16_DOT)
