"""The AscendC source the kernel lowers to. Lowering needs neither CANN nor a device."""

import functools
import re
from collections import Counter

import pytest

from cann_ops_tilelang.bmp_to_patches.kernels.ascend import build

# What a kernel with SIMT regions may use of UB.
UB_BYTES = 216 * 1024


@functools.cache
def lower(patch_size, cropped=False):
    return build.lower(patch_size, cropped, 56)


# Packed groups of one, of four and of many patches; padded channels; parts of a patch, of its rows and of its columns.
@pytest.mark.parametrize("patch_size", [16, 14, 1, 17, 80, 6000])
def test_unified_buffer_holds_the_tiles(patch_size):
    (function,) = lower(patch_size).device_mod.functions.values()
    assert int(function.attrs["dyn_shared_memory_buf"]) <= UB_BYTES


@pytest.mark.parametrize("patch_size", [16, 17])
def test_pixels_and_patches_have_one_dma_each(patch_size):
    source = lower(patch_size).kernel_source
    assert Counter(re.findall(r"asc_copy_(\w+)_align\(", source)) == Counter(gm2ub=1, ub2gm=1)


def test_values_take_two_gathers_and_no_arithmetic_on_pixels():
    source = lower(16).kernel_source
    look_up = re.search(r"simd_vf_1\(.*?\n}", source, re.S).group()
    inner = look_up[look_up.index("int32_t g = 0") :]
    instructions = Counter(re.findall(r"simd_inst::(\w+)", inner))
    assert instructions == Counter(vadds=1, vgather2=2, vadd=1, vsts_norm=1)


def test_division_is_exact():
    source = lower(16).kernel_source
    assert "vdiv_0ulp" in source
    assert not re.search(r"simd_inst::vdiv\(", source)


def test_crops_are_read_only_where_there_are_some():
    assert "crops[" not in lower(16).kernel_source
    assert "crops[" in lower(16, True).kernel_source
