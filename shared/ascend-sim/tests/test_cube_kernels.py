"""Matrix products and mixed Cube and Vector kernels written in TileLang, from lowering to results."""

import numpy as np
import pytest
from lowered import compile_together, lower

import ascend_sim

tilelang = pytest.importorskip("tilelang", reason="the kernels are written in TileLang")
import tilelang.ascend.language as T  # noqa: E402


def gemm(m: int, n: int, k: int, dtype: str, accumulator: str = "float32", out: str = "float32"):
    """Tiles of 64 x 48 x 32, double-buffered, with tails in every dimension."""
    tile_m, tile_n, tile_k = 64, 48, 32
    columns = T.ceildiv(n, tile_n)

    @T.prim_func
    def main(a: T.Tensor((m, k), dtype), b: T.Tensor((n, k), dtype), c: T.Tensor((m, n), out)):
        with T.Kernel(T.ceildiv(m, tile_m) * columns) as block:
            a_l1, b_l1 = T.alloc_l1((tile_m, tile_k), dtype), T.alloc_l1((tile_n, tile_k), dtype)
            c_l0c = T.alloc_l0c((tile_m, tile_n), accumulator)
            row, column = block // columns * tile_m, block % columns * tile_n
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=2):
                T.copy(a[row, step * tile_k], a_l1)
                T.copy(b[column, step * tile_k], b_l1)
                T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=(step == 0))
            T.copy(c_l0c, c[row, column])

    return main


def gemm_in_l0(dtype: str, accumulator: str, transpose: bool, unit_flag: int | None = None):
    """32 x 48 x 64 with explicit copies to L0, from A^T and B if `transpose`."""
    m, n, k = 32, 64, 64
    a_shape, b_shape = ((k, m), (k, n)) if transpose else ((m, k), (n, k))

    @T.prim_func
    def main(a: T.Tensor(a_shape, dtype), b: T.Tensor(b_shape, dtype), c: T.Tensor((m, n), accumulator)):
        with T.Kernel(1):
            a_l1, b_l1 = T.alloc_l1(a_shape, dtype), T.alloc_l1(b_shape, dtype)
            a_l0, b_l0 = T.alloc_l0a(a_shape, dtype), T.alloc_l0b(b_shape, dtype)
            c_l0c = T.alloc_l0c((m, n), accumulator)
            T.copy(a, a_l1)
            T.copy(b, b_l1)
            T.copy(a_l1, a_l0)
            T.copy(b_l1, b_l0)
            T.gemm(
                a_l0,
                b_l0,
                c_l0c,
                transpose_A=transpose,
                transpose_B=not transpose,
                clear_accum=True,
                unit_flag_ctrl=unit_flag,
            )
            T.copy(c_l0c, c, unit_flag_ctrl=unit_flag)

    return main


def gemm_transposed_load(dtype: str):
    m, n, k = 32, 48, 64

    @T.prim_func
    def main(a: T.Tensor((m, k), dtype), b: T.Tensor((k, n), dtype), c: T.Tensor((m, n), "float32")):
        with T.Kernel(1):
            a_l1, b_l1 = T.alloc_l1((m, k), dtype), T.alloc_l1((n, k), dtype)
            c_l0c = T.alloc_l0c((m, n), "float32")
            T.copy(a, a_l1)
            T.copy(b, b_l1, transpose=True)
            T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=True)
            T.copy(c_l0c, c)

    return main


