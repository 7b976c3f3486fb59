"""Every family of vector instructions against the NumPy model, bit for bit unless the hardware states a tolerance."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import simd_model as model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simd_harness import DATA, Snippets, assert_same

pytest.importorskip("tilelang", reason="the snippets go through TileLang's templates")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*encountered in:RuntimeWarning"
)  # the model computes with infinities and NaN

snippets = Snippets()
examples = settings(max_examples=12, suppress_health_check=list(HealthCheck))

SPECIAL = {
    "float": [
        0.0,
        -0.0,
        1.0,
        -1.5,
        np.inf,
        -np.inf,
        np.nan,
        3.4028235e38,
        -3.4028235e38,
        1e-45,
        -1e-40,
        1.1754944e-38,
        2**31,
        65520.0,
        0.5,
        2.5,
    ],
    "half": [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 65504.0, -65504.0, 6e-8, -3e-5, 6.104e-5, 2047.0, 0.5, 2.5],
    "bfloat16_t": [
        0.0,
        -0.0,
        1.0,
        -1.5,
        np.inf,
        -np.inf,
        np.nan,
        3.39e38,
        -3.39e38,
        1e-40,
        1.1754944e-38,
        255.0,
        0.5,
        2.5,
    ],
    "float8_e4m3_t": [0.0, -0.0, 448.0, -448.0, np.nan, 2**-9],
    "float8_e5m2_t": [0.0, -0.0, 57344.0, np.inf, -np.inf, np.nan, 2**-16],
}
for _name in (*model.INTS, "int64_t", "uint64_t"):
    _info = np.iinfo(model.DTYPES[_name])
    SPECIAL[_name] = [0, 1, 2, _info.max, _info.min, _info.max - 1, _info.max // 2]


def draw_masks(rng: np.random.Generator, count: int) -> np.ndarray:
    masks = rng.integers(0, 2, (count, 2, 256)).astype(bool)
    for row in masks:
        kind = rng.integers(0, 4)
        if kind == 0:
            row[:] = True
        elif kind == 1:
            row[:] = np.arange(256) < rng.integers(0, 257)
        elif kind == 2:
            row[:] = rng.random((2, 256)) < 0.05
    return masks


def draw_data(rng: np.random.Generator, count: int, ctype: str, style: str) -> np.ndarray:
    dtype = model.DTYPES[ctype]
    size = count * DATA // dtype.itemsize
    if style == "bits":
        values = rng.integers(0, 256, count * DATA, np.uint8).view(dtype).copy()
    elif style == "small":
        values = (
            (rng.standard_normal(size) * 4).astype(dtype)
            if dtype.kind not in "iu"
            else rng.integers(0, 16, size).astype(dtype)
        )
    else:
        values = (rng.standard_normal(size) * 2.0 ** rng.integers(-20, 20, size)).astype(np.float32).astype(dtype)
    special = np.array(SPECIAL[ctype]).astype(dtype)
    where = rng.random(size) < {"bits": 0.1, "small": 0.02, "wide": 0.4}[style]
    values[where] = rng.choice(special, int(where.sum()))
    return values.view(np.uint8).reshape(count, DATA)


def records(ctype: str, count: int = 6):
    """Random records of a type: any bits, small values or wide ranges, with special values mixed in."""

    def build(seed: int, style: str) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        with np.errstate(all="ignore"):
            return draw_masks(rng, count), draw_data(rng, count, ctype, style)

    return st.builds(build, st.integers(0, 2**32 - 1), st.sampled_from(["bits", "small", "wide"]))


def quarters(data: np.ndarray, ctype: str) -> list[np.ndarray]:
    """The four registers of one record."""
    return [model.lanes(data[256 * k : 256 * (k + 1)], ctype) for k in range(4)]


def check(
    name: str, ctype: str, expected, out_ctype: str | None = None, compare=assert_same, registers: int = 1
) -> None:
    """Runs a snippet on drawn records; `expected(mask, mask2, a, b, c, d)` gives the output registers."""

    @examples
    @given(records(ctype))
    def run(record):
        masks, data = record
        _, out = snippets.run(name, masks, data)
        for i in range(len(data)):
            inputs = quarters(data[i], ctype)
            results = expected(masks[i, 0], masks[i, 1], *inputs)
            results = results if isinstance(results, tuple) else (results,)
            assert len(results) == registers
            for k, result in enumerate(results):
                actual = model.lanes(out[i, 256 * k : 256 * (k + 1)], out_ctype or ctype)
                compare(actual, result.astype(actual.dtype), inputs)

    run()


def check_masks(name: str, ctype: str, expected) -> None:
    """The same for snippets that produce masks."""

    @examples
    @given(records(ctype))
    def run(record):
        masks, data = record
        out, _ = snippets.run(name, masks, data)
        for i in range(len(data)):
            results = expected(masks[i, 0], masks[i, 1], *quarters(data[i], ctype))
            results = results if isinstance(results, tuple) else (results,)
            for k, result in enumerate(results):
                np.testing.assert_array_equal(np.flatnonzero(out[i, k]), np.flatnonzero(result))

    run()


# Arithmetic of two registers.


def maximum(x, y):
    r = np.where(x > y, x, y)
    if x.dtype.kind == "f":
        r = np.where((x == y) & (x == 0), np.where(np.signbit(x) & np.signbit(y), -0.0, 0.0), r)
        r = np.where(np.isnan(x) | np.isnan(y), np.nan, r)
    return r


def minimum(x, y):
    r = np.where(x < y, x, y)
    if x.dtype.kind == "f":
        r = np.where((x == y) & (x == 0), np.where(np.signbit(x) | np.signbit(y), -0.0, 0.0), r)
        r = np.where(np.isnan(x) | np.isnan(y), np.nan, r)
    return r


BINARY = [
    ("vadd", np.add, model.NUMBERS),
    ("vsub", np.subtract, model.NUMBERS),
    ("vmul", np.multiply, ("int16_t", "uint16_t", "int32_t", "uint32_t", *model.FLOATS)),
    ("vmax", maximum, model.NUMBERS),
    ("vmin", minimum, model.NUMBERS),
]
BINARY_CASES = [
    (snippets.add(f"{op}-{t}-{form}", body.format(op=op, t=t)), form, f, t)
    for op, f, types in BINARY
    for t in types
    for form, body in {
        "zeroing": "out(0, simd_inst::{op}(in_({t}, 0), in_({t}, 1), mask, MODE_ZEROING));",
        "merging": "auto d = in_({t}, 2); ::{op}(d, in_({t}, 0), in_({t}, 1), mask, MODE_MERGING); out(0, d);",
    }.items()
]


@pytest.mark.parametrize("name, form, f, ctype", BINARY_CASES, ids=[c[0] for c in BINARY_CASES])
def test_binary(name, form, f, ctype):
    def expected(mask, _, a, b, c, d):
        result = model.arithmetic(f, ctype, a, b)
        return model.zeroed(result, mask, ctype) if form == "zeroing" else model.merged(c, result, mask, ctype)

    check(name, ctype, expected)


BITWISE_CASES = [
    (snippets.add(f"{op}-{t}", f"out(0, simd_inst::{op}(in_({t}, 0), in_({t}, 1), mask, MODE_ZEROING));"), f, t)
    for op, f in (("vand", np.bitwise_and), ("vor", np.bitwise_or), ("vxor", np.bitwise_xor))
    for t in ("uint8_t", "int16_t", "uint32_t", "float")
]


@pytest.mark.parametrize("name, f, ctype", BITWISE_CASES, ids=[c[0] for c in BITWISE_CASES])
def test_bitwise(name, f, ctype):
    def expected(mask, _, a, b, c, d):
        unsigned = f"uint{8 * a.itemsize}"
        return model.zeroed(f(a.view(unsigned), b.view(unsigned)).view(a.dtype), mask, ctype)

    check(name, ctype, expected)


# A register and a scalar: the scalar is lane 0 of the second register, read through memory by a scalar load.

SCALAR = [
    ("vadds", np.add, model.NUMBERS),
    ("vmuls", np.multiply, ("int16_t", "uint32_t", "half", "float")),
    ("vmaxs", maximum, model.NUMBERS),
    ("vmins", minimum, ("int8_t", "uint16_t", "half", "float")),
]
SCALARS = {
    "float": -1.5,
    "half": 3.25,
    "bfloat16_t": 0.3125,
    "int8_t": -3,
    "int16_t": -300,
    "int32_t": -70000,
    "uint8_t": 200,
    "uint16_t": 60000,
    "uint32_t": 4000000000,
}
SCALAR_CASES = [
    (
        snippets.add(
            f"{op}-{t}-scalar",
            f"out(0, simd_inst::{op}(in_({t}, 0), ({t})({SCALARS[t]}{'u' if t == 'uint32_t' else ''}), mask, MODE_ZEROING));",
        ),
        f,
        t,
    )
    for op, f, types in SCALAR
    for t in types
]


@pytest.mark.parametrize("name, f, ctype", SCALAR_CASES, ids=[c[0] for c in SCALAR_CASES])
def test_scalar(name, f, ctype):
    def expected(mask, _, a, b, c, d):
        scalar = np.full(len(a), SCALARS[ctype]).astype(a.dtype)
        return model.zeroed(model.arithmetic(f, ctype, a, scalar), mask, ctype)

    check(name, ctype, expected)


# Shifts.


def shift_left(x, n):
    bits = 8 * x.itemsize
    out = []
    for value, amount in zip(x.tolist(), n.tolist(), strict=True):
        moved = (value << amount) % (1 << bits) if 0 <= amount < bits else 0
        if x.dtype.kind == "i" and 0 <= amount < bits:
            moved = moved % (1 << (bits - 1)) + (1 << (bits - 1) if value < 0 else 0)
        out.append(moved)
    return np.array(out, f"uint{bits}").view(x.dtype)


def shift_right(x, n):
    bits = 8 * x.itemsize
    return np.array(
        [(v >> m if 0 <= m < bits else (-1 if v < 0 else 0)) for v, m in zip(x.tolist(), n.tolist(), strict=True)],
        x.dtype,
    )


SHIFT_CASES = [
    (
        snippets.add(
            f"{op}-{t}", f"out(0, simd_inst::{op}(in_({t}, 0), in_({t.lstrip('u')}, 1), mask, MODE_ZEROING));"
        ),
        f,
        t,
    )
    for op, f in (("vshl", shift_left), ("vshr", shift_right))
    for t in model.INTS
]
SHIFT_SCALAR_CASES = [
    (snippets.add(f"{op}-{t}-{n}", f"out(0, simd_inst::{op}(in_({t}, 0), {n}, mask, MODE_ZEROING));"), f, t, n)
    for op, f in (("vshls", shift_left), ("vshrs", shift_right))
    for t, n in (
        ("int8_t", 3),
        ("uint8_t", 7),
        ("int16_t", 1),
        ("int32_t", 16),
        ("uint32_t", 31),
        ("int32_t", 32),
        ("uint16_t", 40),
    )
]


@pytest.mark.parametrize("name, f, ctype", SHIFT_CASES, ids=[c[0] for c in SHIFT_CASES])
def test_shift(name, f, ctype):
    # Amounts beyond the width are defined, negative ones are not.
    def run(mask, _, a, b, c, d):
        return model.zeroed(f(a, b), mask, ctype)

    @examples
    @given(records(ctype))
    def check_amounts(record):
        masks, data = record
        data = data.copy()
        amounts = data[:, 256:512].view(model.DTYPES[ctype])
        amounts %= 8 * amounts.itemsize + 3
        _, out = snippets.run(name, masks, data)
        for i in range(len(data)):
            inputs = quarters(data[i], ctype)
            assert_same(model.lanes(out[i, :256], ctype), run(masks[i, 0], None, *inputs), inputs)

    check_amounts()


@pytest.mark.parametrize("name, f, ctype, n", SHIFT_SCALAR_CASES, ids=[c[0] for c in SHIFT_SCALAR_CASES])
def test_shift_by_scalar(name, f, ctype, n):
    check(name, ctype, lambda mask, _, a, *rest: model.zeroed(f(a, np.full(len(a), n)), mask, ctype))


# One register.


def relu(x):
    return np.where((x > 0) | np.isnan(x), x, 0) if x.dtype.kind == "f" else np.maximum(x, 0)


UNARY = [
    ("vabs", np.abs, ("int8_t", "int16_t", "int32_t", "half", "float")),
    ("vneg", np.negative, ("int8_t", "int16_t", "int32_t", "half", "float")),
    ("vrelu", relu, ("int32_t", "half", "float")),
]
UNARY_CASES = [
    (snippets.add(f"{op}-{t}", f"out(0, simd_inst::{op}(in_({t}, 0), mask, MODE_ZEROING));"), f, t)
    for op, f, types in UNARY
    for t in types
]


@pytest.mark.parametrize("name, f, ctype", UNARY_CASES, ids=[c[0] for c in UNARY_CASES])
def test_unary(name, f, ctype):
    check(name, ctype, lambda mask, _, a, *rest: model.zeroed(model.arithmetic(f, ctype, a), mask, ctype))


for _t in ("uint8_t", "int16_t", "half", "uint32_t", "float"):
    snippets.add(f"vnot-{_t}", f"out(0, simd_inst::vnot(in_({_t}, 0), mask, MODE_ZEROING));")


@pytest.mark.parametrize("ctype", ["uint8_t", "int16_t", "half", "uint32_t", "float"])
def test_not(ctype):
    def expected(mask, _, a, *rest):
        return model.zeroed((~a.view(f"uint{8 * a.itemsize}")).view(a.dtype), mask, ctype)

    check(f"vnot-{ctype}", ctype, expected)


# Functions of the special unit: at most 1 ulp, subnormal numbers taken and given as zero.

SPECIAL_FUNCTIONS = [
    (snippets.add(f"{op}-{t}", f"out(0, simd_inst::{op}({args.format(t=t)}, mask{mode}));"), f, t, count)
    for op, f, args, mode, count, types in (
        ("vexp", np.exp, "in_({t}, 0)", ", MODE_ZEROING", 1, ("half", "float")),
        ("vln", np.log, "in_({t}, 0)", ", MODE_ZEROING", 1, ("half", "float")),
        ("vsqrt", np.sqrt, "in_({t}, 0)", ", MODE_ZEROING", 1, ("half", "float")),
        ("vdiv", np.divide, "in_({t}, 0), in_({t}, 1)", ", MODE_ZEROING", 2, ("half", "float")),
        (
            "vexpdif",
            lambda x, y: np.exp(np.float64(np.float32(x) - np.float32(y))),
            "in_({t}, 0), in_({t}, 1)",
            "",
            2,
            ("float",),
        ),
    )
    for t in types
]


def assert_one_ulp(actual, expected, inputs):
    """Equal, or neighbours; zero also stands for a subnormal and for the smallest normal number."""
    unsigned = f"uint{8 * actual.itemsize}"
    a, e = (x.view(unsigned).astype(np.int64) for x in (actual, expected))
    near = np.abs(a - e) <= 1
    both_nan = np.isnan(actual.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    smallest = 2.0**-14 if actual.dtype == np.float16 else 2.0**-126
    tiny = (actual == 0) & (np.abs(expected.astype(np.float64)) <= smallest)
    bad = ~(near | both_nan | tiny)
    assert not bad.any(), [(x[bad][0] if len(x) == len(bad) else None) for x in (actual, expected, *inputs)]


@pytest.mark.parametrize("name, f, ctype, count", SPECIAL_FUNCTIONS, ids=[c[0] for c in SPECIAL_FUNCTIONS])
def test_special_function(name, f, ctype, count):
    def expected(mask, _, *registers):
        operands = [x.astype(np.float32) if "expdif" in name else model.flush(x, ctype) for x in registers[:count]]
        with np.errstate(all="ignore"):
            return model.zeroed(f(*(x.astype(np.float64) for x in operands)).astype(model.DTYPES[ctype]), mask, ctype)

    check(name, ctype, expected, compare=assert_one_ulp)


snippets.add("vdiv-exact", "out(0, simd_inst::vdiv_0ulp_ftz_true(in_(float, 0), in_(float, 1), mask, MODE_ZEROING));")
snippets.add("vexp-subnormal", "out(0, simd_inst::vexp_1ulp_ftz_false(in_(float, 0), mask, MODE_ZEROING));")
snippets.add("vln-subnormal", "out(0, simd_inst::vln_1ulp_ftz_false(in_(float, 0), mask, MODE_ZEROING));")
snippets.add("vsqrt-subnormal", "out(0, simd_inst::vsqrt_0ulp_ftz_false(in_(float, 0), mask, MODE_ZEROING));")


def test_precise_division_of_normal_numbers_is_correctly_rounded():
    def expected(mask, _, a, b, *rest):
        with np.errstate(all="ignore"):
            return model.zeroed(model.flush(a, "float") / model.flush(b, "float"), mask, "float")

    def compare(actual, wanted, inputs):
        ordinary = (
            (np.abs(wanted) > 2.0**-100)
            & (np.abs(wanted) < 2.0**100)
            & (np.abs(inputs[0]) > 2.0**-60)
            & (np.abs(inputs[1]) < 2.0**60)
        )
        assert_same(actual[ordinary], wanted[ordinary], inputs)

    check("vdiv-exact", "float", expected, compare=compare)


@pytest.mark.parametrize(
    "name, f", [("vexp-subnormal", np.exp), ("vln-subnormal", np.log), ("vsqrt-subnormal", np.sqrt)]
)
def test_precise_functions_keep_subnormal_numbers(name, f):
    def expected(mask, _, a, *rest):
        with np.errstate(all="ignore"):
            return f(a.astype(np.float64)).astype(np.float32)

    def compare(actual, wanted, inputs):
        x = inputs[0]
        subnormal = (np.abs(wanted) < 2.0**-126) | ((np.abs(x) < 2.0**-126) & (x > 0))
        close = np.isclose(actual[subnormal], wanted[subnormal], rtol=1e-6, atol=2.0**-148)
        assert close.all()

    rng = np.random.default_rng(5)
    data = (rng.uniform(-104, -87, (4, 256)) if f is np.exp else rng.random((4, 256)) * 2.0**-126).astype(np.float32)
    masks = np.ones((4, 2, 256), bool)
    _, out = snippets.run(name, masks, data.view(np.uint8))
    for i in range(4):
        a = data[i, :64]
        compare(out[i, :256].view(np.float32), expected(masks[i, 0], None, a), [a])


# Fused multiply-adds: one rounding.


def exact_fma(a, b, c):
    """a * b + c as float64 values that every narrower format rounds like the exact results."""
    out = []
    for x, y, z in zip(*(v.astype(np.float64) for v in (a, b, c)), strict=True):
        approximate = x * y + z
        ordinary = np.isfinite(approximate) and approximate != 0
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) if ordinary else None
        out.append(round_to_odd(exact) if ordinary else approximate)
    return np.array(out)


def round_to_odd(value: Fraction) -> float:
    nearest = value.numerator / value.denominator
    bits = np.float64(nearest).view(np.int64)
    if Fraction(nearest) == value or bits & 1:
        return nearest
    away = (Fraction(nearest) < value) == (nearest > 0)
    return float(np.int64(bits + (1 if away else -1)).view(np.float64))


FUSED = [
    (snippets.add(f"{op}-{t}", f"auto d = in_({t}, 0); {call.format(t=t)} out(0, d);"), order, t)
    for op, call, order in (
        ("vmula", "simd_inst::vmula(&d, in_({t}, 1), in_({t}, 2), mask, MODE_ZEROING);", (1, 2, 0)),
        ("vmadd", "simd_inst::vmadd(&d, in_({t}, 1), in_({t}, 2), mask, MODE_ZEROING);", (0, 1, 2)),
    )
    for t in ("half", "bfloat16_t", "float")
]


@pytest.mark.parametrize("name, order, ctype", FUSED, ids=[c[0] for c in FUSED])
def test_fused_multiply_add(name, order, ctype):
    def expected(mask, _, *registers):
        exact = exact_fma(*(registers[k] for k in order))
        with np.errstate(all="ignore"):
            rounded = exact.astype(np.float32) if ctype == "float" else model.narrow_float(exact, ctype)
        return model.zeroed(rounded, mask, ctype)

    check(name, ctype, expected)


snippets.add(
    "vmula-int",
    "auto d = in_(int32_t, 0); ::vmula(d, in_(int32_t, 1), in_(int32_t, 2), mask, MODE_MERGING); out(0, d);",
)
snippets.add(
    "vaxpy", "auto d = in_(float, 0); simd_inst::vaxpy(&d, in_(float, 1), 0.3f, mask, MODE_ZEROING); out(0, d);"
)
snippets.add("vaxpy-merging", "auto d = in_(float, 0); ::vaxpy(d, in_(float, 1), 0.3f, mask, MODE_MERGING); out(0, d);")


def test_integer_multiply_add_keeps_inactive_lanes():
    check(
        "vmula-int",
        "int32_t",
        lambda mask, _, a, b, c, d: model.merged(
            a, model.arithmetic(lambda x, y, z: x * y + z, "int32_t", b, c, a), mask, "int32_t"
        ),
    )


@pytest.mark.parametrize("name", ["vaxpy", "vaxpy-merging"])
def test_axpy(name):
    def expected(mask, _, a, b, *rest):
        result = exact_fma(b, np.full(64, 0.3, np.float32), a).astype(np.float32)
        return model.zeroed(result, mask, "float") if name == "vaxpy" else model.merged(a, result, mask, "float")

    check(name, "float", expected)


# Compound.

snippets.add("vlrelu", "out(0, simd_inst::vlrelu(in_(float, 0), 0.25f, mask));")
snippets.add("vprelu", "out(0, simd_inst::vprelu(in_(half, 0), in_(half, 1), mask));")
snippets.add("vabsdif", "out(0, simd_inst::vabsdif(in_(half, 0), in_(half, 1), mask, MODE_ZEROING));")
snippets.add(
    "vexpdif-half",
    "vector_f32 e, o; asc_exp_sub(e, in_(half, 0), in_(half, 1), mask); asc_exp_sub_v2(o, in_(half, 0), in_(half, 1), mask); out(0, e); out(1, o);",
)


def test_leaky_and_parametric_relu():
    def leaky(x, y):
        return np.where(np.signbit(x), x * y, x)

    check(
        "vlrelu",
        "float",
        lambda mask, _, a, *rest: model.zeroed(model.arithmetic(leaky, "float", a, np.full(64, 0.25)), mask, "float"),
    )
    check(
        "vprelu", "half", lambda mask, _, a, b, *rest: model.zeroed(model.arithmetic(leaky, "half", a, b), mask, "half")
    )


def test_absolute_difference():
    check(
        "vabsdif",
        "half",
        lambda mask, _, a, b, *rest: model.zeroed(np.abs(model.arithmetic(np.subtract, "half", a, b)), mask, "half"),
    )


def test_exponential_of_half_differences():
    def expected(mask, _, a, b, *rest):
        with np.errstate(all="ignore"):
            result = np.exp(np.float64(np.float32(a) - np.float32(b))).astype(np.float32)
        result[~model.active(mask, "half")] = 0
        return result[::2], result[1::2]

    check("vexpdif-half", "half", expected, "float", assert_one_ulp, registers=2)


# Carry arithmetic and long products.

snippets.add(
    "vaddc", "auto p = simd_inst::vaddc(in_(uint32_t, 0), in_(uint32_t, 1), mask); out_mask(0, p.v0); out(0, p.v1);"
)
snippets.add(
    "vsubc", "auto p = simd_inst::vsubc(in_(int32_t, 0), in_(int32_t, 1), mask); out_mask(0, p.v0); out(0, p.v1);"
)
snippets.add(
    "vaddcs",
    "auto p = simd_inst::vaddcs(in_(uint32_t, 0), in_(uint32_t, 1), mask2, mask); out_mask(0, p.v0); out(0, p.v1);",
)
snippets.add(
    "vsubcs",
    "auto p = simd_inst::vsubcs(in_(uint32_t, 0), in_(uint32_t, 1), mask2, mask); out_mask(0, p.v0); out(0, p.v1);",
)
snippets.add(
    "vmull-s", "auto p = simd_inst::vmull(in_(int32_t, 0), in_(int32_t, 1), mask); out(0, p.v0); out(1, p.v1);"
)
snippets.add(
    "vmull-u", "auto p = simd_inst::vmull(in_(uint32_t, 0), in_(uint32_t, 1), mask); out(0, p.v0); out(1, p.v1);"
)


@pytest.mark.parametrize("name", ["vaddc", "vsubc", "vaddcs", "vsubcs"])
def test_carry(name):
    def wide(mask, mask2, a, b):
        carry = model.active(mask2, "uint32_t").astype(np.int64) if name.endswith("cs") else np.int64("sub" in name)
        return a.astype(np.int64) + (0xFFFFFFFF - b.astype(np.int64) if "sub" in name else b) + carry

    def lanes(mask, mask2, a, b, *rest):
        return model.zeroed((wide(mask, mask2, a, b) & 0xFFFFFFFF).astype(np.uint32), mask, "uint32_t")

    def carries(mask, mask2, a, b, *rest):
        return model.lane_mask((wide(mask, mask2, a, b) >> 32 != 0) & model.active(mask, "uint32_t"), "uint32_t")

    check(name, "uint32_t", lanes)
    check_masks(name, "uint32_t", carries)


@pytest.mark.parametrize("name, ctype", [("vmull-s", "int32_t"), ("vmull-u", "uint32_t")])
def test_long_product(name, ctype):
    def expected(mask, _, a, b, *rest):
        product = a.astype(np.int64 if ctype == "int32_t" else np.uint64) * b
        return tuple(model.zeroed((product >> shift).astype(np.uint32).view(a.dtype), mask, ctype) for shift in (0, 32))

    check(name, ctype, expected, registers=2)


# Comparison, selection, broadcast, ramps.

COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}
COMPARE_CASES = [
    (
        snippets.add(
            f"vcmp_{op}-{t}",
            f"out_mask(0, simd_inst::vcmp_{op}(in_({t}, 0), in_({t}, 1), mask)); out_mask(1, simd_inst::vcmps_{op}(in_({t}, 0), ({t})(2), mask));",
        ),
        f,
        t,
    )
    for op, f in COMPARE.items()
    for t in model.NUMBERS
]


@pytest.mark.parametrize("name, f, ctype", COMPARE_CASES, ids=[c[0] for c in COMPARE_CASES])
def test_compare(name, f, ctype):
    def expected(mask, _, a, b, *rest):
        flags = model.active(mask, ctype)
        wide = [x.astype(np.float64) for x in (a, b)]
        return model.lane_mask(f(*wide) & flags, ctype), model.lane_mask(f(wide[0], 2.0) & flags, ctype)

    check_masks(name, ctype, expected)


for _t in ("int8_t", "bfloat16_t", "float", "float8_e4m3_t"):
    snippets.add(f"vsel-{_t}", f"out(0, simd_inst::vsel(in_({_t}, 0), in_({_t}, 1), mask));")
    snippets.add(
        f"vdupv-{_t}",
        f"out(0, simd_inst::vdupv(in_({_t}, 0), mask, POS_LOWEST, MODE_ZEROING)); out(1, simd_inst::vdupv(in_({_t}, 0), mask, POS_HIGHEST, MODE_ZEROING));",
    )
    snippets.add(
        f"vdup-{_t}",
        f"out(0, simd_inst::vdup<{_t}>(({_t})(1.0f), mask, MODE_ZEROING)); auto d = in_({_t}, 0); ::vdup(d, ({_t})(1.0f), mask, MODE_MERGING); out(1, d);",
    )


@pytest.mark.parametrize("ctype", ["int8_t", "bfloat16_t", "float", "float8_e4m3_t"])
def test_select_and_broadcast(ctype):
    check(f"vsel-{ctype}", ctype, lambda mask, _, a, b, *rest: np.where(model.active(mask, ctype), a, b))
    check(
        f"vdupv-{ctype}",
        ctype,
        lambda mask, _, a, *rest: (
            model.zeroed(np.full(len(a), a[0]), mask, ctype),
            model.zeroed(np.full(len(a), a[-1]), mask, ctype),
        ),
        registers=2,
    )
    one = np.ones(1, model.DTYPES[ctype])[0]
    check(
        f"vdup-{ctype}",
        ctype,
        lambda mask, _, a, *rest: (
            model.zeroed(np.full(len(a), one), mask, ctype),
            model.merged(a, np.full(len(a), one), mask, ctype),
        ),
        registers=2,
    )


for _t, _v in (("int8_t", 100), ("int16_t", 10), ("int32_t", -5), ("half", 2), ("float", 0.5)):
    snippets.add(
        f"vci-{_t}", f"out(0, simd_inst::vci<{_t}>({_v}, INC_ORDER)); out(1, simd_inst::vci<{_t}>({_v}, DEC_ORDER));"
    )


@pytest.mark.parametrize(
    "ctype, start", [("int8_t", 100), ("int16_t", 10), ("int32_t", -5), ("half", 2), ("float", 0.5)]
)
def test_ramp(ctype, start):
    def expected(mask, _, a, *rest):
        up = (np.arange(len(a)) + start).astype(a.dtype)
        return up, up[::-1]

    check(f"vci-{ctype}", ctype, expected, registers=2)


# Reductions.

SUMS = [
    (snippets.add(f"vcadd-{s}", f"auto r = simd_inst::vcadd(in_({s}, 0), mask, MODE_ZEROING); out(0, r);"), s, d)
    for s, d in (
        ("int16_t", "int32_t"),
        ("uint16_t", "uint32_t"),
        ("int32_t", "int32_t"),
        ("uint32_t", "uint32_t"),
        ("half", "half"),
        ("float", "float"),
    )
]
GROUP_SUMS = [
    (snippets.add(f"vcgadd-{t}", f"out(0, simd_inst::vcgadd(in_({t}, 0), mask, MODE_ZEROING));"), t)
    for t in ("int32_t", "uint32_t", "half", "float")
]
PAIR_SUMS = [
    (snippets.add(f"vcpadd-{t}", f"out(0, simd_inst::vcpadd(in_({t}, 0), mask, MODE_ZEROING));"), t)
    for t in ("half", "float")
]


def group_sums(values, mask, source, target, group):
    dtype = model.DTYPES[target]
    flags = model.active(mask, source)
    out = np.zeros(256 // dtype.itemsize, dtype)
    for i in range(len(values) // group):
        part = slice(i * group, (i + 1) * group)
        with np.errstate(over="ignore"):
            out[i] = model.tree_sum(values[part], flags[part], dtype)
    return out


@pytest.mark.parametrize("name, source, target", SUMS, ids=[c[0] for c in SUMS])
def test_sum(name, source, target):
    check(name, source, lambda mask, _, a, *rest: group_sums(a, mask, source, target, len(a)), target)


@pytest.mark.parametrize("name, ctype", GROUP_SUMS, ids=[c[0] for c in GROUP_SUMS])
def test_sum_of_blocks(name, ctype):
    check(name, ctype, lambda mask, _, a, *rest: group_sums(a, mask, ctype, ctype, 32 // a.itemsize))


@pytest.mark.parametrize("name, ctype", PAIR_SUMS, ids=[c[0] for c in PAIR_SUMS])
def test_sum_of_pairs(name, ctype):
    check(name, ctype, lambda mask, _, a, *rest: group_sums(a, mask, ctype, ctype, 2))


EXTREMES = [
    (snippets.add(f"{op}-{t}", f"out(0, simd_inst::{op}(in_({t}, 0), mask, MODE_ZEROING));"), op, t)
    for op in ("vcmax", "vcmin", "vcgmax", "vcgmin")
    for t in ("int16_t", "uint16_t", "int32_t", "uint32_t", "half", "float")
]


@pytest.mark.parametrize("name, op, ctype", EXTREMES, ids=[c[0] for c in EXTREMES])
def test_extreme(name, op, ctype):
    largest = op.endswith("max")
    dtype = model.DTYPES[ctype]
    if ctype in model.INTS:
        empty = np.iinfo(dtype).min if largest else np.iinfo(dtype).max
    else:
        empty = -np.inf if largest else np.inf

    def expected(mask, _, a, *rest):
        flags = model.active(mask, ctype)
        group = len(a) if "g" not in op else 32 // a.itemsize
        out = np.zeros(len(a), dtype)
        for g in range(len(a) // group):
            items = [(i, a[i]) for i in range(g * group, (g + 1) * group) if flags[i]]
            nans = [i for i, x in items if x != x]
            if not items:
                best, index = empty, 0
            elif nans:
                best, index = np.nan, nans[0]
            else:
                values = np.array([x for _, x in items])
                wide = values.astype(np.float64)
                target = wide.max() if largest else wide.min()
                index = items[int(np.flatnonzero(wide == target)[0])][0]
                best = target
                if target == 0 and dtype.kind == "f":
                    signs = np.signbit(values[wide == 0])
                    best = -0.0 if (signs.all() if largest else signs.any()) else 0.0
            out[g] = best
            if group == len(a):
                out.view(f"uint{8 * a.itemsize}")[1] = index
        return out

    check(name, ctype, expected)


snippets.add("vcadd-merging", "auto d = in_(float, 1); ::vcadd(d, in_(float, 0), mask, MODE_MERGING); out(0, d);")
snippets.add("vcmax-merging", "auto d = in_(int32_t, 1); ::vcmax(d, in_(int32_t, 0), mask, MODE_MERGING); out(0, d);")


def test_merging_reductions_keep_the_other_lanes():
    def merged_sum(mask, _, a, b, *rest):
        out = b.copy()
        out[0] = model.tree_sum(a, model.active(mask, "float"), a.dtype)
        return out

    check("vcadd-merging", "float", merged_sum)

    def merged_max(mask, _, a, b, *rest):
        flags = model.active(mask, "int32_t")
        out = b.copy()
        where = np.where(flags, a.astype(np.int64), np.iinfo(np.int32).min - 1)
        out[:2] = (a[where.argmax()], where.argmax()) if flags.any() else (np.iinfo(np.int32).min, 0)
        return out

    check("vcmax-merging", "int32_t", merged_max)


# Rearrangement.

WIDTHS = ("uint8_t", "half", "float")
for _t in WIDTHS:
    snippets.add(f"vintlv-{_t}", f"auto p = simd_inst::vintlv(in_({_t}, 0), in_({_t}, 1)); out(0, p.v0); out(1, p.v1);")
    snippets.add(
        f"vdintlv-{_t}", f"auto p = simd_inst::vdintlv(in_({_t}, 0), in_({_t}, 1)); out(0, p.v0); out(1, p.v1);"
    )
    snippets.add(f"vsqz-{_t}", f"out(0, simd_inst::vsqz(in_({_t}, 0), mask, MODE_STORED));")
for _t in ("uint8_t", "bfloat16_t", "uint32_t"):
    _u = {"uint8_t": "uint8_t", "bfloat16_t": "uint16_t", "uint32_t": "uint32_t"}[_t]
    snippets.add(f"vselr-{_t}", f"out(0, simd_inst::vselr(in_({_t}, 0), in_({_u}, 1)));")
for _t in ("int8_t", "uint16_t", "int32_t"):
    snippets.add(f"vusqz-{_t}", f"out(0, simd_inst::vusqz<{_t}>(mask));")
snippets.add(
    "vpack-32",
    "out(0, simd_inst::vpack<uint16_t>(in_(uint32_t, 0), LOWER)); out(1, simd_inst::vpack<uint16_t>(in_(uint32_t, 0), HIGHER));",
)
snippets.add(
    "vpack-16",
    "out(0, simd_inst::vpack<uint8_t>(in_(uint16_t, 0), LOWER)); out(1, simd_inst::vpack<uint8_t>(in_(uint16_t, 0), HIGHER));",
)
UNPACKS = [("int8_t", "int16_t"), ("uint8_t", "uint16_t"), ("int16_t", "int32_t"), ("uint16_t", "uint32_t")]
for _s, _d in UNPACKS:
    snippets.add(
        f"vunpack-{_s}",
        f"out(0, simd_inst::vunpack(in_({_s}, 0), LOWER)); out(1, simd_inst::vunpack(in_({_s}, 0), HIGHER));",
    )


@pytest.mark.parametrize("ctype", WIDTHS)
def test_interleave(ctype):
    def mixed(mask, _, a, b, *rest):
        both = np.stack([a, b], axis=1).reshape(-1)
        return both[: len(a)], both[len(a) :]

    check(f"vintlv-{ctype}", ctype, mixed, registers=2)
    check(
        f"vdintlv-{ctype}",
        ctype,
        lambda mask, _, a, b, *rest: (np.concatenate([a, b])[::2], np.concatenate([a, b])[1::2]),
        registers=2,
    )


@pytest.mark.parametrize("ctype", WIDTHS)
def test_squeeze(ctype):
    def expected(mask, _, a, *rest):
        kept = a[model.active(mask, ctype)]
        return np.concatenate([kept, np.zeros(len(a) - len(kept), a.dtype)])

    check(f"vsqz-{ctype}", ctype, expected)


@pytest.mark.parametrize("ctype", ["uint8_t", "bfloat16_t", "uint32_t"])
def test_select_lanes_by_index(ctype):
    def expected(mask, _, a, b, *rest):
        return a[b.view(f"uint{8 * b.itemsize}").astype(np.int64) % len(a)]

    check(f"vselr-{ctype}", ctype, expected)


@pytest.mark.parametrize("ctype", ["int8_t", "uint16_t", "int32_t"])
def test_unsqueeze_counts_the_active_lanes_below(ctype):
    def expected(mask, _, a, *rest):
        flags = model.active(mask, ctype)
        return np.concatenate([[0], np.cumsum(flags)[:-1]]).astype(a.dtype)

    check(f"vusqz-{ctype}", ctype, expected)


@pytest.mark.parametrize(
    "name, source, target", [("vpack-32", "uint32_t", "uint16_t"), ("vpack-16", "uint16_t", "uint8_t")]
)
def test_pack(name, source, target):
    def expected(mask, _, a, *rest):
        low = a.astype(model.DTYPES[target])
        return np.concatenate([low, np.zeros_like(low)]), np.concatenate([np.zeros_like(low), low])

    check(name, source, expected, target, registers=2)


@pytest.mark.parametrize("source, target", UNPACKS)
def test_unpack(source, target):
    def expected(mask, _, a, *rest):
        half = len(a) // 2
        return a[:half].astype(model.DTYPES[target]), a[half:].astype(model.DTYPES[target])

    check(f"vunpack-{source}", source, expected, target, registers=2)


# Histograms.

for _bin in (0, 1):
    for _op in ("dhistv2", "chistv2"):
        snippets.add(
            f"{_op}-{_bin}",
            f"auto d = in_(uint16_t, 1); simd_inst::{_op}(&d, in_(uint8_t, 0), mask, Bin_N{_bin}); out(0, d);",
        )


@pytest.mark.parametrize("op", ["dhistv2", "chistv2"])
@pytest.mark.parametrize("part", [0, 1])
def test_histogram(op, part):
    def expected(mask, _, a, b, *rest):
        counts = np.bincount(a[mask], minlength=256)
        counts = np.cumsum(counts) if op == "chistv2" else counts
        return (b.view(np.uint16) + counts[128 * part : 128 * (part + 1)]).astype(np.uint16)

    check(f"{op}-{part}", "uint8_t", expected, "uint16_t")


# Masks.

PATTERNS = {
    "ALL": lambda i, n: i >= 0,
    "ALLF": lambda i, n: i < 0,
    "VL3": lambda i, n: i < 3,
    "VL16": lambda i, n: i < 16,
    "VL128": lambda i, n: i < 128,
    "M3": lambda i, n: i % 3 == 0,
    "M4": lambda i, n: i % 4 == 0,
    "H": lambda i, n: i < n // 2,
    "Q": lambda i, n: i < n // 4,
}
MASK_WIDTHS = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t"}
for _w in MASK_WIDTHS:
    for _p in PATTERNS:
        snippets.add(f"pset-{_w}-{_p}", f"out_mask(0, asc_create_mask_b{_w}(PAT_{_p}));")
    snippets.add(
        f"plt-{_w}",
        f"uint32_t count = 300 / {_w // 8}; out_mask(0, asc_update_mask_b{_w}(count)); out_mask(1, asc_update_mask_b{_w}(count));",
    )
    snippets.add(
        f"pintlv-{_w}", f"auto p = simd_inst::pintlv_b{_w}(mask, mask2); out_mask(0, p.v0); out_mask(1, p.v1);"
    )
    snippets.add(
        f"pdintlv-{_w}", f"auto p = simd_inst::pdintlv_b{_w}(mask, mask2); out_mask(0, p.v0); out_mask(1, p.v1);"
    )
for _p in ("pand", "por", "pxor", "psel"):
    snippets.add(
        _p,
        f"auto third = simd_inst::vcmp_lt(in_(uint8_t, 0), in_(uint8_t, 1), asc_create_mask_b8(PAT_ALL)); out_mask(0, simd_inst::{_p}(mask, mask2, third)); out_mask(1, third);",
    )
snippets.add("pnot", "out_mask(0, simd_inst::pnot(mask, mask2));")
snippets.add("ppack", "out_mask(0, simd_inst::ppack(mask, LOWER)); out_mask(1, simd_inst::ppack(mask, HIGHER));")
snippets.add("punpack", "out_mask(0, simd_inst::punpack(mask, LOWER)); out_mask(1, simd_inst::punpack(mask, HIGHER));")
snippets.add("movvp-16", "vector_bool p; asc_copy(p, in_(uint16_t, 0), (int16_t)3); out_mask(0, p);")
snippets.add("movvp-32", "vector_bool p; asc_copy(p, in_(uint32_t, 0), (int16_t)31); out_mask(0, p);")


@pytest.mark.parametrize("width", MASK_WIDTHS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_mask_pattern(width, pattern):
    lanes = 2048 // width
    flags = np.array([PATTERNS[pattern](i, lanes) for i in range(lanes)])
    check_masks(f"pset-{width}-{pattern}", "uint8_t", lambda *_: model.lane_mask(flags, MASK_WIDTHS[width]))


@pytest.mark.parametrize("width", MASK_WIDTHS)
def test_update_mask_counts_down(width):
    lanes, count = 2048 // width, 300 // (width // 8)
    first, second = np.arange(lanes) < count, np.arange(lanes) < count - lanes
    check_masks(
        f"plt-{width}", "uint8_t", lambda *_: tuple(model.lane_mask(f, MASK_WIDTHS[width]) for f in (first, second))
    )


@pytest.mark.parametrize("width", MASK_WIDTHS)
def test_interleave_masks(width):
    group = width // 8

    def mixed(p, q, *rest):
        both = np.stack([p.reshape(-1, group), q.reshape(-1, group)], axis=1).reshape(-1)
        return both[:256], both[256:]

    def split(p, q, *rest):
        both = np.concatenate([p, q]).reshape(-1, 2, group)
        return both[:, 0].reshape(-1), both[:, 1].reshape(-1)

    check_masks(f"pintlv-{width}", "uint8_t", mixed)
    check_masks(f"pdintlv-{width}", "uint8_t", split)


@pytest.mark.parametrize("op", ["pand", "por", "pxor", "psel"])
def test_mask_logic(op):
    def expected(p, q, a, b, *rest):
        third = a < b
        result = {
            "pand": p & q & third,
            "por": (p | q) & third,
            "pxor": (p ^ q) & third,
            "psel": np.where(third, p, q),
        }[op]
        return result, third

    check_masks(op, "uint8_t", expected)


def test_mask_not_pack_and_unpack():
    check_masks("pnot", "uint8_t", lambda p, q, *rest: ~p & q)
    none = np.zeros(128, bool)
    check_masks(
        "ppack", "uint8_t", lambda p, q, *rest: (np.concatenate([p[::2], none]), np.concatenate([none, p[::2]]))
    )

    def spread(bits):
        out = np.zeros(256, bool)
        out[::2] = bits
        return out

    check_masks("punpack", "uint8_t", lambda p, q, *rest: (spread(p[:128]), spread(p[128:])))


@pytest.mark.parametrize("name, lane, part", [("movvp-16", 2, 3), ("movvp-32", 4, 31)])
def test_mask_from_register_bits(name, lane, part):
    def expected(p, q, a, *rest):
        size = 32 // lane
        return np.repeat(model.mask_bits(a[part * size : (part + 1) * size]), lane)

    check_masks(name, "uint8_t", expected)


# Loads and stores.

LOADS = {
    "vlds_norm": (("uint8_t", "half", "float", "int64_t"), lambda d: d[: 256 // d.itemsize]),
    "vlds_brc_elem": (("uint8_t", "bfloat16_t", "float"), lambda d: np.full(256 // d.itemsize, d[0])),
    "vlds_upsample": (("uint8_t", "half"), lambda d: np.repeat(d[: 128 // d.itemsize], 2)),
    "vlds_downsample": (("uint8_t", "half"), lambda d: d[: 512 // d.itemsize : 2]),
    "vlds_unpack": (
        ("uint8_t", "bfloat16_t", "float"),
        lambda d: np.stack([d[: 128 // d.itemsize], np.zeros(128 // d.itemsize, d.dtype)], 1).reshape(-1),
    ),
    "vlds_unpack4": (
        ("uint8_t", "float8_e4m3_t"),
        lambda d: np.pad(d.view(np.uint8)[:64, None], ((0, 0), (0, 3))).reshape(-1).view(d.dtype),
    ),
    "vlds_brc_datablock": (("uint8_t", "half", "float"), lambda d: np.tile(d[: 32 // d.itemsize], 8)),
    "vlds_brc_elem2datablock": (("half", "float"), lambda d: np.repeat(d[:8], 32 // d.itemsize)),
}
LOAD_CASES = [
    (
        snippets.add(
            f"{op}-{t}",
            f"out(0, simd_inst::{op}<{t}>((__ubuf__ {t}*)src, 0)); auto p = simd_inst::{op}_postupdate<{t}>((__ubuf__ {t}*)src, 64); out(1, p.v0); out(2, simd_inst::{op}<{t}>(p.v1, 0));",
        ),
        f,
        t,
    )
    for op, (types, f) in LOADS.items()
    for t in types
]


@pytest.mark.parametrize("name, f, ctype", LOAD_CASES, ids=[c[0] for c in LOAD_CASES])
def test_load(name, f, ctype):
    def expected(mask, mask2, *registers):
        data = np.concatenate(registers)
        return f(data), f(data), f(data[64:])

    check(name, ctype, expected, registers=3)


for _t, _d in (("uint8_t", "DINTLV_B8"), ("bfloat16_t", "DINTLV_B16"), ("float", "DINTLV_B32")):
    snippets.add(
        f"vld_x2-{_t}", f"auto p = simd_inst::vld_x2<{_t}>((__ubuf__ {_t}*)src, {_d}); out(0, p.v0); out(1, p.v1);"
    )
snippets.add(
    "vsldb", "vector_f32 r; asc_loadalign(r, (__ubuf__ float*)src, (uint16_t)3, (uint16_t)0, mask); out(0, r);"
)
snippets.add(
    "vldus",
    "vector_load_unalign u; vector_f16 r; __ubuf__ half* p = (__ubuf__ half*)(src + 6); asc_loadunalign_pre(u, p); asc_loadunalign(r, u, p); out(0, r); asc_loadunalign_pre(u, p); asc_loadunalign_postupdate(r, u, p, 100); asc_loadunalign_postupdate(r, u, p, 1); out(1, r);",
)


@pytest.mark.parametrize("ctype", ["uint8_t", "bfloat16_t", "float"])
def test_deinterleaving_load(ctype):
    check(
        f"vld_x2-{ctype}",
        ctype,
        lambda mask, _, a, b, *rest: (np.concatenate([a, b])[::2], np.concatenate([a, b])[1::2]),
        registers=2,
    )


def test_strided_load():
    def expected(mask, _, *registers):
        data = np.concatenate(registers).reshape(-1, 8)
        return model.zeroed(data[[3 * k for k in range(8)]].reshape(-1), mask, "float")

    check("vsldb", "float", expected)


def test_unaligned_load():
    def expected(mask, _, *registers):
        data = np.concatenate(registers)
        return data[3:131], data[103:231]

    check("vldus", "half", expected, registers=2)


STORES = {
    "vsts_norm": (("uint8_t", "bfloat16_t", "float"), 1),
    "vsts_pack_b16": (("half", "uint16_t"), 2),
    "vsts_pack_b32": (("float", "bfloat16_t"), 2),
    "vsts_pack_quarter": (("uint32_t", "float", "float8_e4m3_t"), 4),
}
STORE_CASES = [
    (snippets.add(f"{op}-{t}", f"simd_inst::{op}<{t}>(in_({t}, 0), (__ubuf__ {t}*)(dst + 512), 0, mask);"), op, t, part)
    for op, (types, part) in STORES.items()
    for t in types
]


@pytest.mark.parametrize("name, op, ctype, part", STORE_CASES, ids=[c[0] for c in STORE_CASES])
def test_store(name, op, ctype, part):
    width = {"vsts_norm": model.DTYPES[ctype].itemsize, "vsts_pack_b16": 2}.get(op, 4)

    @examples
    @given(records(ctype))
    def run(record):
        masks, data = record
        _, out = snippets.run(name, masks, data)
        for i in range(len(data)):
            expected = data[i].copy()
            size = width // part
            values = data[i, :256].reshape(-1, width)[:, :size]
            flags = masks[i, 0][::width]
            target = expected[512 : 512 + 256 // part].reshape(-1, size)
            target[flags] = values[flags]
            np.testing.assert_array_equal(out[i], expected)

    run()


snippets.add("vsts_1st", "simd_inst::vsts_1st<half>(in_(half, 0), (__ubuf__ half*)(dst + 514), 0, mask);")
snippets.add("vsts_intlv", "asc_storealign_intlv((__ubuf__ half*)(dst + 512), in_(half, 0), in_(half, 1));")
snippets.add(
    "vsstb",
    "simd_inst::vsstb<half>(in_(half, 0), (__ubuf__ half*)(dst + 256), (3 << 16) | 1, mask); auto p = simd_inst::vsstb<half>(in_(half, 1), (__ubuf__ half*)dst, (1 << 16) | 8, mask2, POST_UPDATE); simd_inst::mem_bar(VST_VST); simd_inst::vsts_1st<half>(in_(half, 2), p, 0, mask);",
)
snippets.add(
    "vstus",
    "vector_store_unalign u; __ubuf__ half* p = (__ubuf__ half*)(dst + 262); asc_storeunalign_postupdate(p, u, in_(half, 0), 5u); asc_storeunalign_postupdate(p, u, in_(half, 1), 2u); asc_storeunalign_postupdate(p, u, in_(half, 2), 100u); asc_storeunalign_post(p, u);",
)
snippets.add(
    "pst",
    "psts_pack(mask, (__ubuf__ uint32_t*)dst, 0); out_mask(0, plds_upsample((__ubuf__ uint32_t*)src, 0)); out_mask(1, plds_downsample((__ubuf__ uint32_t*)src, 0));",
)


def check_memory(name: str, ctype: str, expected) -> None:
    """`expected(record bytes, mask, mask2)` changes the output record's data in place."""

    @examples
    @given(records(ctype))
    def run(record):
        masks, data = record
        _, out = snippets.run(name, masks, data)
        for i in range(len(data)):
            wanted = data[i].copy()
            expected(wanted, data[i], masks[i, 0], masks[i, 1])
            np.testing.assert_array_equal(out[i], wanted)

    run()


