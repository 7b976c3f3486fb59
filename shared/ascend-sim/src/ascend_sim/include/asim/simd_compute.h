// Arithmetic, logic, comparison, reduction and rearrangement of vector registers.
//
// Two spellings: the C API asc_xyz(destination, sources..., mask), which zeroes inactive lanes, and the intrinsic
// ::vxyz(destination, sources..., mask, mode), which zeroes or keeps them.
#pragma once

#include "asim/simd_mask.h"

namespace asim {

template <int M, class T, class F>
ASIM_LANES void lanes1(Vec<T>& destination, const Vec<T>& a, const vector_bool& mask, F f) {
  Vec<T> result;
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = narrow<T>(f(widen<T>(a.v[i])));
  assign<M>(destination, result, mask, a.undefined);
}

template <int M, class T, class S, class F>
ASIM_LANES void lanes2(Vec<T>& destination, const Vec<T>& a, const Vec<S>& b, const vector_bool& mask, F f) {
  Vec<T> result;
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = narrow<T>(f(widen<T>(a.v[i]), widen<S>(b.v[i])));
  assign<M>(destination, result, mask, a.undefined | b.undefined);
}

template <int M, class T, class S, class F>
ASIM_LANES void lanes_scalar(Vec<T>& destination, const Vec<T>& a, S b, const vector_bool& mask, F f) {
  Vec<T> result;
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = narrow<T>(f(widen<T>(a.v[i]), b));
  assign<M>(destination, result, mask, a.undefined);
}

template <class T, class F>
ASIM_LANES void lanes_bits(Vec<T>& destination, const Vec<T>& a, const Vec<T>& b, const vector_bool& mask, F f, bool merge) {
  Vec<T> result;
  auto* out = raw(result);
  for (int i = 0; i < Vec<T>::lanes; ++i) out[i] = f(raw(a)[i], raw(b)[i]);
  if (merge)
    assign<1>(destination, result, mask, a.undefined | b.undefined);
  else
    assign<0>(destination, result, mask, a.undefined | b.undefined);
}

template <class T>
inline vector_bool all_lanes() {
  return leading_lanes<sizeof(T)>(kVectorBytes);
}

// Max and min: a NaN wins, and +0 is above -0.
template <class T>
ASIM_LANE T maximum(T x, T y) {
  if constexpr (!std::is_same_v<T, float>) return x > y ? x : y;
  uint32_t r = f32_bits(x > y ? x : y);
  r = x == y ? f32_bits(x) & f32_bits(y) : r;
  return bits_f32(x != x ? f32_bits(x) : r);
}
template <class T>
ASIM_LANE T minimum(T x, T y) {
  if constexpr (!std::is_same_v<T, float>) return x < y ? x : y;
  uint32_t r = f32_bits(x < y ? x : y);
  r = x == y ? f32_bits(x) | f32_bits(y) : r;
  return bits_f32(x != x ? f32_bits(x) : r);
}

template <class T>
ASIM_LANE T absolute(T x) {
  if constexpr (std::is_same_v<T, float>)
    return bits_f32(f32_bits(x) & 0x7fffffffu);
  else
    return x < 0 ? T(0 - x) : x;
}
template <class T>
ASIM_LANE T negated(T x) {
  if constexpr (std::is_same_v<T, float>)
    return bits_f32(f32_bits(x) ^ 0x80000000u);
  else
    return T(0 - x);
}

// The arithmetic shift left keeps the sign bit. A shift by the width or more leaves nothing, or only signs.
template <class T, class S>
ASIM_LANE T shift_left(T x, S amount) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned width = 8 * sizeof(T);
  const unsigned n = unsigned(amount);
  const U sign = std::is_signed_v<T> ? U(U(x) & (U(1) << (width - 1))) : U(0);
  const U moved = U(uint64_t(U(x)) << (n & (width - 1)));
  const U kept = std::is_signed_v<T> ? U((moved & ~(U(1) << (width - 1))) | sign) : moved;
  return T(n < width ? kept : U(0));
}
template <class T, class S>
ASIM_LANE T shift_right(T x, S amount) {
  constexpr unsigned width = 8 * sizeof(T);
  const unsigned n = unsigned(amount);
  return T(n < width ? x >> (n & (width - 1)) : (x < 0 ? -1 : 0));
}

// The special-function unit takes subnormal numbers for zero and gives none.
template <class T>
ASIM_LANE float flush(float x) {
  constexpr uint32_t smallest_normal = std::is_same_v<T, half> ? 0x38800000u : 0x00800000u;
  const uint32_t word = f32_bits(x);
  return bits_f32((word & 0x7fffffffu) < smallest_normal ? word & 0x80000000u : word);
}

template <class T>
inline bool has_active_zero(const Vec<T>& divisor, const vector_bool& mask) {
  for (int i = 0; i < Vec<T>::lanes; ++i)
    if (divisor.v[i] == 0 && mask.active(i * int(sizeof(T)))) return true;
  return false;
}
template <class T>
ASIM_LANE T quotient(T x, T y) {
  if constexpr (std::is_signed_v<T>)
    if (y == -1) return T(0 - x);
  return y == 0 ? T(0) : T(x / y);
}

