"""Ascend 950 kernel of ``new_operator``."""

from typing import Any

import tilelang.ascend.language as T

from cann_ops_tilelang.core import kernel, num_vector_cores

# Elements of a tile: 32 KiB, twice in UB because one tile loads while the other is stored.
TILE = 8192
THREADS = 512


def launch(y: Any, x: Any, scale: float) -> None:
    if x.numel() > 0:
        build(num_vector_cores())(x.data_ptr(), y.data_ptr(), scale, x.numel())


@kernel("ascend")
def build(num_cores: int) -> Any:
    """One kernel for every shape. x, y (numel,) float32, numel > 0."""
    numel = T.dynamic("numel", "int64")

    @T.prim_func
    def new_operator(
        x: T.Tensor((numel,), "float32"),
        y: T.Tensor((numel,), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(num_cores) as core:
            tile_ub = T.alloc_shared((TILE,), "float32")
            for tile in T.Persistent([T.ceildiv(numel, TILE)], num_cores, core, group_size=1, num_stages=2):
                first = tile * TILE
                width = T.min(TILE, numel - first)
                T.copy(x[first : first + width], tile_ub[0:width])
                with T.SimtVF(threads=THREADS):
                    for i in T.Parallel(TILE):
                        if i < width:
                            tile_ub[i] = tile_ub[i] * scale
                T.copy(tile_ub[0:width], y[first : first + width])

    return new_operator