def test_store_of_one_element():
    def expected(out, data, mask, mask2):
        out[514:516] = data[:2]

    check_memory("vsts_1st", "half", expected)


def test_interleaving_store():
    def expected(out, data, mask, mask2):
        out[512:1024] = (
            np.stack([data[:256].view(np.uint16), data[256:512].view(np.uint16)], 1).reshape(-1).view(np.uint8)
        )

    check_memory("vsts_intlv", "half", expected)


def test_block_strided_store():
    def store(out, at, data, stride, mask):
        flags = model.active(mask, "half")
        for block in range(8):
            target = out[at + 32 * stride * block :][:32].view(np.uint16)
            chosen = flags[16 * block : 16 * (block + 1)]
            target[chosen] = data[32 * block : 32 * (block + 1)].view(np.uint16)[chosen]

    def expected(out, data, mask, mask2):
        store(out, 256, data[:256], 3, mask)
        store(out, 0, data[256:512], 1, mask2)
        out[256:258] = data[512:514]

    check_memory("vsstb", "half", expected)


def test_unaligned_store_continues_where_the_last_one_ended():
    def expected(out, data, mask, mask2):
        out[262:272], out[272:276], out[276:476] = data[:10], data[256:260], data[512:712]

    check_memory("vstus", "half", expected)


