"""Every kind of bug, planted into generated source, gives exactly its report; the unchanged kernels give none.

The variants of a kernel are one source with renamed copies, because compiling costs seconds and running milliseconds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tilelang.ascend.language as T
import torch
from tilelang.ascend.language import simd as S

import ascend_sim
from ascend_sim import KernelError

ROWS, COLUMNS = 8, 256
M, N, K = 64, 64, 64


@T.prim_func
def pipeline(
    a: T.Tensor((ROWS, COLUMNS), "float32"),
    b: T.Tensor((ROWS, COLUMNS), "float32"),
    c: T.Tensor((ROWS, COLUMNS), "float32"),
):
    with T.Kernel(2) as core:
        a_ub = T.alloc_shared((COLUMNS,), "float32")
        b_ub = T.alloc_shared((COLUMNS,), "float32")
        c_ub = T.alloc_shared((COLUMNS,), "float32")
        for i in T.Pipelined(ROWS // 2, num_stages=2):
            T.copy(a[core * (ROWS // 2) + i, 0:COLUMNS], a_ub)
            T.copy(b[core * (ROWS // 2) + i, 0:COLUMNS], b_ub)
            with T.SimdVF():
                for j in T.serial(COLUMNS // 64):
                    S.vsts(c_ub[j * 64], S.vadd(S.vld(a_ub[j * 64]), S.vld(b_ub[j * 64])))
            T.copy(c_ub, c[core * (ROWS // 2) + i, 0:COLUMNS])


@T.prim_func
def matmul(a: T.Tensor((M, K), "bfloat16"), b: T.Tensor((N, K), "bfloat16"), c: T.Tensor((M, N), "float32")):
    with T.Kernel(1) as _:
        a_l1 = T.alloc_l1((M, K), "bfloat16")
        b_l1 = T.alloc_l1((N, K), "bfloat16")
        c_l0c = T.alloc_l0c((M, N), "float32")
        c_ub = T.alloc_shared((M // 2, N), "float32")
        T.copy(a[0, 0], a_l1)
        T.copy(b[0, 0], b_l1)
        T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=True)
        T.dual_copy(c_l0c, c_ub)
        with T.SimtVF(threads=128):
            for i, j in T.Parallel(M // 2, N):
                c_ub[i, j] = c_ub[i, j] + 1.0
        T.dual_copy(c_ub, c[0:M, 0:N])


@T.prim_func
def accumulate(
    a: T.Tensor((COLUMNS,), "float32"), b: T.Tensor((COLUMNS,), "float32"), c: T.Tensor((COLUMNS,), "float32")
):
    with T.Kernel(1) as _:
        a_ub = T.alloc_shared((COLUMNS,), "float32")
        b_ub = T.alloc_shared((COLUMNS,), "float32")
        c_ub = T.alloc_shared((COLUMNS,), "float32")
        T.copy(a, a_ub)
        T.copy(b, b_ub)
        with T.SimdVF():
            for j in T.serial(COLUMNS // 64):
                S.vsts(c_ub[j * 64], S.vabs(S.vld(a_ub[j * 64])))
            S.mem_bar("VST_VLD")
            for j in T.serial(COLUMNS // 64):
                S.vsts(c_ub[j * 64], S.vadd(S.vld(c_ub[j * 64]), S.vld(b_ub[j * 64])))
            S.mem_bar("VST_VST")
            S.vsts(c_ub[0], S.vld(b_ub[0]))
        with T.SimdVF():  # starts when the other has ended
            x = S.alloc_var("float32")
            for j, _ in T.grid(COLUMNS // 64, 2):
                x = S.vld(c_ub[j * 64])  # into the register that was stored, so in order
                x = S.vadd(x, S.vld(b_ub[j * 64]))
                S.vsts(c_ub[j * 64], x)
        T.copy(c_ub, c)


def edit(source: str, pattern: str, replacement: str, count: int = 1) -> str:
    """Replace the first `count` matches of a regular expression; that there are none is an error."""
    result, found = re.subn(pattern, replacement, source, count=count)
    assert found, f"{pattern!r} is not in the generated source:\n{source}"
    return result


class Bug:
    """Edits of generated source, and the report they must give: `at` and `other` are (core, pipe, part of the line)."""

    def __init__(
        self,
        *edits: tuple[str, str],
        code: str,
        at: tuple[str, str | None, str],
        other: tuple[str, str, str] | None = None,
        **report: str,
    ) -> None:
        self.edits, self.code, self.at, self.other, self.report = edits, code, at, other, report


def reroute(
    source_pipe: str, target_pipe: str, new_target: str, where: str = r"\(i & 1\)"
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Make the event that orders two pipes order another pair instead, under an unused id."""
    return tuple(
        (
            rf"asc_sync_{verb}\(PIPE_{source_pipe}, PIPE_{target_pipe}, static_cast<event_t>\({where}\)\)",
            f"asc_sync_{verb}(PIPE_{source_pipe}, PIPE_{new_target}, event_t(5))",
        )
        for verb in ("notify", "wait")
    )


