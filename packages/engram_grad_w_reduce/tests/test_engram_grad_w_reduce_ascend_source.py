"""The AscendC source the kernel lowers to. Lowering needs neither CANN nor a device."""

import functools
import re
from collections import Counter

import pytest

from cann_ops_tilelang.engram_grad_w_reduce.kernels.ascend import LANES, build, ceildiv, tile_chunks

UB_BYTES = 253_952
VECTOR_CORES = 56
COLUMNS = [4 * hidden_size for hidden_size in (64, 256, 2560, 3072, 4096, 6144, 16384)]


@functools.cache
def lower(columns, cores=VECTOR_CORES):
    """The generated source and the bytes of UB it uses."""
    artifact = build.lower(columns, cores)
    (function,) = artifact.device_mod.functions.values()
    return artifact.kernel_source, int(function.attrs["dyn_shared_memory_buf"])


@pytest.mark.parametrize("columns", COLUMNS)
def test_unified_buffer_holds_the_tiles(columns):
    assert lower(columns)[1] <= UB_BYTES


@pytest.mark.parametrize("columns", COLUMNS)
def test_every_buffer_has_one_dma_and_tiles_do_not_overlap(columns):
    source, _ = lower(columns)
    loads = Counter(re.findall(r"asc_copy_gm2ub_align\(.*?__gm__ uint8_t\*\)\(\(&\((\w+)\[", source))
    stores = Counter(re.findall(r"asc_copy_ub2gm_align\(\(__gm__ uint8_t\*\)\(\(&\((\w+)\[", source))
    gradients = ["grad_weight_hidden", "grad_weight_embed"]
    assert loads == Counter(["grad_w_partial", "weight_hidden", "weight_embed", *gradients])
    assert stores == Counter(gradients)
    assert "asc_vf_call" not in source, "the kernel must use SIMD instructions alone"


@pytest.mark.parametrize("columns", COLUMNS)
def test_accumulators_are_registers_of_their_own(columns):
    source, _ = lower(columns)
    assert not re.search(r"(total|gradient\w*)\[[^\]0-9]", source)


def test_partials_load_while_the_piece_before_is_summed():
    source, _ = lower(4 * 6144)
    loop = source[source.index("for (int32_t piece") :]
    assert loop.index("asc_sync_wait(PIPE_V, PIPE_MTE2") < loop.index("asc_copy_gm2ub_align")
    assert "(piece & 1)" in loop, "two versions of the piece must take turns"


def test_number_of_partials_is_not_compiled_in():
    assert "int32_t num_partials" in lower(4 * 2560)[0]


@pytest.mark.parametrize("columns", [4 * 2560, 4 * 3072, 4 * 4096, 4 * 6144, 4 * 16384])
def test_cores_are_balanced(columns):
    chunks = columns // LANES
    width = tile_chunks(chunks, VECTOR_CORES)
    busiest = ceildiv(ceildiv(chunks, width), VECTOR_CORES) * width
    assert chunks / VECTOR_CORES / busiest >= 0.85


def test_tiles_cost_at_most_two_instructions_per_partial_and_chunk():
    for chunks in [*range(1, 400), 1024, 4096, 16385]:
        width = tile_chunks(chunks, VECTOR_CORES)
        instructions = ceildiv(chunks, width) * (3 * (width // 2) + 2 * (width % 2))
        assert instructions <= 2 * chunks, f"{chunks} chunks in tiles of {width}"