def test_mask_loads_and_stores():
    def expected(out, data, mask, mask2):
        out[:16] = model.pack_mask(mask[::2])

    check_memory("pst", "uint8_t", expected)
    check_masks(
        "pst", "uint8_t", lambda p, q, a, *rest: (np.repeat(model.mask_bits(a[:16]), 2), model.mask_bits(a[:64])[::2])
    )


# Gather and scatter. Indices are kept inside the data of the record.

GATHERS = [
    ("uint8_t", "uint16_t", "uint16_t"),
    ("int8_t", "uint16_t", "int16_t"),
    ("half", "uint16_t", "half"),
    ("float", "uint32_t", "float"),
]
for _s, _i, _d in GATHERS:
    snippets.add(
        f"vgather2-{_s}",
        f"auto i = in_({_i}, 3); i = simd_inst::vand(i, simd_inst::vdup<{_i}>(63, asc_create_mask_b{'16' if _i == 'uint16_t' else '32'}(PAT_ALL), MODE_ZEROING), asc_create_mask_b{'16' if _i == 'uint16_t' else '32'}(PAT_ALL), MODE_ZEROING); out(0, simd_inst::vgather2((__ubuf__ {_s}*)src, i, mask));",
    )
snippets.add(
    "vgatherb",
    "auto all = asc_create_mask_b32(PAT_ALL); auto i = simd_inst::vand(in_(uint32_t, 3), simd_inst::vdup<uint32_t>(0x1e0, all, MODE_ZEROING), all, MODE_ZEROING); out(0, simd_inst::vgatherb<half>((__ubuf__ half*)src, i, mask)); out(1, simd_inst::vgatherb<half>((__ubuf__ half*)src, i));",
)
# Distinct indices: a permutation by an odd multiplier.
for _t, _i in (("uint8_t", "uint16_t"), ("bfloat16_t", "uint16_t"), ("float", "uint32_t")):
    _n = 64 if _t == "float" else 128
    _m = f"asc_create_mask_b{'32' if _t == 'float' else '16'}(PAT_ALL)"
    snippets.add(
        f"vscatter-{_t}",
        f"vector_{'s32' if _t == 'float' else 's16'} r; asc_arange(r, 0); auto i = ({'vector_u32' if _t == 'float' else 'vector_u16'}&)r; i = simd_inst::vand(simd_inst::vmuls(i, 37, {_m}, MODE_ZEROING), simd_inst::vdup<{_i}>({_n - 1}, {_m}, MODE_ZEROING), {_m}, MODE_ZEROING); simd_inst::vscatter<{_t}>(in_({_t}, 0), (__ubuf__ {_t}*)(dst + 512), i, mask);",
    )