VECTOR = "vector core 0"
LOAD, STORE, COMPUTE = "asc_copy_gm2ub_align", "asc_copy_ub2gm_align", "simd_inst::vsts_norm"
A_LOAD = r"\[\(\(i & 1\) \* 256\)\]\)\)\), \(__gm__ uint8_t\*\)\(\(&\(a\["
B_OFFSET = r"\(\(\(i & 1\) \* 256\) \+ 512\)\]"
C_STORE = r"c\[\(\(\(\(int32_t\)block_idx\) \* 1024\) \+ \(i \* 256\)\)\]"

PIPELINE = {
    "load_not_awaited": Bug(
        *reroute("MTE2", "V", "MTE3"),
        code="hazard",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_V", COMPUTE),
        other=(VECTOR, "PIPE_MTE2", LOAD),
    ),
    "store_not_ordered_after_compute": Bug(
        *reroute("V", "MTE3", "MTE2"),
        code="hazard",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_MTE3", STORE),
        other=(VECTOR, "PIPE_V", COMPUTE),
    ),
    "load_overwrites_what_is_computed_on": Bug(
        (
            r"asc_sync_notify\(PIPE_V, PIPE_MTE2, static_cast<event_t>\(\(i & 1\)\)\)",
            "asc_sync_notify(PIPE_V, PIPE_S, event_t(5))",
        ),
        (
            r"asc_sync_wait\(PIPE_V, PIPE_MTE2, static_cast<event_t>\(\(i & 1\)\)\)",
            "if (i < 2) asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(i))",
        ),
        (r"asc_sync_wait\(PIPE_V, PIPE_MTE2, static_cast<event_t>\([01]\)\);\n", "\n"),
        (r"asc_sync_wait\(PIPE_V, PIPE_MTE2, static_cast<event_t>\([01]\)\);\n", "\n"),
        (r"event_t\(5\)", "static_cast<event_t>(i)"),
        code="hazard",
        memory="UB",
        kind="write after read",
        at=(VECTOR, "PIPE_MTE2", LOAD),
        other=(VECTOR, "PIPE_V", COMPUTE),
    ),
    "compute_overwrites_what_is_stored": Bug(
        (
            r"asc_sync_notify\(PIPE_MTE3, PIPE_V, static_cast<event_t>\(\(i & 1\)\)\)",
            "asc_sync_notify(PIPE_MTE3, PIPE_S, static_cast<event_t>(i))",
        ),
        (
            r"asc_sync_wait\(PIPE_MTE3, PIPE_V, static_cast<event_t>\(\(i & 1\)\)\)",
            "if (i < 2) asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(i))",
        ),
        code="hazard",
        memory="UB",
        kind="write after read",
        at=(VECTOR, "PIPE_V", COMPUTE),
        other=(VECTOR, "PIPE_MTE3", STORE),
    ),
    "blocks_write_the_same_rows": Bug(
        (C_STORE, "c[i * 256]"),
        code="hazard",
        memory="GM",
        kind="write after write",
        at=(VECTOR, "PIPE_MTE3", STORE),
        other=(VECTOR, "PIPE_MTE3", STORE),
    ),
    "never_written": Bug(
        (r"(b\[.*?\]\)\)\), 1, )1024", r"\g<1>992"),
        code="uninitialised",
        memory="UB",
        at=(VECTOR, "PIPE_MTE3", STORE),
    ),
    "past_the_tensor": Bug(
        (C_STORE, "c[((int32_t)block_idx) * 1024 + i * 256 + i / 3 * 2048]"),
        code="out-of-bounds",
        at=(VECTOR, "PIPE_MTE3", STORE),
    ),
    "before_the_tensor": Bug((r"&\(a\[", "&((a - 64)["), code="out-of-bounds", at=(VECTOR, "PIPE_MTE2", LOAD)),
    "outside_ub": Bug((B_OFFSET, "63304]"), code="out-of-bounds", at=(VECTOR, "PIPE_MTE2", LOAD)),
    "reserved_ub": Bug(
        (r"\+ 1024\)\]\)\)\), 1,", "+ 63488)]))), 1,"), code="out-of-bounds", at=(VECTOR, "PIPE_MTE3", STORE)
    ),
    "dma_misaligned": Bug((B_OFFSET, "((i & 1) * 256) + 513]"), code="misaligned", at=(VECTOR, "PIPE_MTE2", LOAD)),
    "vector_misaligned": Bug(
        (r"\(j \* 64\)\)\]\)\), 0\)", "(j * 64)) + 1])), 0)"), code="misaligned", at=(VECTOR, "PIPE_V", COMPUTE)
    ),
    "stride_misaligned": Bug(
        (r"1, 1024, 0, 0, 0, (.*?), 1024, 1024", r"2, 480, 0, 0, 0, \1, 480, 500"),
        code="misaligned",
        at=(VECTOR, None, LOAD),
    ),
    "bursts_overlap": Bug(
        (r"1, 1024, 0, 0, 0, (.*?), 1024, 1024", r"2, 512, 0, 0, 0, \1, 512, 256"),
        code="overlap",
        at=(VECTOR, None, LOAD),
    ),
    "no_bursts": Bug((r"1, 1024, 0, 0, 0,", "0, 1024, 0, 0, 0,"), code="argument", at=(VECTOR, None, LOAD)),
    "wait_without_notify": Bug(
        (r"asc_sync_notify\(PIPE_V, PIPE_MTE2, static_cast<event_t>\(1\)\);", ""),
        code="deadlock",
        at=(VECTOR, "PIPE_MTE2", "asc_sync_wait(PIPE_V, PIPE_MTE2"),
    ),
    "notify_without_wait": Bug(
        (r"asc_sync_wait\(PIPE_V, PIPE_MTE2, static_cast<event_t>\(1\)\);", ""),
        code="pending-notify",
        at=(VECTOR, "PIPE_V", "asc_sync_notify(PIPE_V, PIPE_MTE2"),
    ),
    "event_used_twice": Bug(
        (r"(asc_sync_notify\(PIPE_MTE2, PIPE_V, .*?\);)", r"\1 \1"),
        code="double-notify",
        at=(VECTOR, "PIPE_MTE2", "asc_sync_notify(PIPE_MTE2, PIPE_V"),
    ),
    "unlock_without_lock": Bug(
        (r"asc_init\(\);", "asc_init(); asc_unlock(PIPE_V, 3);"), code="argument", at=(VECTOR, "PIPE_V", "asc_unlock")
    ),
    "lock_never_unlocked": Bug(
        (r"asc_init\(\);", "asc_init(); asc_lock(PIPE_V, 3);"), code="pending-notify", at=(VECTOR, "PIPE_V", "asc_lock")
    ),
    "locks_nested": Bug(
        (r"asc_init\(\);", "asc_init(); asc_lock(PIPE_V, 3); asc_lock(PIPE_MTE2, 3);"),
        code="argument",
        at=(VECTOR, "PIPE_MTE2", "asc_lock"),
    ),
    "scalar_reads_what_is_loading": Bug(
        (
            r"asc_sync_notify\(PIPE_MTE2, PIPE_V",
            "if (((__ubuf__ float*)buf_dyn_shmem)[(i & 1) * 256] == 1e30f) c[0] = 0; asc_sync_notify(PIPE_MTE2, PIPE_V",
        ),
        code="hazard",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_S", "1e30f"),
        other=(VECTOR, "PIPE_MTE2", LOAD),
    ),
    "scalar_uses_what_was_never_written": Bug(
        (r"asc_init\(\);", "asc_init(); int64_t shift = ((__ubuf__ int32_t*)asim_ub)[15000] & 1;"),
        (r"&\(a\[", "&((a + shift * 64 * (block_idx == 0))["),
        code="uninitialised",
        memory="UB",
        at=(VECTOR, "PIPE_S", "[15000]"),
    ),
    "pipe_of_another_core": Bug(
        (r"asc_init\(\);", "asc_init(); asc_sync_notify(PIPE_M, PIPE_FIX, event_t(0));"),
        code="argument",
        at=(VECTOR, None, "asc_sync_notify(PIPE_M"),
    ),
    "endless": Bug(
        (r"asc_init\(\);", "asc_init(); for (volatile int n = 0; n >= 0;) n = 1;"),
        code="timeout",
        at=(VECTOR, None, "volatile int n"),
    ),
}

