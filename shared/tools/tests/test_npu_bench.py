from typing import Any

import pytest
import torch

pytestmark = pytest.mark.on("npu")

Counts = dict[tuple[str, str], Any]


@pytest.fixture(scope="module")
def counted() -> Counts:
    """The counts of the cases that simulate quickly, by operator and case; those of the peer too."""
    from cann_ops_tilelang.tools import npu_bench
    from cann_ops_tilelang.tools.loading import operators

    functions, peers = vars(operators()), npu_bench.peers()
    rows: Counts = {}
    with torch.inference_mode():
        for operator, case, call, flops, least in npu_bench.cases():
            if operator in ("attn_rel_h_rel_w", "bmp_to_patches") or "20000" in case or "1000" in case:
                continue
            rows[operator, case] = npu_bench.count(functions[operator], operator, case, call, flops, least)
            if operator in peers and case in ("(7, 256)", "(37, 2560)"):
                rows["peer", case] = npu_bench.count(peers[operator], operator, case, call, flops, least)
    return rows


def test_every_byte_moves_once(counted: Counts) -> None:
    for (operator, case), row in counted.items():
        # Every core reads the prefix sums of its own images.
        most = 1.03 if operator == "prepare_image_attn_pos_id" else 1.005
        assert 1 <= row.bytes_ratio <= most, (operator, case)


def test_dmas_are_large_and_cores_are_balanced(counted: Counts) -> None:
    for (operator, case), row in counted.items():
        if operator != "peer":
            assert row.mean_dma >= 512, (operator, case)
            assert row.balance >= 0.85 or "256)" in case, (operator, case)


def test_no_more_instructions_than_the_peer(counted: Counts) -> None:
    for case in ("(7, 256)", "(37, 2560)"):
        ours, peer = counted["engram_grad_w_reduce", case], counted["peer", case]
        assert ours.vector <= peer.vector
        assert ours.bytes_moved <= peer.bytes_moved