@pytest.mark.parametrize("source, index, target", GATHERS)
def test_gather(source, index, target):
    def expected(mask, _, *registers):
        data = np.concatenate(registers)
        at = registers[3].view(model.DTYPES[index]) & 63
        values = (
            data[at]
            .view(f"uint{8 * data.itemsize}")
            .astype(f"uint{8 * model.DTYPES[target].itemsize}")
            .view(model.DTYPES[target])
        )
        return model.zeroed(values, mask, target)

    check(f"vgather2-{source}", source, expected, target)


def test_gather_blocks():
    def expected(mask, _, *registers):
        data = np.concatenate(registers)
        at = (registers[3].view(np.uint32)[:8] & 0x1E0) // 2
        values = np.concatenate([data[i : i + 16] for i in at])
        return model.zeroed(values, mask, "half"), values

    check("vgatherb", "half", expected, registers=2)


@pytest.mark.parametrize("ctype", ["uint8_t", "bfloat16_t", "float"])
def test_scatter(ctype):
    def expected(out, data, mask, mask2):
        size, count = model.DTYPES[ctype].itemsize, 64 if ctype == "float" else 128
        step = 256 // count
        values = data[:256].reshape(count, step)[:, :size]
        at = (np.arange(count) * 37) % count
        flags = mask[::step]
        out[512 : 512 + count * size].reshape(count, size)[at[flags]] = values[flags]

    check_memory(f"vscatter-{ctype}", ctype, expected)