ACCUMULATE = {
    "load_overtakes_store": Bug(
        (r"simd_inst::mem_bar\(VST_VLD\);", ""),
        code="vector-race",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_V", "simd_inst::vadd"),
        other=(VECTOR, "PIPE_V", "simd_inst::vabs"),
    ),
    "store_overtakes_store": Bug(
        (r"simd_inst::mem_bar\(VST_VST\);", ""),
        code="vector-race",
        memory="UB",
        kind="write after write",
        at=(VECTOR, "PIPE_V", COMPUTE),
        other=(VECTOR, "PIPE_V", "simd_inst::vadd"),
    ),
    "load_into_another_register": Bug(
        (r"x = simd_inst::vlds", "auto y = x = simd_inst::vlds"),
        code="vector-race",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_V", "auto y"),
        other=(VECTOR, "PIPE_V", "vsts_norm(x"),
    ),
    "barrier_of_another_kind": Bug(
        (r"mem_bar\(VST_VLD\)", "mem_bar(VLD_VST)"),
        code="vector-race",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_V", "simd_inst::vadd"),
        other=(VECTOR, "PIPE_V", "simd_inst::vabs"),
    ),
}

CUBE = "cube core"
MATMUL = {
    "result_not_awaited": Bug(
        *reroute("M", "FIX", "MTE2", "0"),
        code="hazard",
        memory="L0C",
        kind="read after write",
        at=(CUBE, "PIPE_FIX", "asc_copy_l0c2ub"),
        other=(CUBE, "PIPE_M", "ascend_gemm_l1"),
    ),
    "operands_not_awaited": Bug(
        *reroute("MTE2", "MTE1", "M", "0"),
        code="hazard",
        memory="L1",
        kind="read after write",
        at=(CUBE, "PIPE_MTE1", "ascend_gemm_l1"),
        other=(CUBE, "PIPE_MTE2", "asc_copy_gm2l1_nd2nz"),
    ),
    "vector_does_not_wait_for_cube": Bug(
        (r"asc_sync_intra_wait\(PIPE_V, 0\);", ""),
        code="hazard",
        memory="UB",
        kind="read after write",
        at=(VECTOR, "PIPE_V", "make_float2"),
        other=(CUBE, "PIPE_FIX", "asc_copy_l0c2ub"),
    ),
    "cube_never_arrives": Bug(
        (r"asc_sync_intra_arrive\(PIPE_FIX, 0\);", ""),
        code="deadlock",
        at=(VECTOR, "PIPE_V", "asc_sync_intra_wait"),
    ),
    "arrives_twice": Bug(
        (r"(asc_sync_intra_arrive\(PIPE_FIX, 0\);)", r"\1 \1"),
        code="pending-notify",
        at=(VECTOR, None, "asc_sync_intra_arrive"),
    ),
    "outside_l1": Bug(
        (r"buf_dyn_l1 \+ 4096", "buf_dyn_l1 + 262000"),
        code="out-of-bounds",
        at=(CUBE, "PIPE_MTE2", "asc_copy_gm2l1_nd2nz"),
    ),
    "operand_never_loaded": Bug(
        (r"asc_copy_gm2l1_nd2nz\(\(\(__cbuf__ bfloat16_t\*\)buf_dyn_l1\), .*?;", ""),
        code="uninitialised",
        at=(VECTOR, "PIPE_MTE3", "asc_copy_ub2gm_align"),
    ),
}


