"""The AscendC source the kernel lowers to. Lowering needs neither CANN nor a device."""

import functools
import re

import pytest

from cann_ops_tilelang.shuffle_image_tokens.kernels.ascend import build

UB_BYTES = 253_952


@functools.cache
def lower(width):
    return build.lower(width, 56)


@pytest.mark.parametrize("width", [2048, 33])
def test_unified_buffer_holds_the_rows(width):
    (function,) = lower(width).device_mod.functions.values()
    assert int(function.attrs["dyn_shared_memory_buf"]) <= UB_BYTES


def test_every_core_reads_before_any_core_writes():
    source = lower(2048).kernel_source
    shared = source[source.index("for (int32_t s = 0") :]
    order = [
        "asc_copy_gm2ub_align",
        "asc_sync_inter_arrive(PIPE_MTE2",
        "asc_sync_inter_wait(PIPE_MTE3",
        "asc_copy_ub2gm",
    ]
    places = [shared.index(step) for step in order]
    assert places == sorted(places)


def test_rows_are_loaded_and_stored_once_on_each_path():
    source = lower(2048).kernel_source
    shared, cycles = source[source.index("for (int32_t s = 0") :].split("leader = 1;")
    for path, loads, stores in ((shared, 1, 1), (cycles, 2, 2)):
        assert len(re.findall("asc_copy_gm2ub_align", path)) == loads
        assert len(re.findall("asc_copy_ub2gm_align", path)) == stores


def test_groups_and_sizes_are_not_compiled_in():
    signature = re.search(r"shuffle_image_tokens_kernel\((.*?)\)", lower(2048).kernel_source).group(1)
    assert {"int32_t groups", "int32_t num_images", "int32_t num_tokens", "int64_t row_stride"} <= set(
        signature.split(", ")
    )