# Conversions.

R5 = "RAFCZ"
FLOAT_TO_INT = [
    ("float", "int64_t", True),
    ("float", "int32_t", True),
    ("float", "int16_t", True),
    ("half", "int32_t", False),
    ("half", "int16_t", True),
    ("half", "int8_t", True),
    ("half", "uint8_t", True),
    ("bfloat16_t", "int32_t", True),
]
PARTS = {2: ("PART_EVEN", "PART_ODD"), 4: ("PART_P0", "PART_P1", "PART_P2", "PART_P3")}


def conversion(source: str, target: str, controls: str) -> list[tuple]:
    """Snippets for every combination of the controls; `controls` is a template in which R, S and P stand for the constants."""
    a, b = model.DTYPES[source].itemsize, model.DTYPES[target].itemsize
    ratio = max(a, b) // min(a, b)
    rows = []
    for mode in controls.split("|")[1] if "R" in controls else "R":
        for saturate in (False, True) if "S" in controls.split("|")[0] else (False,):
            for part in range(ratio):
                words = {
                    "R": f"ROUND_{mode}",
                    "S": "RS_ENABLE" if saturate else "RS_DISABLE",
                    "P": PARTS[ratio][part] if ratio > 1 else "",
                    "M": "MODE_ZEROING",
                }
                arguments = ", ".join(words[letter] for letter in controls.split("|")[0])
                name = f"vcvt-{source}-{target}-{arguments.replace(', ', '-')}"
                snippets.add(name, f"out(0, simd_inst::vcvt<{target}>(in_({source}, 0), mask, {arguments}));")
                rows.append((name, source, target, mode, saturate, part, ratio))
    return rows