def gemm_scaled():
    m, n, k = 32, 48, 128

    @T.prim_func
    def main(
        a: T.Tensor((m, k), "float8_e4m3fn"),
        b: T.Tensor((n, k), "float8_e4m3fn"),
        a_scale: T.Tensor((m, k // 64), "int16"),
        b_scale: T.Tensor((n, k // 64), "int16"),
        c: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1):
            a_l1, b_l1 = T.alloc_l1((m, k), "float8_e4m3fn"), T.alloc_l1((n, k), "float8_e4m3fn")
            a_scale_l1, b_scale_l1 = T.alloc_l1((m, k // 64), "int16"), T.alloc_l1((n, k // 64), "int16")
            c_l0c = T.alloc_l0c((m, n), "float32")
            T.copy(a, a_l1)
            T.copy(b, b_l1)
            T.copy(a_scale, a_scale_l1)
            T.copy(b_scale, b_scale_l1)
            T.gemm_blockscaled(a_l1, b_l1, c_l0c, a_scale_l1, b_scale_l1, transpose_B=True, clear_accum=True)
            T.copy(c_l0c, c)

    return main


def gemm_relu(m: int, n: int, k: int):
    """Persistent over tiles; the cube core multiplies the next tile while the vector cores work on the last."""
    tile_m, tile_n, tile_k, blocks = 32, 32, 32, 2

    @T.prim_func
    def main(a: T.Tensor((m, k), "bfloat16"), b: T.Tensor((n, k), "bfloat16"), c: T.Tensor((m, n), "float32")):
        with T.Kernel(blocks) as block:
            a_l1, b_l1 = T.alloc_l1((tile_m, tile_k), "bfloat16"), T.alloc_l1((tile_n, tile_k), "bfloat16")
            c_l0c = T.alloc_l0c((tile_m, tile_n), "float32")
            c_ub = T.alloc_shared((tile_m // 2, tile_n), "float32")
            for tile in T.Persistent([m // tile_m * (n // tile_n)], blocks, block):
                row, column = tile // (n // tile_n) * tile_m, tile % (n // tile_n) * tile_n
                for step in T.Pipelined(k // tile_k, num_stages=2):
                    T.copy(a[row, step * tile_k], a_l1)
                    T.copy(b[column, step * tile_k], b_l1)
                    T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=(step == 0))
                T.dual_copy(c_l0c, c_ub)
                with T.SimtVF(threads=128):
                    for i, j in T.Parallel(tile_m // 2, tile_n):
                        c_ub[i, j] = T.max(c_ub[i, j], 0)
                T.dual_copy(c_ub, c[row : row + tile_m, column : column + tile_n])

    return main


def two_gemms(m: int, n: int, k: int, p: int):
    """relu(A B^T) goes to the vector cores and back to L1 as bf16 for a second product with E."""

    @T.prim_func
    def main(
        a: T.Tensor((m, k), "bfloat16"),
        b: T.Tensor((n, k), "bfloat16"),
        e: T.Tensor((p, n), "bfloat16"),
        d: T.Tensor((m, p), "float32"),
    ):
        with T.Kernel(1):
            a_l1, b_l1 = T.alloc_l1((m, k), "bfloat16"), T.alloc_l1((n, k), "bfloat16")
            e_l1, r_l1 = T.alloc_l1((p, n), "bfloat16"), T.alloc_l1((m, n), "bfloat16")
            c_l0c, d_l0c = T.alloc_l0c((m, n), "float32"), T.alloc_l0c((m, p), "float32")
            c_ub, r_ub = T.alloc_shared((m // 2, n), "float32"), T.alloc_shared((m // 2, n), "bfloat16")
            T.copy(a, a_l1)
            T.copy(b, b_l1)
            T.copy(e, e_l1)
            T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=True)
            T.dual_copy(c_l0c, c_ub)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(m // 2, n):
                    r_ub[i, j] = T.cast(T.max(c_ub[i, j], 0), "bfloat16")
            T.dual_copy(r_ub, r_l1)
            T.gemm(r_l1, e_l1, d_l0c, transpose_B=True, clear_accum=True)
            T.copy(d_l0c, d)

    return main


def split_columns(m: int, n: int, k: int):
    """Each vector core receives half of the columns."""

    @T.prim_func
    def main(a: T.Tensor((m, k), "bfloat16"), b: T.Tensor((n, k), "bfloat16"), c: T.Tensor((m, n), "float32")):
        with T.Kernel(1):
            a_l1, b_l1 = T.alloc_l1((m, k), "bfloat16"), T.alloc_l1((n, k), "bfloat16")
            c_l0c, c_ub = T.alloc_l0c((m, n), "float32"), T.alloc_shared((m, n // 2), "float32")
            T.copy(a, a_l1)
            T.copy(b, b_l1)
            T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=True)
            T.dual_copy(c_l0c, c_ub)
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(m, n // 2):
                    c_ub[i, j] = c_ub[i, j] + 1
            T.dual_copy(c_ub, c)

    return main


# name: (kernel, type of A and B, blocks, whether GM holds A^T, B, function of the product)
PRODUCTS = {
    "gemm_bf16": (lambda: gemm(100, 72, 40, "bfloat16"), "bf16", 4, False, False),
    "gemm_f32": (lambda: gemm(100, 72, 40, "float32"), "f32", 4, False, False),
    "gemm_f16_to_f16": (lambda: gemm(64, 48, 64, "float16", out="float16"), "f16", 1, False, False),
    "gemm_bf16_to_bf16": (lambda: gemm(65, 50, 33, "bfloat16", out="bfloat16"), "bf16", 4, False, False),
    "gemm_s8": (lambda: gemm(100, 72, 64, "int8", "int32", "int32"), "s8", 4, False, False),
    "l0_bf16": (lambda: gemm_in_l0("bfloat16", "float32", False), "bf16", 1, False, False),
    "l0_bf16_transposed": (lambda: gemm_in_l0("bfloat16", "float32", True), "bf16", 1, True, True),
    "l0_f32_transposed": (lambda: gemm_in_l0("float32", "float32", True), "f32", 1, True, True),
    "l0_s8_transposed": (lambda: gemm_in_l0("int8", "int32", True), "s8", 1, True, True),
    "l0_unit_flags": (lambda: gemm_in_l0("bfloat16", "float32", False, 3), "bf16", 1, False, False),
    "transposed_load_bf16": (lambda: gemm_transposed_load("bfloat16"), "bf16", 1, False, True),
    "transposed_load_f32": (lambda: gemm_transposed_load("float32"), "f32", 1, False, True),
}
SHAPES = {
    "gemm_bf16": (100, 72, 40),
    "gemm_f32": (100, 72, 40),
    "gemm_f16_to_f16": (64, 48, 64),
    "gemm_bf16_to_bf16": (65, 50, 33),
    "gemm_s8": (100, 72, 64),
    "transposed_load_bf16": (32, 48, 64),
    "transposed_load_f32": (32, 48, 64),
}
MIXED = {
    "gemm_relu": lambda: gemm_relu(64, 64, 64),
    "two_gemms": lambda: two_gemms(32, 64, 48, 16),
    "split_columns": lambda: split_columns(32, 64, 48),
    "gemm_scaled": gemm_scaled,
}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    functions = {**{name: entry[0] for name, entry in PRODUCTS.items()}, **MIXED}
    return {name: lower(function(), name) for name, function in functions.items()}


@pytest.fixture(scope="module", params=[True, False], ids=["checks", "no checks"])
def library(request: pytest.FixtureRequest, sources: dict[str, str]) -> ascend_sim.Library:
    return compile_together(sources, checks=request.param)


def to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Random values as stored and as numbers."""
    if dtype == "s8":
        x = rng.integers(-128, 128, shape, dtype=np.int8)
        return x, x.astype(np.int32)
    x = rng.normal(size=shape).astype(np.float32)
    if dtype == "bf16":
        return to_bf16(x), from_bf16(to_bf16(x))
    if dtype == "f16":
        return x.astype(np.float16), x.astype(np.float16).astype(np.float32)
    return x, x


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums in the order of k, one float addition a term; integers exactly."""
    if a.dtype == np.int32:
        return a @ b.T
    total = np.zeros((len(a), len(b)), np.float32)
    for i in range(a.shape[1]):
        total = total + a[:, i : i + 1] * b[:, i][None]
    return total


def launch(library: ascend_sim.Library, name: str, blocks: int, **arguments: np.ndarray) -> None:
    (kernel,) = (kernel for kernel in library.kernels if kernel.name == name)
    ascend_sim.launch(library, name, blocks, *(arguments[parameter] for parameter in kernel.parameters))


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(library: ascend_sim.Library, name: str) -> None:
    _, dtype, blocks, a_transposed, b_transposed = PRODUCTS[name]
    m, n, k = SHAPES.get(name, (32, 64, 64))
    rng = np.random.default_rng(0)
    a, a_values = draw(rng, (k, m) if a_transposed else (m, k), dtype)
    b, b_values = draw(rng, (k, n) if b_transposed else (n, k), dtype)
    expected = product(a_values.T if a_transposed else a_values, b_values.T if b_transposed else b_values)
    kind = name.rpartition("_to_")[2]
    expected = {"f16": lambda x: x.astype(np.float16), "bf16": to_bf16}.get(
        kind if "_to_" in name else "", lambda x: x
    )(expected)
    c = np.zeros_like(expected)
    launch(library, name, blocks, a=a, b=b, c=c)
    np.testing.assert_array_equal(c, expected)


def test_product_and_relu_on_three_cores(library: ascend_sim.Library) -> None:
    (a, a_values), (b, b_values) = (draw(np.random.default_rng(i), (64, 64), "bf16") for i in range(2))
    c = np.zeros((64, 64), np.float32)
    launch(library, "gemm_relu", 2, a=a, b=b, c=c)
    np.testing.assert_array_equal(c, np.maximum(product(a_values, b_values), 0))


def test_results_go_to_the_vector_cores_and_back(library: ascend_sim.Library) -> None:
    rng = np.random.default_rng(1)
    (a, a_values), (b, b_values), (e, e_values) = (draw(rng, shape, "bf16") for shape in ((32, 48), (64, 48), (16, 64)))
    d = np.zeros((32, 16), np.float32)
    launch(library, "two_gemms", 1, a=a, b=b, e=e, d=d)
    relu = from_bf16(to_bf16(np.maximum(product(a_values, b_values), 0)))
    np.testing.assert_array_equal(d, product(relu, e_values))


def test_results_are_split_by_columns(library: ascend_sim.Library) -> None:
    rng = np.random.default_rng(2)
    (a, a_values), (b, b_values) = (draw(rng, shape, "bf16") for shape in ((32, 48), (64, 48)))
    c = np.zeros((32, 64), np.float32)
    launch(library, "split_columns", 1, a=a, b=b, c=c)
    np.testing.assert_array_equal(c, product(a_values, b_values) + 1)


def test_block_scaled_product(library: ascend_sim.Library) -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 0x7E, (80, 128), dtype=np.uint8) | rng.integers(0, 2, (80, 128), dtype=np.uint8) << 7
    magnitude = (codes & 0x7F).astype(int)
    values = np.where(codes & 0x80, -1.0, 1.0) * np.where(
        magnitude < 8, magnitude / 512, (8 + magnitude % 8) * 2.0 ** (magnitude // 8 - 10.0)
    )
    scales = rng.integers(120, 134, (80, 4), dtype=np.uint8)
    scaled = (values * np.repeat(2.0 ** (scales.astype(float) - 127), 32, axis=1)).astype(np.float32)
    c = np.zeros((32, 48), np.float32)
    a, b = codes[:32].copy(), codes[32:].copy()
    launch(library, "gemm_scaled", 1, a=a, b=b, a_scale=scales[:32].copy(), b_scale=scales[32:].copy(), c=c)
    np.testing.assert_array_equal(c, product(scaled[:32], scaled[32:]))


# What is taken out of the generated source, and the memory or event that is reported.
PLANTED = [
    ("l0_bf16", "asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));", "hazard", "L0C"),
    ("l0_bf16", "asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));", "hazard", "L0"),
    ("l0_bf16", "asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(1));", "hazard", "L1"),
    ("split_columns", "asc_sync_intra_wait(PIPE_V, 0);", "hazard", "UB"),
    ("two_gemms", "asc_sync_intra_wait(PIPE_MTE1, 16);", "hazard", "L1"),
    ("two_gemms", "asc_sync_intra_arrive(PIPE_MTE3, 0);", "deadlock", ""),
    ("l0_bf16", "asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));", "deadlock", "PIPE_M to PIPE_FIX"),
]


@pytest.mark.parametrize(("name", "statement", "code", "where"), PLANTED)
def test_missing_synchronisation_is_reported(
    sources: dict[str, str], name: str, statement: str, code: str, where: str
) -> None:
    source = sources[name]
    assert source.count(statement) == 1
    library = ascend_sim.compile(source.replace(statement, ""))
    rng = np.random.default_rng(4)
    shapes = {"a": (32, 64), "b": (64, 64), "c": (32, 64), "e": (16, 64), "d": (32, 16)}
    arguments = {key: rng.integers(0, 100, shape, dtype=np.uint16) for key, shape in shapes.items()}
    arguments["c"], arguments["d"] = np.zeros((32, 64), np.float32), np.zeros((32, 16), np.float32)
    with pytest.raises(ascend_sim.KernelError) as raised:
        launch(library, name, 1, **arguments)
    assert raised.value.code == code
    assert where in raised.value.report["message"]


def test_counts_of_a_product_with_tails(library: ascend_sim.Library, request: pytest.FixtureRequest) -> None:
    a, b, c = np.zeros((100, 40), np.uint16), np.zeros((72, 40), np.uint16), np.zeros((100, 72), np.float32)
    launch(library, "gemm_bf16", 4, a=a, b=b, c=c)
    trace = ascend_sim.trace()
    assert trace.kinds["mmad"] == (8, 8 * 64 * 48 * 32)  # 2 x 2 tiles of 2 steps, tails padded to whole tiles
    # A is read once a column of tiles, B once a row of tiles.
    assert trace.tensors == {"a": (100 * 40 * 2 * 2, 0), "b": (72 * 40 * 2 * 2, 0), "c": (0, 100 * 72 * 4)}