// For half a product of two halves is exact in float but the sum is not, see fma_small.
template <class T>
ASIM_LANE typename Vec<T>::Bits multiply_add(typename Vec<T>::Bits a, typename Vec<T>::Bits b, typename Vec<T>::Bits c) {
  if constexpr (std::is_same_v<T, float>) return __builtin_fmaf(a, b, c);
  if constexpr (std::is_same_v<T, half>) return fma_small<kHalf>(widen<T>(a), widen<T>(b), widen<T>(c));
  if constexpr (std::is_same_v<T, bfloat16_t>) return fma_small<kBf16>(widen<T>(a), widen<T>(b), widen<T>(c));
  if constexpr (Ints<T>) return T(T(uint64_t(a) * uint64_t(b)) + c);
}

// destination = a * b + c, where one of the operands is the destination itself.
template <int M, class T>
ASIM_LANES void fused(Vec<T>& destination, const Vec<T>& a, const Vec<T>& b, const Vec<T>& c, const vector_bool& mask) {
  Vec<T> result;
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = multiply_add<T>(a.v[i], b.v[i], c.v[i]);
  assign<M>(destination, result, mask, a.undefined | b.undefined | c.undefined);
}
template <int M, class T>
ASIM_LANES void fused_scalar(Vec<T>& destination, const Vec<T>& a, T scalar, const vector_bool& mask) {
  const auto b = narrow<T>(Wide<T>(scalar));
  Vec<T> result;
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = multiply_add<T>(a.v[i], b, destination.v[i]);
  assign<M>(destination, result, mask, a.undefined | destination.undefined);
}

}  // namespace asim

#define ASIM_COUNT(name, T) asim::count<name>(asim::Pipe::V, asim::Vec<T>::lanes)
#define ASIM_MODE asim::Constant<'M', M>

