"""An independent NumPy model of the vector unit's number formats and lane rules."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {
    "float": np.dtype(np.float32),
    "half": np.dtype(np.float16),
    "bfloat16_t": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3_t": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2_t": np.dtype(ml_dtypes.float8_e5m2),
    **{f"{sign}int{bits}_t": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
FLOATS = ("float", "half", "bfloat16_t")
INTS = ("int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t")
NUMBERS = INTS + FLOATS


def lanes(data: np.ndarray, ctype: str) -> np.ndarray:
    """The lanes of a 256-byte register, from its bytes."""
    return np.ascontiguousarray(data).view(DTYPES[ctype])


def raw(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8)


def mask_bits(data: np.ndarray) -> np.ndarray:
    """The 256 bits of a mask register, from its 32 bytes."""
    return np.unpackbits(data, bitorder="little").astype(bool)


def pack_mask(bits: np.ndarray) -> np.ndarray:
    return np.packbits(np.asarray(bits, bool), bitorder="little")


def active(mask: np.ndarray, ctype: str) -> np.ndarray:
    """Which lanes a mask's bits select: the lowest bit of each lane counts."""
    return mask[:: DTYPES[ctype].itemsize]


def lane_mask(flags: np.ndarray, ctype: str) -> np.ndarray:
    """Mask bits with one bit a lane."""
    bits = np.zeros(256, bool)
    bits[:: DTYPES[ctype].itemsize] = flags
    return bits


def zeroed(values: np.ndarray, mask: np.ndarray, ctype: str) -> np.ndarray:
    """Values in active lanes, zero bits elsewhere."""
    out = values.astype(DTYPES[ctype], copy=True)
    out[~active(mask, ctype)] = np.zeros(1, DTYPES[ctype])[0]
    return out


def merged(old: np.ndarray, values: np.ndarray, mask: np.ndarray, ctype: str) -> np.ndarray:
    out = old.copy()
    out[active(mask, ctype)] = values.astype(DTYPES[ctype])[active(mask, ctype)]
    return out


def to_integral(values: np.ndarray, mode: str) -> np.ndarray:
    """Rounds float64 values to integers; modes are those of the ROUND_ constants."""
    if mode == "R":
        return np.rint(values)
    if mode == "F":
        return np.floor(values)
    if mode == "C":
        return np.ceil(values)
    if mode == "Z":
        return np.trunc(values)
    if mode == "A":
        whole = np.trunc(values)
        return whole + np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0.0)
    if mode == "O":
        whole = np.trunc(values)
        odd = np.where(np.fmod(whole, 2) == 0, np.where(np.signbit(values), -1.0, 1.0), 0.0)
        return whole + np.where(values == whole, 0.0, odd)
    raise ValueError(mode)