CONVERSIONS = [
    *(
        row
        for s, t, sat in FLOAT_TO_INT
        for row in conversion(
            s,
            t,
            ("RS" if sat else "R") + ("P" if model.DTYPES[s].itemsize != model.DTYPES[t].itemsize else "") + "M|" + R5,
        )
    ),
    *conversion("float", "half", "RSPM|" + R5 + "O"),
    *conversion("float", "bfloat16_t", "RSPM|" + R5),
    *conversion("float", "float8_e4m3_t", "RSPM|R"),
    *conversion("float", "float8_e5m2_t", "RSPM|R"),
    *conversion("half", "bfloat16_t", "RM|" + R5),
    *conversion("bfloat16_t", "half", "SRM|" + R5),
    *(row for s in ("half", "bfloat16_t", "float8_e4m3_t", "float8_e5m2_t") for row in conversion(s, "float", "PM")),
    *(
        row
        for s, t in (("int8_t", "half"), ("uint8_t", "half"), ("int16_t", "float"))
        for row in conversion(s, t, "PM")
    ),
    *conversion("int16_t", "half", "RM|" + R5),
    *conversion("int32_t", "float", "RM|" + R5),
    *conversion("int64_t", "float", "RPM|" + R5),
    *(
        row
        for s, t in (
            ("int32_t", "int64_t"),
            ("int16_t", "int32_t"),
            ("int16_t", "uint32_t"),
            ("uint16_t", "uint32_t"),
            ("int8_t", "int16_t"),
            ("int8_t", "int32_t"),
            ("uint8_t", "uint16_t"),
            ("uint8_t", "uint32_t"),
        )
        for row in conversion(s, t, "PM")
    ),
    *(
        row
        for s, t in (
            ("int32_t", "int16_t"),
            ("int32_t", "uint16_t"),
            ("int32_t", "uint8_t"),
            ("uint32_t", "int16_t"),
            ("uint32_t", "uint16_t"),
            ("uint32_t", "uint8_t"),
            ("int16_t", "uint8_t"),
            ("uint16_t", "uint8_t"),
            ("int64_t", "int32_t"),
        )
        for row in conversion(s, t, "SPM")
    ),
]