// One source.
#define ASIM_UNARY(cce, api, Set, expression)                                                               \
  template <int M, Set T>                                                                                   \
  ASIM_FN void cce(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask, ASIM_MODE) { \
    ASIM_COUNT(#cce, T);                                                                                    \
    asim::lanes1<M>(destination, source, mask, [](asim::Wide<T> x) -> asim::Wide<T> { return expression; }); \
  }                                                                                                         \
  template <Set T>                                                                                          \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {        \
    cce(destination, source, mask, MODE_ZEROING);                                                           \
  }
namespace asim {
template <class T>
concept SignedNumbers = SignedInts<T> || HalfOrFloat<T>;
template <class T>
concept ReluTypes = HalfOrFloat<T> || one_of<T, int32_t>;
template <class T>
concept MulTypes = Int16<T> || Int32<T> || Floats<T>;
template <class T>
concept MulScalarTypes = Int16<T> || Int32<T> || HalfOrFloat<T>;
template <class T>
concept WideInts = Int16<T> || Int32<T>;
}  // namespace asim
ASIM_UNARY(vabs, asc_abs, asim::SignedNumbers, asim::absolute(x))
ASIM_UNARY(vneg, asc_neg, asim::SignedNumbers, asim::negated(x))
ASIM_UNARY(vrelu, asc_relu, asim::ReluTypes, (x > 0 || x != x ? x : asim::Wide<T>(0)))
ASIM_UNARY(vexp, asc_exp, asim::HalfOrFloat, asim::flush<T>(asim::exp_f32(asim::flush<T>(x))))
ASIM_UNARY(vln, asc_ln, asim::HalfOrFloat, asim::flush<T>(asim::ln_f32(asim::flush<T>(x))))
ASIM_UNARY(vsqrt, asc_sqrt, asim::HalfOrFloat, __builtin_sqrtf(asim::flush<T>(x)))
#undef ASIM_UNARY

// Two vectors.
#define ASIM_BINARY(cce, api, Set, expression)                                                                              \
  template <int M, Set T>                                                                                                   \
  ASIM_FN void cce(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask, \
                   ASIM_MODE) {                                                                                             \
    ASIM_COUNT(#cce, T);                                                                                                    \
    asim::lanes2<M>(destination, source0, source1, mask,                                                                    \
                    [](asim::Wide<T> x, asim::Wide<T> y) -> asim::Wide<T> { return expression; });                          \
  }                                                                                                                         \
  template <Set T>                                                                                                          \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) { \
    cce(destination, source0, source1, mask, MODE_ZEROING);                                                                 \
  }
ASIM_BINARY(vadd, asc_add, asim::Numbers, asim::Wide<T>(x + y))
ASIM_BINARY(vsub, asc_sub, asim::Numbers, asim::Wide<T>(x - y))
ASIM_BINARY(vmul, asc_mul, asim::MulTypes, asim::Wide<T>(x * y))
ASIM_BINARY(vmax, asc_max, asim::Numbers, asim::maximum(x, y))
ASIM_BINARY(vmin, asc_min, asim::Numbers, asim::minimum(x, y))
ASIM_BINARY(vabsdif, asc_abs_sub, asim::HalfOrFloat, asim::absolute(asim::widen<T>(asim::narrow<T>(x - y))))
ASIM_BINARY(vprelu, asc_prelu, asim::HalfOrFloat, (asim::f32_bits(x) >> 31 ? x * y : x))
#undef ASIM_BINARY

template <int M, asim::HalfOrFloat T>
ASIM_FN void vdiv(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vdiv", T);
  asim::lanes2<M>(destination, source0, source1, mask,
                  [](float x, float y) { return asim::flush<T>(asim::flush<T>(x) / asim::flush<T>(y)); });
}
template <int M, asim::WideInts T>
ASIM_FN void vdiv(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vdiv", T);
  if (asim::has_active_zero(source1, mask)) asim::fail("argument", "asc_div: an active lane divides an integer by zero");
  asim::lanes2<M>(destination, source0, source1, mask, [](T x, T y) { return asim::quotient(x, y); });
}
template <class T>
  requires(asim::HalfOrFloat<T> || asim::WideInts<T>)
ASIM_FN void asc_div(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) {
  vdiv(destination, source0, source1, mask, MODE_ZEROING);
}

// A vector and a scalar of its type.
#define ASIM_SCALAR(cce, api, Set, Scalar, expression)                                                                       \
  template <int M, Set T>                                                                                                    \
  ASIM_FN void cce(asim::Vec<T>& destination, const asim::Vec<T>& source, std::type_identity_t<Scalar> scalar, const vector_bool& mask, \
                   ASIM_MODE) {                                                                                              \
    ASIM_COUNT(#cce, T);                                                                                                     \
    asim::lanes_scalar<M>(destination, source, asim::Wide<Scalar>(scalar), mask,                                             \
                          [](asim::Wide<T> x, asim::Wide<Scalar> y) -> asim::Wide<T> { return expression; });                \
  }                                                                                                                          \
  template <Set T>                                                                                                           \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source, std::type_identity_t<Scalar> scalar, const vector_bool& mask) { \
    cce(destination, source, scalar, mask, MODE_ZEROING);                                                                    \
  }
ASIM_SCALAR(vadds, asc_add_scalar, asim::Numbers, T, asim::Wide<T>(x + y))
ASIM_SCALAR(vmuls, asc_mul_scalar, asim::MulScalarTypes, T, asim::Wide<T>(x * y))
ASIM_SCALAR(vmaxs, asc_max_scalar, asim::Numbers, T, asim::maximum(x, y))
ASIM_SCALAR(vmins, asc_min_scalar, asim::Numbers, T, asim::minimum(x, y))
ASIM_SCALAR(vshls, asc_shiftleft_scalar, asim::Ints, int16_t, asim::shift_left(x, y))
ASIM_SCALAR(vshrs, asc_shiftright_scalar, asim::Ints, int16_t, asim::shift_right(x, y))
ASIM_SCALAR(vlrelu, asc_leakyrelu, asim::HalfOrFloat, T, (asim::f32_bits(x) >> 31 ? x * y : x))
#undef ASIM_SCALAR

// Shift amounts are signed integers of the same width.
#define ASIM_SHIFT(cce, api, function)                                                                                 \
  template <int M, asim::Ints T>                                                                                       \
  ASIM_FN void cce(asim::Vec<T>& destination, const asim::Vec<T>& source, const asim::Vec<std::make_signed_t<T>>& amount, \
                   const vector_bool& mask, ASIM_MODE) {                                                               \
    ASIM_COUNT(#cce, T);                                                                                               \
    asim::lanes2<M>(destination, source, amount, mask, [](T x, std::make_signed_t<T> y) -> T { return function(x, y); }); \
  }                                                                                                                    \
  template <asim::Ints T>                                                                                              \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source, const asim::Vec<std::make_signed_t<T>>& amount, \
                   const vector_bool& mask) {                                                                          \
    cce(destination, source, amount, mask, MODE_ZEROING);                                                              \
  }
ASIM_SHIFT(vshl, asc_shiftleft, asim::shift_left)
ASIM_SHIFT(vshr, asc_shiftright, asim::shift_right)
#undef ASIM_SHIFT

// Bitwise, on the lanes' bits whatever their type.
#define ASIM_BITWISE(cce, api, expression)                                                                                         \
  template <int M, class T>                                                                                                        \
    requires(asim::Elements<T> && !std::is_same_v<T, float8_e8m0_t>)                                                               \
  ASIM_FN void cce(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask, ASIM_MODE) { \
    ASIM_COUNT(#cce, T);                                                                                                           \
    using U = asim::Unsigned<sizeof(T)>;                                                                                           \
    asim::lanes_bits(destination, source0, source1, mask, [](U a, U b) -> U { return expression; }, M == 1);                       \
  }                                                                                                                                \
  template <class T>                                                                                                               \
    requires(asim::Elements<T> && !std::is_same_v<T, float8_e8m0_t>)                                                               \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) { \
    cce(destination, source0, source1, mask, MODE_ZEROING);                                                                        \
  }
ASIM_BITWISE(vand, asc_and, a & b)
ASIM_BITWISE(vor, asc_or, a | b)
ASIM_BITWISE(vxor, asc_xor, a ^ b)
#undef ASIM_BITWISE
template <int M, class T>
  requires(asim::Numbers<T> && !std::is_same_v<T, bfloat16_t>)
ASIM_FN void vnot(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vnot", T);
  using U = asim::Unsigned<sizeof(T)>;
  asim::lanes_bits(destination, source, source, mask, [](U a, U) -> U { return ~a; }, M == 1);
}
template <class T>
  requires(asim::Numbers<T> && !std::is_same_v<T, bfloat16_t>)
ASIM_FN void asc_not(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {
  vnot(destination, source, mask, MODE_ZEROING);
}

// Fused multiply-adds.
template <int M, asim::MulTypes T>
ASIM_FN void vmula(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vmula", T);
  asim::fused<M>(destination, source0, source1, destination, mask);
}
template <int M, asim::Floats T>
ASIM_FN void vmadd(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vmadd", T);
  asim::fused<M>(destination, destination, source0, source1, mask);
}
template <asim::HalfOrFloat T>
ASIM_FN void asc_madd(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) {
  vmadd(destination, source0, source1, mask, MODE_ZEROING);
}
template <int M, asim::HalfOrFloat T>
ASIM_FN void vaxpy(asim::Vec<T>& destination, const asim::Vec<T>& source, std::type_identity_t<T> scalar, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vaxpy", T);
  asim::fused_scalar<M>(destination, source, scalar, mask);
}
template <asim::HalfOrFloat T>
ASIM_FN void asc_axpy(asim::Vec<T>& destination, const asim::Vec<T>& source, std::type_identity_t<T> scalar, const vector_bool& mask) {
  vaxpy(destination, source, scalar, mask, MODE_ZEROING);
}

// exp(a - b). Of halves, the even or the odd lanes, in float.
namespace asim {
template <int first>
ASIM_LANES void exp_difference(Vec<float>& destination, const Vec<half>& a, const Vec<half>& b, const vector_bool& mask) {
  Vec<float> result;
  for (int i = 0; i < 64; ++i)
    result.v[i] = mask.active(4 * i + 2 * first)
                      ? flush<float>(exp_f32(widen<half>(a.v[2 * i + first]) - widen<half>(b.v[2 * i + first])))
                      : 0.0f;
  if constexpr (ASIM_CHECKS) {
    result.undefined = {};
    for (int i = 0; i < 64; ++i) {
      const int byte = 4 * i + 2 * first;
      const ByteMask both = a.undefined | b.undefined;
      if (mask.active(byte) && (test(both, byte) || test(both, byte + 1))) set(result.undefined, 4 * i, 4);
    }
  }
  destination = result;
}
}  // namespace asim
ASIM_FN void asc_exp_sub(vector_f32& destination, const vector_f32& source0, const vector_f32& source1, const vector_bool& mask) {
  ASIM_COUNT("vexpdif", float);
  asim::lanes2<0>(destination, source0, source1, mask, [](float x, float y) { return asim::flush<float>(asim::exp_f32(x - y)); });
}
ASIM_FN void asc_exp_sub(vector_f32& destination, const vector_f16& source0, const vector_f16& source1, const vector_bool& mask) {
  ASIM_COUNT("vexpdif", float);
  asim::exp_difference<0>(destination, source0, source1, mask);
}
ASIM_FN void asc_exp_sub_v2(vector_f32& destination, const vector_f16& source0, const vector_f16& source1, const vector_bool& mask) {
  ASIM_COUNT("vexpdif", float);
  asim::exp_difference<1>(destination, source0, source1, mask);
}

// Carry arithmetic: the carry of a subtraction is set when nothing was borrowed. And the 64-bit product.
namespace asim {
template <bool subtract>
ASIM_LANES void carry_add(vector_bool& carry, Vec<uint32_t>& destination, const Vec<uint32_t>& a, const Vec<uint32_t>& b,
                          const vector_bool& carry_in, const vector_bool& mask) {
  Vec<uint32_t> result;
  vector_bool out{};
  for (int i = 0; i < 64; ++i) {
    const uint64_t sum = uint64_t(a.v[i]) + (subtract ? ~b.v[i] : b.v[i]) + carry_in.active(4 * i);
    result.v[i] = uint32_t(sum);
    out.w[i / 16] |= (sum >> 32) << (i % 16 * 4);
  }
  assign<0>(destination, result, mask, a.undefined | b.undefined);
  for (int i = 0; i < 4; ++i) carry.w[i] = out.w[i] & mask.w[i];
}
}  // namespace asim
ASIM_FN void asc_add(vector_bool& carry, vector_u32& destination, const vector_u32& source0, const vector_u32& source1, const vector_bool& mask) {
  ASIM_COUNT("vaddc", uint32_t);
  asim::carry_add<false>(carry, destination, source0, source1, vector_bool{}, mask);
}
ASIM_FN void asc_addc(vector_bool& carry, vector_u32& destination, const vector_u32& source0, const vector_u32& source1,
                      const vector_bool& carry_in, const vector_bool& mask) {
  ASIM_COUNT("vaddcs", uint32_t);
  asim::carry_add<false>(carry, destination, source0, source1, carry_in, mask);
}
ASIM_FN void asc_sub(vector_bool& carry, vector_u32& destination, const vector_u32& source0, const vector_u32& source1, const vector_bool& mask) {
  ASIM_COUNT("vsubc", uint32_t);
  asim::carry_add<true>(carry, destination, source0, source1, asim::all_lanes<uint32_t>(), mask);
}
ASIM_FN void asc_subc(vector_bool& carry, vector_u32& destination, const vector_u32& source0, const vector_u32& source1,
                      const vector_bool& carry_in, const vector_bool& mask) {
  ASIM_COUNT("vsubcs", uint32_t);
  asim::carry_add<true>(carry, destination, source0, source1, carry_in, mask);
}
template <asim::Int32 T>
ASIM_FN void asc_mull(asim::Vec<T>& low, asim::Vec<T>& high, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) {
  ASIM_COUNT("vmull", T);
  using Product = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  const asim::Vec<T> a = source0, b = source1;
  asim::lanes2<0>(low, a, b, mask, [](T x, T y) { return T(Product(x) * y); });
  asim::lanes2<0>(high, a, b, mask, [](T x, T y) { return T(Product(x) * y >> 32); });
}

// Comparisons. The result has its bit at the lowest byte of each lane.
namespace asim {
template <class T, class F>
ASIM_LANES void compare(vector_bool& destination, const Vec<T>& a, const Vec<T>& b, const vector_bool& mask, F f) {
  constexpr int per_word = 64 / sizeof(T);
  vector_bool result;
  for (int word = 0; word < 4; ++word) {
    uint64_t w = 0;
    for (int i = 0; i < per_word; ++i) {
      const int lane = word * per_word + i;
      w |= uint64_t(f(widen<T>(a.v[lane]), widen<T>(b.v[lane]))) << (i * sizeof(T));
    }
    result.w[word] = w & mask.w[word];
  }
  destination = result;
}
template <class T>
ASIM_LANES Vec<T> splat(T value) {
  Vec<T> result;
  typename Vec<T>::Bits bits;
  memcpy(&bits, &value, sizeof(bits));
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = bits;
  if constexpr (ASIM_CHECKS) result.undefined = {};
  return result;
}
}  // namespace asim
#define ASIM_COMPARE(op, expression)                                                                                               \
  template <asim::Numbers T>                                                                                                       \
  ASIM_FN void asc_##op(vector_bool& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) { \
    ASIM_COUNT("vcmp_" #op, T);                                                                                                    \
    asim::compare(destination, source0, source1, mask, [](asim::Wide<T> x, asim::Wide<T> y) { return expression; });               \
  }                                                                                                                                \
  template <asim::Numbers T>                                                                                                       \
  ASIM_FN void asc_##op##_scalar(vector_bool& destination, const asim::Vec<T>& source, std::type_identity_t<T> scalar, const vector_bool& mask) { \
    ASIM_COUNT("vcmps_" #op, T);                                                                                                   \
    asim::compare(destination, source, asim::splat<T>(scalar), mask, [](asim::Wide<T> x, asim::Wide<T> y) { return expression; }); \
  }
ASIM_COMPARE(eq, x == y)
ASIM_COMPARE(ne, x != y)
ASIM_COMPARE(gt, x > y)
ASIM_COMPARE(ge, x >= y)
ASIM_COMPARE(lt, x < y)
ASIM_COMPARE(le, x <= y)
#undef ASIM_COMPARE

// Selection, broadcast, copies.
namespace asim {
template <class T>
ASIM_LANES void select(Vec<T>& destination, const Vec<T>& a, const Vec<T>& b, const vector_bool& mask) {
  Vec<T> result = a, kept = b;
  assign<1>(kept, result, mask, a.undefined);
  destination = kept;
}
template <int M, class T>
ASIM_LANES void broadcast(Vec<T>& destination, const Vec<T>& source, int lane, const vector_bool& mask) {
  Vec<T> result;
  for (int i = 0; i < Vec<T>::lanes; ++i) result.v[i] = source.v[lane];
  const bool undefined = ASIM_CHECKS && test(spread<sizeof(T)>(source.undefined), lane * int(sizeof(T)));
  assign<M>(destination, result, mask, undefined ? ~kAllDefined : kAllDefined);
}
template <int M, class T>
ASIM_LANES void duplicate(Vec<T>& destination, T value, const vector_bool& mask) {
  Vec<T> result = splat<T>(value);
  assign<M>(destination, result, mask, kAllDefined);
}
}  // namespace asim
template <asim::Elements T>
ASIM_FN void asc_select(asim::Vec<T>& destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, const vector_bool& mask) {
  ASIM_COUNT("vsel", T);
  asim::select(destination, source0, source1, mask);
}
template <asim::Numbers T>
ASIM_FN void asc_copy(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {
  ASIM_COUNT("vmov", T);
  asim::select(destination, source, destination, mask);
}
// A mask from bits packed in a register: `part` counts blocks of as many bits as the type has lanes.
template <class T>
  requires asim::one_of<T, uint16_t, uint32_t>
ASIM_FN void asc_copy(vector_bool& destination, const asim::Vec<T>& source, int16_t part) {
  asim::count<"movvp">(asim::Pipe::V, 256);
  constexpr int bytes = 32 / sizeof(T), parts = asim::kVectorBytes / bytes;
  if (part < 0 || part >= parts) asim::fail("argument", "asc_copy: part must be in [0, %d), got %d", parts, part);
  const uint8_t* data = reinterpret_cast<const uint8_t*>(source.v) + part * bytes;
  destination = asim::make_mask([&](int i) { return data[i / int(sizeof(T)) / 8] >> (i / int(sizeof(T)) % 8) & 1; });
}
template <int M, asim::Elements T>
ASIM_FN void vdup(asim::Vec<T>& destination, std::type_identity_t<T> value, const vector_bool& mask, ASIM_MODE) {
  ASIM_COUNT("vdup", T);
  asim::duplicate<M>(destination, value, mask);
}
template <int M, int highest, asim::Elements T>
ASIM_FN void vdup(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask, asim::Constant<'p', highest>, ASIM_MODE) {
  ASIM_COUNT("vdup", T);
  asim::broadcast<M>(destination, source, highest ? asim::Vec<T>::lanes - 1 : 0, mask);
}
template <asim::Elements T>
ASIM_FN void asc_duplicate_scalar(asim::Vec<T>& destination, std::type_identity_t<T> value, const vector_bool& mask) {
  vdup(destination, value, mask, MODE_ZEROING);
}
template <asim::Elements T>
ASIM_FN void asc_duplicate_scalar(asim::Vec<T>& destination, std::type_identity_t<T> value) {
  vdup(destination, value, asim::all_lanes<T>(), MODE_ZEROING);
}
template <asim::Elements T>
ASIM_FN void asc_duplicate(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {
  vdup(destination, source, mask, POS_LOWEST, MODE_ZEROING);
}
template <asim::Elements T>
ASIM_FN void asc_duplicate_highest(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {
  vdup(destination, source, mask, POS_HIGHEST, MODE_ZEROING);
}

// Ramps. The descending one ends at the given value.
namespace asim {
template <class T>
concept Countable = one_of<T, int8_t, int16_t, int32_t, half, float>;
template <class T>
ASIM_LANES void arange(Vec<T>& destination, T first, bool descending) {
  for (int i = 0; i < Vec<T>::lanes; ++i) destination.v[i] = narrow<T>(Wide<T>(Wide<T>(first) + (descending ? Vec<T>::lanes - 1 - i : i)));
  if constexpr (ASIM_CHECKS) destination.undefined = {};
}
}  // namespace asim
template <asim::Countable T>
ASIM_FN void asc_arange(asim::Vec<T>& destination, std::type_identity_t<T> first) {
  ASIM_COUNT("vci", T);
  asim::arange<T>(destination, first, false);
}
template <asim::Countable T>
ASIM_FN void asc_arange_descend(asim::Vec<T>& destination, std::type_identity_t<T> last) {
  ASIM_COUNT("vci", T);
  asim::arange<T>(destination, last, true);
}

// Reductions. Sums add neighbours, then neighbouring sums, and so on; an inactive lane adds nothing (-0 does that to a float).
namespace asim {
template <class To, class From>
concept SumTypes = (std::is_same_v<To, From> && (HalfOrFloat<To> || Int32<To>)) || (one_of<To, int32_t> && one_of<From, int16_t>) ||
                   (one_of<To, uint32_t> && one_of<From, uint16_t>);
template <class T>
concept Ordered = HalfOrFloat<T> || Int16<T> || Int32<T>;

// A group with an active lane that was never written has an undefined result, of `lanes` lanes.
template <int group, int lanes = 1, class To, class From>
inline void pass_undefined(Vec<To>& result, const Vec<From>& source, const vector_bool& mask) {
  if constexpr (ASIM_CHECKS) {
    const ByteMask bad = source.undefined & active_bytes<sizeof(From)>(mask);
    if (!any(bad)) return;
    for (int i = 0; i < kVectorBytes; ++i)
      if (test(bad, i)) set(result.undefined, i / int(group * sizeof(From)) * int(sizeof(To)), lanes * int(sizeof(To)));
  }
}

// Folds groups of `group` adjacent lanes to one each; the sums land in the lowest lanes, the rest is zero.
template <int group, class To, class From>
ASIM_LANES void sum(Vec<To>& destination, const Vec<From>& source, const vector_bool& mask) {
  constexpr int lanes = Vec<From>::lanes;
  Wide<To> x[lanes];
  for (int i = 0; i < lanes; ++i) {
    const Wide<To> nothing = is_float<To> ? Wide<To>(-0.0f) : Wide<To>(0);
    x[i] = mask.active(i * int(sizeof(From))) ? Wide<To>(widen<From>(source.v[i])) : nothing;
  }
  for (int width = 1; width < group; width *= 2)
    for (int i = 0; i < lanes / (2 * width); ++i) x[i] = widen<To>(narrow<To>(Wide<To>(x[2 * i] + x[2 * i + 1])));
  Vec<To> result;
  memset(static_cast<void*>(&result), 0, sizeof(result));
  for (int i = 0; i < lanes / group; ++i) {
    bool some = false;
    for (int k = 0; k < group; ++k) some |= mask.active((i * group + k) * int(sizeof(From)));
    result.v[i] = narrow<To>(some ? x[i] : Wide<To>(0));
  }
  pass_undefined<group>(result, source, mask);
  destination = result;
}

// The largest (or smallest) lane of each group and, for a group that is the whole register, its index in lane 1.
template <int group, bool largest, class T>
ASIM_LANES void extreme(Vec<T>& destination, const Vec<T>& source, const vector_bool& mask) {
  Vec<T> result;
  memset(static_cast<void*>(&result), 0, sizeof(result));
  for (int g = 0; g < Vec<T>::lanes / group; ++g) {
    Wide<T> best = largest ? std::numeric_limits<Wide<T>>::lowest() : std::numeric_limits<Wide<T>>::max();
    if constexpr (is_float<T>) best = largest ? -__builtin_inff() : __builtin_inff();
    int index = -1;
    for (int k = 0; k < group; ++k) {
      const int lane = g * group + k;
      if (!mask.active(lane * int(sizeof(T)))) continue;
      const Wide<T> x = widen<T>(source.v[lane]);
      if (index >= 0 && best != best) break;  // the first NaN stays
      const bool better = largest ? x > best : x < best;
      if (index < 0 || better || x != x) index = lane;
      best = largest ? maximum(best, x) : minimum(best, x);
    }
    result.v[g] = narrow<T>(best);
    if constexpr (group == Vec<T>::lanes) raw(result)[1] = index < 0 ? 0 : index;
  }
  pass_undefined<group, group == Vec<T>::lanes ? 2 : 1>(result, source, mask);
  destination = result;
}
}  // namespace asim

template <class To, class From>
  requires asim::SumTypes<To, From>
ASIM_FN void asc_reduce_sum(asim::Vec<To>& destination, const asim::Vec<From>& source, const vector_bool& mask) {
  ASIM_COUNT("vcadd", From);
  asim::sum<asim::Vec<From>::lanes>(destination, source, mask);
}
template <class To, class From>
  requires asim::SumTypes<To, From>
ASIM_FN void asc_reduce_sum_datablock(asim::Vec<To>& destination, const asim::Vec<From>& source, const vector_bool& mask) {
  ASIM_COUNT("vcgadd", From);
  asim::sum<asim::kBlockBytes / sizeof(From)>(destination, source, mask);
}
template <asim::HalfOrFloat T>
ASIM_FN void asc_pair_reduce_sum(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {
  ASIM_COUNT("vcpadd", T);
  asim::sum<2>(destination, source, mask);
}
#define ASIM_EXTREME(cce, api, largest, group)                                                              \
  template <asim::Ordered T>                                                                                \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {        \
    ASIM_COUNT(cce, T);                                                                                     \
    asim::extreme<group, largest>(destination, source, mask);                                               \
  }
ASIM_EXTREME("vcmax", asc_reduce_max, true, asim::Vec<T>::lanes)
ASIM_EXTREME("vcmin", asc_reduce_min, false, asim::Vec<T>::lanes)
ASIM_EXTREME("vcgmax", asc_reduce_max_datablock, true, int(asim::kBlockBytes / sizeof(T)))
ASIM_EXTREME("vcgmin", asc_reduce_min_datablock, false, int(asim::kBlockBytes / sizeof(T)))
#undef ASIM_EXTREME

// The intrinsics that merge keep all lanes but those the reduction writes.
template <int M, class To, class From>
  requires asim::SumTypes<To, From>
ASIM_FN void vcadd(asim::Vec<To>& destination, const asim::Vec<From>& source, const vector_bool& mask, ASIM_MODE) {
  asim::Vec<To> result;
  asc_reduce_sum(result, source, mask);
  asim::assign<M>(destination, result, asim::leading_lanes<sizeof(To)>(1), result.undefined);
}
#define ASIM_MERGING_EXTREME(cce, api)                                                                                         \
  template <int M, asim::Ordered T>                                                                                            \
  ASIM_FN void cce(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask, ASIM_MODE) {                \
    asim::Vec<T> result;                                                                                                       \
    api(result, source, mask);                                                                                                 \
    asim::assign<M>(destination, result, asim::leading_lanes<sizeof(T)>(2), result.undefined);                                  \
  }
ASIM_MERGING_EXTREME(vcmax, asc_reduce_max)
ASIM_MERGING_EXTREME(vcmin, asc_reduce_min)
#undef ASIM_MERGING_EXTREME

// Rearrangement.
namespace asim {
// Lane i of the result is lane source(i) of the two sources laid end to end, or zero.
template <class T, class F>
ASIM_LANES Vec<T> rearrange(const Vec<T>& a, const Vec<T>& b, F source) {
  constexpr int lanes = Vec<T>::lanes;
  Vec<T> result;
  for (int i = 0; i < lanes; ++i) {
    const int at = source(i);
    result.v[i] = at < 0 ? typename Vec<T>::Bits{} : (at < lanes ? a : b).v[at & (lanes - 1)];
  }
  if constexpr (ASIM_CHECKS) {
    result.undefined = {};
    if (any(a.undefined | b.undefined)) {
      const ByteMask of_a = spread<sizeof(T)>(a.undefined), of_b = spread<sizeof(T)>(b.undefined);
      for (int i = 0; i < lanes; ++i) {
        const int at = source(i);
        if (at >= 0 && test(at < lanes ? of_a : of_b, (at & (lanes - 1)) * int(sizeof(T)))) set(result.undefined, i * int(sizeof(T)), sizeof(T));
      }
    }
  }
  return result;
}
}  // namespace asim
template <asim::Elements T>
ASIM_FN void asc_intlv(asim::Vec<T>& low, asim::Vec<T>& high, const asim::Vec<T>& source0, const asim::Vec<T>& source1) {
  ASIM_COUNT("vintlv", T);
  constexpr int lanes = asim::Vec<T>::lanes;
  const asim::Vec<T> first = asim::rearrange(source0, source1, [](int i) { return i / 2 + i % 2 * lanes; });
  high = asim::rearrange(source0, source1, [](int i) { return lanes / 2 + i / 2 + i % 2 * lanes; });
  low = first;
}
template <asim::Elements T>
ASIM_FN void asc_deintlv(asim::Vec<T>& even, asim::Vec<T>& odd, const asim::Vec<T>& source0, const asim::Vec<T>& source1) {
  ASIM_COUNT("vdintlv", T);
  const asim::Vec<T> first = asim::rearrange(source0, source1, [](int i) { return 2 * i; });
  odd = asim::rearrange(source0, source1, [](int i) { return 2 * i + 1; });
  even = first;
}
// Lane i becomes the source's lane index[i], modulo the number of lanes.
template <class T>
  requires(asim::Elements<T> && !std::is_same_v<T, float>)
ASIM_FN void asc_gather(asim::Vec<T>& destination, const asim::Vec<T>& source, const asim::Vec<asim::Unsigned<sizeof(T)>>& index) {
  ASIM_COUNT("vselr", T);
  asim::Vec<T> result = asim::rearrange(source, source, [&](int i) { return int(index.v[i] % asim::Vec<T>::lanes); });
  if constexpr (ASIM_CHECKS) result.undefined = result.undefined | asim::spread<sizeof(T)>(index.undefined);
  destination = result;
}
template <asim::Elements T>
ASIM_FN void asc_squeeze(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {
  ASIM_COUNT("vsqz", T);
  int from[asim::Vec<T>::lanes], kept = 0;
  for (int i = 0; i < asim::Vec<T>::lanes; ++i)
    if (mask.active(i * int(sizeof(T)))) from[kept++] = i;
  destination = asim::rearrange(source, source, [&](int i) { return i < kept ? from[i] : -1; });
}
// The number of active lanes below each lane.
template <asim::Ints T>
ASIM_FN void asc_unsqueeze(asim::Vec<T>& destination, const vector_bool& mask) {
  ASIM_COUNT("vusqz", T);
  T below = 0;
  for (int i = 0; i < asim::Vec<T>::lanes; ++i) {
    destination.v[i] = below;
    below += mask.active(i * int(sizeof(T)));
  }
  if constexpr (ASIM_CHECKS) destination.undefined = {};
}

// Packing keeps the low half of each lane, in one half of the register; the other half becomes zero.
namespace asim {
template <class To, class From>
ASIM_LANES void pack(Vec<To>& destination, const Vec<From>& source, bool high) {
  constexpr int lanes = Vec<From>::lanes;
  Vec<To> result;
  for (int i = 0; i < lanes; ++i) {
    result.v[i + (high ? lanes : 0)] = To(source.v[i]);
    result.v[i + (high ? 0 : lanes)] = 0;
  }
  if constexpr (ASIM_CHECKS) {
    result.undefined = {};
    for (int i = 0; i < lanes; ++i)
      for (int k = 0; k < int(sizeof(To)); ++k)
        if (test(source.undefined, i * int(sizeof(From)) + k)) set(result.undefined, (i + (high ? lanes : 0)) * int(sizeof(To)), sizeof(To));
  }
  destination = result;
}
template <class To, class From>
ASIM_LANES void unpack(Vec<To>& destination, const Vec<From>& source, bool high) {
  constexpr int lanes = Vec<To>::lanes;
  Vec<To> result;
  for (int i = 0; i < lanes; ++i) result.v[i] = source.v[i + (high ? lanes : 0)];
  if constexpr (ASIM_CHECKS) {
    result.undefined = {};
    for (int i = 0; i < lanes; ++i)
      for (int k = 0; k < int(sizeof(From)); ++k)
        if (test(source.undefined, (i + (high ? lanes : 0)) * int(sizeof(From)) + k)) set(result.undefined, i * int(sizeof(To)), sizeof(To));
  }
  destination = result;
}
}  // namespace asim
#define ASIM_PACK(To, From)                                                     \
  ASIM_FN void asc_pack_to_low(asim::Vec<To>& destination, const asim::Vec<From>& source) {  \
    ASIM_COUNT("vpack", From);                                                  \
    asim::pack(destination, source, false);                                     \
  }                                                                             \
  ASIM_FN void asc_pack_to_high(asim::Vec<To>& destination, const asim::Vec<From>& source) { \
    ASIM_COUNT("vpack", From);                                                  \
    asim::pack(destination, source, true);                                      \
  }
ASIM_PACK(uint8_t, uint16_t)
ASIM_PACK(uint16_t, uint32_t)
#undef ASIM_PACK
#define ASIM_UNPACK(To, From)                                                   \
  ASIM_FN void asc_unpack_lower(asim::Vec<To>& destination, const asim::Vec<From>& source) { \
    ASIM_COUNT("vunpack", To);                                                  \
    asim::unpack(destination, source, false);                                   \
  }                                                                             \
  ASIM_FN void asc_unpack_upper(asim::Vec<To>& destination, const asim::Vec<From>& source) { \
    ASIM_COUNT("vunpack", To);                                                  \
    asim::unpack(destination, source, true);                                    \
  }
ASIM_UNPACK(uint16_t, uint8_t)
ASIM_UNPACK(int16_t, int8_t)
ASIM_UNPACK(uint32_t, uint16_t)
ASIM_UNPACK(int32_t, int16_t)
#undef ASIM_UNPACK

// Histograms of bytes, added to the destination: counts of the values 128 * bin + i, or of all values up to that.
namespace asim {
template <int bin, bool cumulative>
ASIM_LANES void histogram(Vec<uint16_t>& destination, const Vec<uint8_t>& source, const vector_bool& mask) {
  uint32_t counts[256] = {};
  for (int i = 0; i < 256; ++i) counts[source.v[i]] += mask.active(i);
  if constexpr (cumulative)
    for (int i = 1; i < 256; ++i) counts[i] += counts[i - 1];
  for (int i = 0; i < 128; ++i) destination.v[i] = uint16_t(destination.v[i] + counts[128 * bin + i]);
  if (ASIM_CHECKS && any(source.undefined & active_bytes<1>(mask))) destination.undefined = ~kAllDefined;
}
}  // namespace asim
#define ASIM_HISTOGRAM(api, cce, bin, cumulative)                                                       \
  ASIM_FN void api(vector_u16& destination, const vector_u8& source, const vector_bool& mask) {         \
    ASIM_COUNT(cce, uint8_t);                                                                           \
    asim::histogram<bin, cumulative>(destination, source, mask);                                        \
  }
ASIM_HISTOGRAM(asc_frequency_histogram_bin0, "dhistv2", 0, false)
ASIM_HISTOGRAM(asc_frequency_histogram_bin1, "dhistv2", 1, false)
ASIM_HISTOGRAM(asc_cumulative_histogram_bin0, "chistv2", 0, true)
ASIM_HISTOGRAM(asc_cumulative_histogram_bin1, "chistv2", 1, true)
#undef ASIM_HISTOGRAM