def pipeline_arguments() -> tuple[np.ndarray, ...]:
    a = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    b = np.sqrt(a)
    return a, b, np.zeros_like(a), a + b


def accumulate_arguments() -> tuple[np.ndarray, ...]:
    a = np.arange(COLUMNS, dtype=np.float32) - COLUMNS // 2
    b = np.sqrt(np.abs(a))
    expected = np.abs(a) + b
    expected[:64] = b[:64]
    return a, b, np.zeros_like(a), expected + b + b


def matmul_arguments() -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-4, 5, (M, K), generator=generator).bfloat16()
    b = torch.randint(-4, 5, (N, K), generator=generator).bfloat16()
    return a, b, torch.zeros(M, N), (a.float() @ b.float().T + 1).numpy()


@dataclass(frozen=True)
class Subject:
    """A kernel: how it is launched (arguments, and the result expected in the last of them), bugs, and harmless edits."""

    prim_func: Any
    blocks: int
    arguments: Callable[[], tuple[Any, ...]]
    bugs: dict[str, Bug]
    harmless: dict[str, list[tuple[str, str]]]

    @property
    def kernel(self) -> str:
        return f"{self.prim_func.attrs['global_symbol']}_kernel"

    @functools.cached_property
    def source(self) -> str:
        """One source with the unchanged kernel `<name>_clean` and a copy for each edited one."""
        source = ascend_sim.Program(self.prim_func).source
        body = source[source.rindex("#include") :].split("\n", 1)[1]
        text = source.removesuffix(body)
        edits = {"clean": [], **self.harmless, **{name: bug.edits for name, bug in self.bugs.items()}}
        for name, changes in edits.items():
            variant = body
            for pattern, replacement in changes:
                variant = edit(variant, pattern, replacement)
            text += variant.replace(self.kernel, f"{self.kernel}_{name}")
        return text

    @functools.cached_property
    def library(self) -> ascend_sim.Library:
        return ascend_sim.compile(self.source)

    def launch(self, name: str) -> None:
        """Run a variant; without a report its result must be right."""
        *arguments, expected = self.arguments()
        ascend_sim.launch(self.library, f"{self.kernel}_{name}", self.blocks, *arguments)
        np.testing.assert_array_equal(arguments[-1], expected)


