"""The Ascend kernels of tile-kernels 2.1.0, run against that package's PyTorch references by that package's own tests.

The wheel and the tests, which come with the source distribution, are fetched from the package index once and kept in
the cache. ``peers_plugin`` runs the smallest case of every test. What does not lower with TileLang 0.1.15 is listed.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ascend_sim import toolchain

PEER = "tile-kernels==2.1.0"
FAMILIES = ("quant", "mhc", "engram", "moe", "transform", "rand")  # the longest first
TESTS = (
    "engram/test_engram_fused_weight.py::test_engram_fused_weight",
    "engram/test_engram_gate_bwd.py::test_engram_gate_bwd",
    "engram/test_engram_gate_fwd.py::test_engram_gate_fwd",
    "engram/test_engram_grad_w_reduce.py::test_engram_grad_w_reduce",
    "engram/test_engram_hash.py::test_engram_hash",
    "engram/test_engram_sinkhorn.py::test_engram_sinkhorn_finalize",
    "engram/test_engram_sinkhorn.py::test_engram_sinkhorn_momentum_update",
    "engram/test_engram_sinkhorn.py::test_engram_sinkhorn_step",
    "engram/test_engram_sinkhorn.py::test_engram_sinkhorn_step_reduce",
    "mhc/test_expand.py::test_expand_comprehensive",
    "mhc/test_head_compute_mix.py::test_head_compute_mix_comprehensive",
    "mhc/test_multilayer_recompute.py::test_mhc_multilayer_recompute_correctness",
    "mhc/test_norm_fn.py::test_correctness",
    "mhc/test_post.py::test_mhc_post_comprehensive",
    "mhc/test_pre_apply_mix.py::test_pre_apply_mix_comprehensive",
    "mhc/test_pre_big_fuse.py::test_correctness",
    "mhc/test_pre_split_mixes.py::test_pre_split_mixes_comprehensive",
    "mhc/test_sinkhorn.py::test_sinkhorn_comprehensive",
    "mhc/test_sinkhorn.py::test_sinkhorn_large_same_sign_logits",
    "moe/test_moe_topk_gate_backward.py::test_moe_topk_gate_backward",
    "moe/test_moe_topk_gate_forward.py::test_moe_topk_gate_forward",
    "moe/test_normalize_weight.py::test_normalize_weight",
    "moe/test_topk_gate.py::test_topk_gate",
    "quant/test_batched_transpose_weight_sf.py::test_batched_transpose_weight_sf",
    "quant/test_cast.py::test_cast_stochastic",
    "quant/test_norm_backward.py::test_norm_backward[bf16]",
    "quant/test_norm_backward.py::test_norm_backward[fp32]",
    "quant/test_norm_forward.py::test_norm_forward_and_per_token_cast[bf16]",
    "quant/test_norm_forward.py::test_norm_forward_and_per_token_cast[e4m3]",
    "quant/test_norm_forward.py::test_norm_forward_and_per_token_cast[fp32]",
    "quant/test_per_block_cast.py::test_per_block_cast[e2m1]",
    "quant/test_per_block_cast.py::test_per_block_cast[e4m3]",
    "quant/test_per_channel_cast.py::test_per_channel_cast",
    "quant/test_per_token_cast.py::test_per_token_cast[e2m1]",
    "quant/test_per_token_cast.py::test_per_token_cast[e4m3]",
    "quant/test_per_token_cast.py::test_set_amax_clamp_for_quant",
    "quant/test_per_token_cast_and_cast_back.py::test_per_token_cast_and_cast_back[e2m1]",
    "quant/test_per_token_cast_and_cast_back.py::test_per_token_cast_and_cast_back[e4m3]",
    "quant/test_swiglu_backward.py::test_swiglu_backward_and_per_token_cast[bf16]",
    "quant/test_swiglu_backward.py::test_swiglu_backward_and_per_token_cast[fp32]",
    "quant/test_swiglu_forward.py::test_swiglu_forward_and_per_token_cast[bf16]",
    "quant/test_swiglu_forward.py::test_swiglu_forward_and_per_token_cast[e4m3]",
    "quant/test_swiglu_forward.py::test_swiglu_forward_and_per_token_cast[fp32]",
    "rand/test_randn.py::test_randn_distribution",
    "rand/test_randn.py::test_randn_seed",
    "rand/test_randn.py::test_set_seed_resets_torch_seed",
    "transform/test_rope.py::test_rotary_embedding_3d",
    "transform/test_rope.py::test_rotary_embedding_4d",
)
# Tests whose kernels TileLang does not lower: "T.Parallel loop ... must be inside a VF block". They use cast_back or
# per_block_cast_lossless; the swiglu test with e4m3 casts its result back to compare it.
NOT_LOWERED = (
    "quant/test_cast_back.py::test_cast_back[e2m1]",
    "quant/test_cast_back.py::test_cast_back[e4m3]",
    "quant/test_cast_back.py::test_cast_back_per_token[e2m1]",
    "quant/test_cast_back.py::test_cast_back_per_token[e4m3]",
    "quant/test_per_block_cast_lossless.py::test_per_block_cast_lossless",
    "quant/test_swiglu_backward.py::test_swiglu_backward_and_per_token_cast[e4m3]",
)
# Tests that the package itself skips: it has no Ascend kernel for them.
NOT_FOR_ASCEND = (
    "quant/test_cast.py::test_cast",
    "quant/test_per_token_cast.py::test_per_token_cast_stochastic[e2m1]",
    "quant/test_per_token_cast.py::test_per_token_cast_stochastic[e4m3]",
)


def fetch(directory: Path) -> None:
    # The package declares Python 3.12; its modules import with 3.10 too.
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--ignore-requires-python",
        "-d",
        str(directory),
    ]
    for kind in (["--only-binary", ":all:"], ["--no-binary", ":all:"]):
        result = subprocess.run([*pip, *kind, PEER], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{PEER} cannot be fetched from the package index:\n{result.stderr}"
    (wheel,), (source,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "installed")
    with tarfile.open(source) as archive:
        tests = [member for member in archive.getmembers() if member.name.split("/")[1:2] == ["tests"]]
        archive.extractall(directory / "source", members=tests, filter="data")


def run_family(peer: Path, family: str) -> dict[str, str]:
    """The outcome of every test of a family, all run in one process."""
    (source,) = (peer / "source").iterdir()
    paths = [Path(toolchain.__file__).parents[1], Path(__file__).parent, peer / "installed"]
    with tempfile.TemporaryDirectory() as directory:
        result_file = Path(directory) / "outcomes.json"
        # As a worker of xdist the package's conftest would look for a GPU of its own.
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")},
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PEERS_OUTCOMES": str(result_file),
            "PEERS_FAMILY": family,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        pytest_command = [sys.executable, "-m", "pytest", "-p", "peers_plugin", "-p", "no:cacheprovider", "-q"]
        result = subprocess.run(
            [*pytest_command, "--rootdir", str(source), f"tests/{family}"],
            cwd=source,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result_file.exists(), result.stdout[-3000:] + result.stderr[-3000:]
        data: dict[str, str] = json.loads(result_file.read_text())
        return data


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """The outcomes of all families, run two at a time."""
    peer = toolchain.build_once("peer", [PEER, "1"], fetch)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(functools.partial(run_family, peer), FAMILIES))
    return {name: outcome for result in results for name, outcome in result.items()}


@pytest.mark.parametrize("name", TESTS)
def test_peer(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "passed"


@pytest.mark.parametrize("name", NOT_LOWERED)
def test_kernel_that_does_not_lower(name: str, outcomes: dict[str, str]) -> None:
    outcome = outcomes[name]
    assert outcome.startswith("failed: ")
    assert "must be inside a VF block" in outcome


@pytest.mark.parametrize("name", NOT_FOR_ASCEND)
def test_without_an_ascend_kernel(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name].startswith("skipped: ")


def test_no_test_of_the_package_is_left_out(outcomes: dict[str, str]) -> None:
    assert sorted(outcomes) == sorted([*TESTS, *NOT_LOWERED, *NOT_FOR_ASCEND])
