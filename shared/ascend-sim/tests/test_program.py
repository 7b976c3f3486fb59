"""TileLang programs as callables: dynamic symbols come from the arguments, and wrong arguments are named."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tilelang.ascend.language as T

import ascend_sim

n = T.dynamic("n")


@T.prim_func
def copy_rows(a: T.Tensor((n, 64), "float32"), b: T.Tensor((n, 64), "float32")):
    with T.Kernel(T.ceildiv(n, 4)) as core:
        ub = T.alloc_shared((4, 64), "float32")
        rows = T.min(4, n - core * 4)
        T.copy(a[core * 4 : core * 4 + rows, 0:64], ub[0:rows, 0:64])
        T.copy(ub[0:rows, 0:64], b[core * 4 : core * 4 + rows, 0:64])


@functools.cache
def program() -> ascend_sim.Program:
    return ascend_sim.Program(copy_rows)


@pytest.mark.parametrize("rows", [1, 4, 13])
def test_grid_follows_a_dynamic_symbol(rows: int) -> None:
    a = np.random.default_rng(rows).standard_normal((rows, 64), dtype=np.float32)
    b = np.zeros_like(a)
    program()(a, b)
    np.testing.assert_array_equal(a, b)
    assert ascend_sim.trace().blocks == -(-rows // 4)


def test_wrong_arguments() -> None:
    array = np.zeros((3, 64), np.float32)
    with pytest.raises(TypeError, match=r"takes 2 arguments \(a, b\), got 1"):
        program()(array)
    with pytest.raises(ValueError, match=r"b must have shape \('n', '64'\), got \(2, 64\)"):
        program()(array, array[:2])
    with pytest.raises(ValueError, match="a must have 2 dimensions"):
        program()(array[0], array)
    with pytest.raises(ValueError, match=r"a must have shape .*, got \(3, 32\)"):
        program()(array[:, :32].copy(), array)


def test_out_of_bounds_of_a_view_is_found() -> None:
    storage = np.zeros((8, 64), np.float32)
    a, b = np.ones((4, 64), np.float32), storage[2:6]
    program()(a, b)
    assert storage[2:6].all() and not storage[:2].any() and not storage[6:].any()