SUBJECTS = {
    "pipeline": Subject(
        pipeline,
        2,
        pipeline_arguments,
        PIPELINE,
        {
            "garbage_is_ignored": [
                (
                    r"asc_init\(\);",
                    "asc_init(); if (((__ubuf__ int32_t*)asim_ub)[15000] == 1 && block_idx < 0) c[0] = 1;",
                )
            ]
        },
    ),
    "accumulate": Subject(
        accumulate,
        1,
        accumulate_arguments,
        ACCUMULATE,
        {"barriers_of_all": [(rf"mem_bar\({kind}\)", "mem_bar(VV_ALL)") for kind in ("VST_VLD", "VST_VST")]},
    ),
    "matmul": Subject(matmul, 1, matmul_arguments, MATMUL, {}),
}


def check(report: dict[str, Any], bug: Bug, source: str, kernel: str) -> None:
    core, pipe, line = bug.at
    assert report["code"] == bug.code, report
    assert report["kernel"] == kernel
    assert report["core"] == core
    assert pipe is None or report["pipe"] == pipe
    for name, value in bug.report.items():
        assert report[name] == value
    places = [(report["source"], line)]
    if bug.other is not None:
        core, pipe, line = bug.other
        other = report["other"]
        assert (other["core"], other["pipe"]) == (core, pipe)
        places.append((other["source"], line))
    lines = source.splitlines()
    for place, part in places:
        assert part in place["text"], report
        assert lines[place["line"] - 1].strip() == place["text"]
        # The line is one of this variant, not of a copy under another name.
        function = next(
            text for text in reversed(lines[: place["line"]]) if re.match(r'(__sim|extern "C" __global__)', text)
        )
        assert kernel in function