# mantissa bits, smallest normal exponent, largest finite value
_FORMATS = {
    "half": (10, -14, 65504.0),
    "bfloat16_t": (7, -126, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    "float8_e4m3_t": (3, -6, 448.0),
    "float8_e5m2_t": (2, -14, 57344.0),
    "e2m1": (1, 0, 6.0),
    "e1m2": (2, 0, 1.75),
}


def round_to_format(values: np.ndarray, ctype: str, mode: str) -> np.ndarray:
    """Finite float64 values rounded to multiples of the format's spacing at their magnitude, without a limit above."""
    mantissa, lowest, _ = _FORMATS[ctype]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(values)
        spacing = np.ldexp(1.0, np.maximum(exponent - 1, lowest) - mantissa)
        return to_integral(values / spacing, mode) * spacing


def narrow_float(values: np.ndarray, ctype: str, mode: str = "R", saturate: bool = False) -> np.ndarray:
    """float64 values as a narrower float, exactly as documented for the conversions."""
    dtype = DTYPES[ctype]
    _, _, largest = _FORMATS[ctype]
    wide = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        rounded = np.where(np.isfinite(wide), round_to_format(np.where(np.isfinite(wide), wide, 0), ctype, mode), wide)
        too_big = np.abs(rounded) > largest
        if saturate:
            rounded = np.clip(rounded, -largest, largest)
            rounded = np.where(np.isnan(wide), 0.0, rounded)
        else:
            inward = (mode in "ZO") | ((mode == "F") & (wide > 0)) | ((mode == "C") & (wide < 0))
            beyond = np.where(inward & np.isfinite(wide), np.copysign(largest, wide), np.copysign(np.inf, wide))
            rounded = np.where(too_big, beyond, rounded)
            if ctype == "float8_e4m3_t":
                rounded = np.where(np.isinf(rounded), np.nan, rounded)
        return np.copysign(rounded, np.where(saturate & np.isnan(wide), 1.0, wide)).astype(dtype)


def float_to_int(values: np.ndarray, ctype: str, mode: str, saturate: bool) -> np.ndarray:
    """Rounded, then saturated or cut to the low bits; infinities give the extremes, NaN gives 0."""
    info = np.iinfo(DTYPES[ctype])
    wide = np.asarray(values, np.float64)
    finite = np.isfinite(wide)
    rounded = to_integral(np.where(finite, wide, 0), mode)
    exact = [int(x) for x in rounded] if np.abs(rounded).max(initial=0) >= 2**62 else rounded.astype(np.int64)
    if saturate:
        exact = (
            [min(max(x, info.min), info.max) for x in exact]
            if isinstance(exact, list)
            else exact.clip(info.min, info.max)
        )
    if isinstance(exact, list):
        exact = np.array([x % (1 << 64) for x in exact], np.uint64)
    result = exact.astype(np.uint64).astype(f"uint{info.bits}").view(DTYPES[ctype])
    return np.where(
        finite, result, np.where(np.isnan(wide), 0, np.where(wide > 0, info.max, info.min)).astype(DTYPES[ctype])
    )


def int_to_int(values: np.ndarray, ctype: str, saturate: bool) -> np.ndarray:
    info = np.iinfo(DTYPES[ctype])
    if saturate:
        return values.astype(np.int64).clip(info.min, info.max).astype(DTYPES[ctype])
    return values.astype(DTYPES[ctype])


def int_to_f32(values: np.ndarray, mode: str) -> np.ndarray:
    """Integers rounded to 24 significant bits, in integer arithmetic."""
    out = []
    for value in map(int, values):
        magnitude, drop = abs(value), max(abs(value).bit_length() - 24, 0)
        kept, rest, half = magnitude >> drop, magnitude & ((1 << drop) - 1), (1 << drop) // 2
        up = {
            "R": rest > half or (rest == half and kept & 1),
            "A": rest >= half,
            "F": value < 0,
            "C": value > 0,
            "Z": False,
        }[mode]
        kept += bool(rest and up)
        out.append(float(kept << drop) * (-1 if value < 0 else 1))
    return np.array(out, np.float32)


def arithmetic(op, ctype: str, *operands: np.ndarray) -> np.ndarray:
    """A lane operation: integers wrap, half and bfloat16 compute in float32 and round once."""
    with np.errstate(all="ignore"):
        if ctype in INTS:
            wide = op(*(x.astype(np.int64) for x in operands))
            return wide.astype(DTYPES[ctype])
        return op(*(x.astype(np.float32) for x in operands)).astype(np.float32).astype(DTYPES[ctype])


def flush(values: np.ndarray, ctype: str) -> np.ndarray:
    """Subnormal values of the type become zeros of their sign."""
    smallest = 2.0**-14 if ctype == "half" else 2.0**-126
    wide = values.astype(np.float32)
    return np.where(np.abs(wide) < smallest, np.copysign(np.float32(0), wide), wide)


def tree_sum(values: np.ndarray, flags: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Adds neighbours until one value is left; a lane that is not active contributes nothing."""
    items = [v if f else None for v, f in zip(values.astype(dtype), flags, strict=True)]
    with np.errstate(all="ignore"):
        while len(items) > 1:
            pairs = zip(items[::2], items[1::2], strict=True)
            items = [b if a is None else a if b is None else dtype.type(a + b) for a, b in pairs]
    return dtype.type(0) if items[0] is None else items[0]
