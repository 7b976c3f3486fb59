"""The AscendC source the kernel lowers to. Lowering needs neither CANN nor a device."""

import functools
import re
from collections import Counter

import pytest

from cann_ops_tilelang.attn_rel_h_rel_w.kernels.ascend import UB_BYTES, build, unified_buffer_bytes, unit_queries

L0C_BYTES, L1_BYTES = 256 * 1024, 512 * 1024


@functools.cache
def lower(head_dim, grid_h, grid_w):
    return build.lower(head_dim, grid_h, grid_w, 28)


def body(source, core):
    return source[source.index(f"if ASC_IS_{core}") :].split("\n  if ASC_IS_")[0]


# Gathered bias, short and long, with and without a tail; broadcast bias; the widest head; a strip of a grid.
GRIDS = [(64, 14, 14), (16, 1, 1), (80, 14, 20), (64, 64, 64), (128, 64, 64), (128, 3, 2000)]


@pytest.mark.parametrize("shape", GRIDS)
def test_unified_buffer_holds_the_unit(shape):
    attributes = [function.attrs for function in lower(*shape).device_mod.functions.values()]
    assert all(int(attribute["dyn_shared_memory_buf"]) <= UB_BYTES for attribute in attributes)


@pytest.mark.parametrize("shape", GRIDS)
def test_only_the_result_is_written_to_global_memory(shape):
    source = lower(*shape).kernel_source
    assert re.findall(r"asc_copy_ub2gm_align\(\(__gm__ uint8_t\*\)\(\(&\((\w+)\[", source) == ["out"]
    assert "l0c2gm" not in source


@pytest.mark.parametrize("shape", GRIDS)
def test_scores_and_weights_pass_between_cube_and_vector_cores_on_chip(shape):
    source = lower(*shape).kernel_source
    cube, vector = (Counter(re.findall(r"asc_copy_\w+", body(source, core))) for core in ("AIC", "AIV"))
    assert cube == Counter(asc_copy_gm2l1_nd2nz=2, asc_copy_gm2l1_dn2nz=1, asc_copy_l0c2ub=2)
    assert vector == Counter(asc_copy_gm2ub_align=2, asc_copy_ub2l1=1, asc_copy_ub2gm_align=1)


def test_keys_and_values_are_read_once_a_unit():
    cube = body(lower(64, 64, 64).kernel_source, "AIC")
    step = cube.index("for (int32_t step")
    for name in ("k", "v"):
        assert [match.start() > step for match in re.finditer(rf"\(&\({name}\[", cube)] == [True]
    assert cube.index("(&(q[") < step


def test_bias_is_broadcast_where_the_width_is_a_multiple_of_the_lanes():
    assert "vgather2" not in lower(64, 64, 64).kernel_source
    assert lower(64, 14, 14).kernel_source.count("vgather2") == 2


def test_scores_stay_in_registers_until_they_are_weights():
    source = lower(64, 64, 64).kernel_source
    softmax = next(part for part in source.split("__simd_vf__") if "vsstb" in part)
    rows = softmax[softmax.index("for (int32_t r") :].split("mem_bar")[0]
    # The two stores are the row's maximum and its sum.
    assert Counter(re.findall(r"simd_inst::(vsts\w*|vsstb)", rows)) == Counter(vsts_1st=2, vsstb=1)


def test_units_shrink_to_an_even_share_and_to_what_fits():
    assert unit_queries(64, 14, 14) == 112
    assert unit_queries(64, 64, 64) == 128
    assert unit_queries(64, 1, 1) == 16
    strip = unit_queries(128, 1, 4000)
    assert strip < 128 and unified_buffer_bytes(strip, 128, 1, 4000, False) <= UB_BYTES


def test_a_grid_whose_bias_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"attn_rel_h_rel_w: grid_hw must .* got \(1, 1000000\)"):
        build.prim_func(64, 1, 1000000, 28)
