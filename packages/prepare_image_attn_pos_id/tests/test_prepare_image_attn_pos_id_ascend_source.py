"""The AscendC source the kernel lowers to. Lowering needs neither CANN nor a device."""

import functools
import re

import pytest

from cann_ops_tilelang.prepare_image_attn_pos_id.kernels.ascend import build

# What a kernel with SIMT regions may use of UB.
UB_BYTES = 216 * 1024


@functools.cache
def lower(window_size):
    return build.lower(window_size, 56)


@pytest.mark.parametrize("window_size", [1, 2])
def test_unified_buffer_holds_the_chunks(window_size):
    (function,) = lower(window_size).device_mod.functions.values()
    assert int(function.attrs["dyn_shared_memory_buf"]) <= UB_BYTES


@pytest.mark.parametrize("window_size", [1, 2])
def test_positions_are_stored_once_and_indices_take_no_dma(window_size):
    source = lower(window_size).kernel_source
    assert re.findall(r"asc_copy_\w+\(\(__gm__ uint8_t\*\)\(\(&\((\w+)\[", source) == ["positions"]
    assert "asc_copy_gm2ub" not in source


def test_a_chunk_is_computed_while_the_one_before_is_stored():
    source = lower(2).kernel_source
    kernel = source[source.index("extern") :]
    assert kernel.count("asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>((part & 1)))") == 1
    assert kernel.index("asc_sync_wait(PIPE_V, PIPE_MTE3") < kernel.index("asc_copy_ub2gm_align")


def test_sizes_are_not_compiled_in():
    signature = re.search(r"prepare_image_attn_pos_id_kernel\((.*?)\)", lower(1).kernel_source).group(1)
    assert "int32_t num_images" in signature and "int32_t total_seqlens_vit" in signature