@pytest.mark.parametrize(
    ("subject", "name"), [(key, name) for key, subject in SUBJECTS.items() for name in ("clean", *subject.harmless)]
)
def test_kernel_without_a_bug_is_clean(subject: str, name: str) -> None:
    SUBJECTS[subject].launch(name)


@pytest.mark.parametrize(
    ("subject", "name"), [(key, name) for key, subject in SUBJECTS.items() for name in subject.bugs]
)
def test_bug_is_reported(subject: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SUBJECTS[subject]
    if name == "endless":
        monkeypatch.setenv("ASCEND_SIM_TIMEOUT", "0.5")
    with pytest.raises(KernelError) as error:
        kernel.launch(name)
    check(error.value.report, kernel.bugs[name], kernel.source, f"{kernel.kernel}_{name}")
    assert f"{kernel.kernel}_{name}" in str(error.value)
    kernel.launch("clean")  # the failure leaves nothing behind


def test_deadlock_names_every_waiting_core() -> None:
    with pytest.raises(KernelError) as error:
        SUBJECTS["matmul"].launch("cube_never_arrives")
    assert [(wait["core"], wait["waits_for"]) for wait in error.value.report["waits"]] == [
        ("vector core 0", "intra flag 0")
    ]


CRASHES = {
    "segfault": ("*(volatile int*)64 = 1;", "segmentation fault"),
    "division": ("volatile int zero = 0; out[0] = 100 / zero;", "arithmetic exception"),
    "assertion": ("__builtin_abort();", "abort"),
    "stack": ("volatile char big[1 << 21]; big[0] = 1; out[0] = big[0];", "segmentation fault"),
}


@functools.cache
def crashing_library() -> ascend_sim.Library:
    bodies = {**{name: code for name, (code, _) in CRASHES.items()}, "fine": "out[0] = 7;"}
    return ascend_sim.compile(
        '#include "c_api/asc_simd.h"\n#include <cstdlib>\n'
        + "".join(
            f'extern "C" __global__ __vector__ void {name}(__gm__ int32_t* out) {{ {body} }}\n'
            for name, body in bodies.items()
        ),
        checks=False,
    )


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_is_reported_and_does_not_take_the_process_with_it(name: str) -> None:
    out = np.zeros(1, np.int32)
    with pytest.raises(KernelError, match=CRASHES[name][1]) as error:
        ascend_sim.launch(crashing_library(), name, 1, out)
    assert (error.value.code, error.value.report["kernel"]) == ("crash", name)
    ascend_sim.launch(crashing_library(), "fine", 1, out)
    assert out[0] == 7


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ASCEND_SIM_CHECKS", "maybe", "must be on or off, got 'maybe'"),
        ("ASCEND_SIM_TIMEOUT", "soon", "must be a number of seconds, got 'soon'"),
        ("ASCEND_SIM_TIMEOUT", "-1", "must be a number of seconds, got '-1'"),
    ],
)
def test_wrong_setting_is_an_error_that_names_it(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(KernelError, match=f"{name} {message}") as error:
        SUBJECTS["pipeline"].launch("clean")
    assert error.value.code == "argument"
    monkeypatch.undo()
    SUBJECTS["pipeline"].launch("clean")
