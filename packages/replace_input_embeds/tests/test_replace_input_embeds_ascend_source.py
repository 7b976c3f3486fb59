"""The AscendC source the kernel lowers to. Lowering needs neither CANN nor a device."""

import functools
import re
from collections import Counter

import pytest

from cann_ops_tilelang.replace_input_embeds.kernels.ascend import build

UB_BYTES = 253_952


@functools.cache
def lower(width):
    """The generated source and the bytes of UB it uses."""
    artifact = build.lower(width, 56)
    (function,) = artifact.device_mod.functions.values()
    return artifact.kernel_source, int(function.attrs["dyn_shared_memory_buf"])


@pytest.mark.parametrize("width", [2048, 33])
def test_unified_buffer_holds_the_pieces(width):
    assert lower(width)[1] <= UB_BYTES


def test_rows_are_loaded_and_stored_once():
    source, _ = lower(2048)
    loads = Counter(re.findall(r"asc_copy_gm2ub_align\(.*?__gm__ uint8_t\*\)\(\(&\((\w+)\[", source))
    stores = Counter(re.findall(r"asc_copy_ub2gm_align\(\(__gm__ uint8_t\*\)\(\(&\((\w+)\[", source))
    assert loads == Counter(image_embeds=1, cu_image_tokens=2)
    assert stores == Counter(input_embeds=1)


def test_stores_do_not_wait_for_each_other():
    source, _ = lower(2048)
    assert "asc_sync_pipe" not in source


def test_rows_of_a_piece_start_at_blocks_of_32_bytes():
    # Rows of 66 bytes: 96 apart in UB, 66 apart in image_embeds.
    source, _ = lower(33)
    assert re.search(r"asc_copy_gm2ub_align\(.*image_embeds.*, 66, 0, 0, 0, .*, 66, 96\);", source)