def convert(values: np.ndarray, source: str, target: str, mode: str, saturate: bool) -> np.ndarray:
    from_int, to_int = values.dtype.kind in "iu", model.DTYPES[target].kind in "iu"
    with np.errstate(all="ignore"):
        if from_int and to_int:
            wider_unsigned = model.DTYPES[target].itemsize > values.itemsize and target.startswith("u")
            return model.int_to_int(values, target, saturate or wider_unsigned)
        if from_int:
            return (
                model.int_to_f32(values, mode)
                if target == "float"
                else model.narrow_float(values.astype(np.float64), target, mode)
            )
        if to_int:
            return model.float_to_int(values.astype(np.float64), target, mode, saturate)
        if target == "float":
            return values.astype(np.float32)
        return model.narrow_float(values.astype(np.float64), target, mode, saturate)


def place(values: np.ndarray, source: str, target: str, mask: np.ndarray, part: int, ratio: int, f) -> np.ndarray:
    """Applies f to the lanes that a conversion reads and puts the results into the lanes that it writes."""
    source_size, target_size = model.DTYPES[source].itemsize, model.DTYPES[target].itemsize
    flags = model.active(mask, source)
    if source_size < target_size:
        values, flags = values[part::ratio], flags[part::ratio]
    result = f(values)
    result[~flags] = np.zeros(1, result.dtype)[0]
    if source_size > target_size:
        spread = np.zeros(256 // target_size, result.dtype)
        spread[part::ratio] = result
        return spread
    return result


@pytest.mark.parametrize(
    "name, source, target, mode, saturate, part, ratio", CONVERSIONS, ids=[c[0] for c in CONVERSIONS]
)
def test_conversion(name, source, target, mode, saturate, part, ratio):
    check(
        name,
        source,
        lambda mask, _, a, *rest: place(
            a, source, target, mask, part, ratio, lambda x: convert(x, source, target, mode, saturate)
        ),
        target,
    )


@pytest.mark.parametrize(
    "source, target", sorted({(c[1], c[2]) for c in CONVERSIONS if model.DTYPES[c[1]].itemsize <= 2})
)
def test_conversion_of_every_code(source, target):
    """8- and 16-bit sources exhaustively, for every rounding mode, saturating and not."""
    dtype = model.DTYPES[source]
    codes = np.arange(1 << 8 * dtype.itemsize).astype(f"uint{8 * dtype.itemsize}")
    if dtype.itemsize == 1:
        codes = np.tile(codes, 4)
    data = np.zeros((max(len(codes) * dtype.itemsize // 256, 1), DATA), np.uint8)
    data[:, :256] = codes.view(np.uint8).reshape(-1, 256)[: len(data)]
    masks = np.ones((len(data), 2, 256), bool)
    for name, s, t, mode, saturate, part, ratio in CONVERSIONS:
        if (s, t) != (source, target):
            continue
        _, out = snippets.run(name, masks, data)
        for i in range(len(data)):
            values = model.lanes(data[i, :256], source)
            expected = place(
                values,
                source,
                target,
                masks[i, 0],
                part,
                ratio,
                lambda x, m=mode, sat=saturate: convert(x, source, target, m, sat),
            )
            assert_same(model.lanes(out[i, :256], target), expected.astype(model.DTYPES[target]), [values])


# 4-bit floats: two of them a byte, made of two bfloat16 lanes.

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E1M2 = np.arange(8) * 0.25
FP4 = {"e2m1": E2M1, "e1m2": E1M2}
for _f in FP4:
    for _part in range(4):
        snippets.add(
            f"from-{_f}-{_part}",
            f"auto s = in_(uint8_t, 0); out(0, simd_inst::vcvt<bfloat16_t>((vector_f4{_f}x2&)s, mask, PART_P{_part}, MODE_ZEROING));",
        )
        for _mode in R5:
            snippets.add(
                f"to-{_f}-{_mode}-{_part}",
                f"out(0, simd_inst::vcvt<float4_{_f}x2_t>(in_(bfloat16_t, 0), mask, ROUND_{_mode}, PART_P{_part}, MODE_ZEROING));",
            )


@pytest.mark.parametrize("form", FP4)
@pytest.mark.parametrize("part", range(4))
def test_conversion_from_4_bit_floats(form, part):
    values = np.concatenate([FP4[form], -FP4[form]])

    def expected(mask, _, a, *rest):
        pairs = a[part::4]
        out = np.stack([values[pairs & 15], values[pairs >> 4]], 1).astype(model.DTYPES["bfloat16_t"])
        out[~mask[part::4]] = 0
        return out.reshape(-1)

    check(f"from-{form}-{part}", "uint8_t", expected, "bfloat16_t")


@pytest.mark.parametrize("form", FP4)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", R5)
def test_conversion_to_4_bit_floats(form, part, mode):
    table = FP4[form]

    def expected(mask, _, a, *rest):
        wide = a.astype(np.float64)
        with np.errstate(all="ignore"):
            finite = np.where(np.isfinite(wide), wide, 0)
            rounded = np.where(
                np.isnan(wide), 0, np.where(np.isinf(wide), wide, model.round_to_format(finite, form, mode))
            )
        clipped = np.clip(rounded, -table[-1], table[-1])
        codes = np.array([int(np.flatnonzero(table == abs(x))[0]) for x in clipped])
        codes |= np.where(np.signbit(wide) & ~np.isnan(wide), 8, 0)
        out = np.zeros(256, np.uint8)
        out[part::4] = np.where(mask[::4], codes[::2] | codes[1::2] << 4, 0)
        return out

    check(f"to-{form}-{mode}-{part}", "bfloat16_t", expected, "uint8_t")


INTEGRAL = {"asc_rint": "R", "asc_round": "A", "asc_floor": "F", "asc_ceil": "C", "asc_trunc": "Z"}
for _op in INTEGRAL:
    for _t in model.FLOATS:
        snippets.add(f"{_op}-{_t}", f"auto r = in_({_t}, 1); {_op}(r, in_({_t}, 0), mask); out(0, r);")


@pytest.mark.parametrize("op", INTEGRAL)
@pytest.mark.parametrize("ctype", model.FLOATS)
def test_round_to_integral(op, ctype):
    def expected(mask, _, a, *rest):
        with np.errstate(all="ignore"):
            wide = a.astype(np.float64)
            return model.zeroed(np.copysign(model.to_integral(wide, INTEGRAL[op]), wide), mask, ctype)

    check(f"{op}-{ctype}", ctype, expected)


# What does not exist does not compile, and what is wrong is reported.

_ALONE = """
#include <tl_templates/ascend/common.h>
__simd_vf__ inline void vf(__ubuf__ uint8_t* ub) {{
  auto mask = asc_create_mask_b32(PAT_ALL);
  {body}
}}
extern "C" __global__ __vector__ void kernel(__gm__ uint8_t* x) {{
  asc_init();
  __ubuf__ uint8_t* ub = (__ubuf__ uint8_t*)0;
  asc_copy_gm2ub_align(ub, x, 1, 2048, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), 2048, 2048);
  asc_sync();
  vf(ub);
  asc_sync();
  asc_copy_ub2gm_align(x, ub, 1, 2048, static_cast<asc_store_l2_cache_mode>(0), 2048, 2048);
}}
"""

UNSUPPORTED = {
    "asc_update_addr_reg_b32": "auto offset = asc_update_addr_reg_b32(64u);",
    "asc_add": "vector_s64 a, b; asc_add(a, a, b, mask);",
    "asc_storealign_intlv": "auto a = simd_inst::vlds_norm<float>((__ubuf__ float*)ub, 0); simd_inst::vsts_intlv<float>(a, (__ubuf__ float*)ub, 0, mask);",
    "vcvt": "auto a = simd_inst::vlds_norm<half>((__ubuf__ half*)ub, 0); simd_inst::vcvt<float8_e5m2_t>(a, mask, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);",
    "asc_create_mask_b64": "auto wide = asc_create_mask_b64(PAT_ALL);",
    "asc_reduce_sum": "auto a = simd_inst::vlds_norm<int8_t>((__ubuf__ int8_t*)ub, 0); simd_inst::vcadd(a, mask, MODE_ZEROING);",
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_instruction_is_a_compile_error_that_names_it(name):
    import ascend_sim

    with pytest.raises(ascend_sim.CompileError, match=name):
        ascend_sim.compile(_ALONE.format(body=UNSUPPORTED[name]))


WRONG = {
    "misaligned": "auto a = simd_inst::vlds_norm<float>((__ubuf__ float*)(ub + 16), 0); simd_inst::vsts_norm<float>(a, (__ubuf__ float*)ub, 0, mask);",
    "out-of-bounds": "auto a = simd_inst::vlds_norm<float>((__ubuf__ float*)ub, 0); simd_inst::vsts_norm<float>(a, (__ubuf__ float*)(ub + 262144 - 128), 0, mask);",
    "uninitialised": "auto a = simd_inst::vlds_norm<float>((__ubuf__ float*)(ub + 4096), 0); a = simd_inst::vadds(a, 1.0f, mask, MODE_ZEROING); simd_inst::vsts_norm<float>(a, (__ubuf__ float*)ub, 0, mask);",
    "argument": "auto a = simd_inst::vdup<int32_t>(0, mask, MODE_ZEROING); simd_inst::vsts_norm<int32_t>(simd_inst::vdiv(a, a, mask, MODE_ZEROING), (__ubuf__ int32_t*)ub, 0, mask);",
}


@pytest.mark.parametrize("code", WRONG)
def test_wrong_access_is_reported(code):
    import ascend_sim

    kernels = ascend_sim.compile(_ALONE.format(body=WRONG[code]))
    with pytest.raises(ascend_sim.KernelError, match=code):
        ascend_sim.launch(kernels, "kernel", 1, np.zeros(2048, np.uint8))


def test_undefined_lanes_that_are_masked_out_are_no_error():
    import ascend_sim

    body = """
  auto low = asc_create_mask_b32(PAT_VL8);
  auto a = simd_inst::vlds_norm<float>((__ubuf__ float*)(ub + 2048 - 32), 0);  // only its first 8 lanes were written
  auto sum = simd_inst::vcadd(simd_inst::vadds(a, 1.0f, mask, MODE_ZEROING), low, MODE_ZEROING);
  simd_inst::vsts_norm<float>(sum, (__ubuf__ float*)ub, 0, mask);
  simd_inst::vsts_norm<float>(a, (__ubuf__ float*)(ub + 256), 0, low);"""
    kernels = ascend_sim.compile(_ALONE.format(body=body))
    data = np.arange(512, dtype=np.float32)
    expected = data.copy()
    expected[:64] = 0
    expected[0] = (data[504:] + 1).sum()
    expected[64:72] = data[504:]
    ascend_sim.launch(kernels, "kernel", 1, data.view(np.uint8))
    np.testing.assert_array_equal(data, expected)


def test_instructions_are_counted_by_kind():
    import ascend_sim

    masks, data = np.ones((3, 2, 256), bool), np.zeros((3, DATA), np.uint8)
    snippets.run("vadd-float-zeroing", masks, data)
    kinds = ascend_sim.trace().cores[0].kinds
    assert kinds["vadd"] == (3, 3 * 64)
    assert kinds["vld"][0] == 2 * 3
    assert kinds["vst"][0] == 3
