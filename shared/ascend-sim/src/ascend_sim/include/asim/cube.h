// The matrix unit: GM to L1, L1 to L0A and L0B, mmad, and L0C to GM and UB. The bodies are in native/cube.cpp.
//
// All matrices on chip are stored in fractals of 16 rows by 32 bytes ("C0" elements). NZ, the layout of L1, L0A and L0C, stores columns
// of fractals one after the other; L0B holds the transposed matrix in the same way.
#pragma once

#include "asim/keywords.h"
#include "asim/cube_native.h"
#include "asim/dma.h"

#define ASIM_CHECKED_SITE (ASIM_CHECKS ? ASIM_SITE : nullptr)

// GM to L1.

// The register of the doc: number of matrices, then strides in 32-byte blocks between rows, C0 columns and matrices.
ASIM_FN void asc_set_gm2l1_nz_para(uint64_t config) { asim::set_special(asim::Special::GM2L1_NZ, config); }
ASIM_FN void asc_set_gm2l1_nz_para(uint16_t matrices, uint16_t row_stride, uint16_t c0_stride, uint16_t matrix_stride) {
  asc_set_gm2l1_nz_para(matrices | uint64_t(row_stride) << 16 | uint64_t(c0_stride) << 32 | uint64_t(matrix_stride) << 48);
}

template <typename T>
ASIM_FN void asc_copy_gm2l1_nd2nz(T* to, const T* from, uint64_t stride, asc_load_l2_cache_mode, uint16_t n, uint32_t d,
                                  uint64_t matrix_stride, bool small_c0) {
  static_assert(sizeof(T) <= 4, "asc_copy_gm2l1_nd2nz: 8-, 16- or 32-bit elements");
  asim::count<"copy_gm2l1_nd2nz">(asim::Pipe::MTE2, uint64_t(n) * d * sizeof(T));
  if (small_c0) asim::fail("unsupported", "asc_copy_gm2l1_nd2nz with smallc0_en");
  asim::LoadNz args{uint64_t(to), uint64_t(from), sizeof(T), false, stride, matrix_stride, n, d};
  asim_load_nz(&args, ASIM_CHECKED_SITE);
}
template <typename T>
ASIM_FN void asc_copy_gm2l1_dn2nz(T* to, const T* from, uint64_t stride, asc_load_l2_cache_mode, uint16_t n, uint32_t d,
                                  uint64_t matrix_stride, bool small_c0) {
  static_assert(sizeof(T) <= 4, "asc_copy_gm2l1_dn2nz: 8-, 16- or 32-bit elements");
  asim::count<"copy_gm2l1_dn2nz">(asim::Pipe::MTE2, uint64_t(n) * d * sizeof(T));
  if (small_c0) asim::fail("unsupported", "asc_copy_gm2l1_dn2nz with smallc0_en");
  asim::LoadNz args{uint64_t(to), uint64_t(from), sizeof(T), true, stride, matrix_stride, n, d};
  asim_load_nz(&args, ASIM_CHECKED_SITE);
}

struct asc_fill_value_config {
  uint64_t repeat;
  uint64_t blk_num;
  uint64_t dst_gap;
};
ASIM_FN void asc_fill_l1(uint32_t* to, uint32_t value, const asc_fill_value_config& config) {
  asim::count<"fill_l1">(asim::Pipe::MTE2, config.repeat * config.blk_num * 32);
  asim_fill_l1(uint64_t(to), value, config.repeat, config.blk_num, config.dst_gap, ASIM_CHECKED_SITE);
}
ASIM_FN void asc_fill_l1(uint16_t* to, uint32_t value, const asc_fill_value_config& config) {
  asc_fill_l1(reinterpret_cast<uint32_t*>(to), (value & 0xffff) | value << 16, config);
}

// L1 to L0A and L0B.

#define ASIM_LOAD_L0(name, kind, memory, transposed)                                                                                    \
  template <typename T>                                                                                                           \
  ASIM_FN void name(T* to, T* from, uint16_t m_start, uint16_t k_start, uint8_t m_step, uint8_t k_step, int16_t from_stride,      \
                    uint16_t to_stride) {                                                                                         \
    asim::count<kind>(asim::Pipe::MTE1, uint64_t(m_step) * k_step * 512);                                                        \
    constexpr uint32_t element = asim::CubeTypeOf<T>::value == asim::CubeType::E2M1X2 ? 0 : sizeof(T);                            \
    asim::LoadL0 args{memory, uint64_t(to), uint64_t(from), element, transposed, m_start, k_start, m_step, k_step, from_stride,   \
                      to_stride};                                                                                                 \
    asim_load_l0(&args, ASIM_CHECKED_SITE);                                                                                               \
  }
ASIM_LOAD_L0(asc_copy_l12l0a, "copy_l12l0a", asim::Mem::L0A, false)
ASIM_LOAD_L0(asc_copy_l12l0b, "copy_l12l0b", asim::Mem::L0B, false)
ASIM_LOAD_L0(asc_copy_l12l0a_transpose, "copy_l12l0a_transpose", asim::Mem::L0A, true)
ASIM_LOAD_L0(asc_copy_l12l0b_transpose, "copy_l12l0b_transpose", asim::Mem::L0B, true)
#undef ASIM_LOAD_L0

#define ASIM_LOAD_SCALE(name, kind, memory)                                                                                         \
  ASIM_FN void name(uint64_t to, fp8_e8m0_t* from, uint16_t x, uint16_t y, uint8_t x_step, uint8_t y_step, uint16_t from_stride, \
                    uint16_t to_stride) {                                                                                     \
    asim::count<kind>(asim::Pipe::MTE1, uint64_t(x_step) * y_step * 32);                                                     \
    asim::LoadScale args{memory, to, uint64_t(from), x, y, x_step, y_step, from_stride, to_stride};                           \
    asim_load_scale(&args, ASIM_CHECKED_SITE);                                                                                        \
  }
ASIM_LOAD_SCALE(asc_copy_l12l0a_mx, "copy_l12l0a_mx", asim::Mem::L0A_MX)
ASIM_LOAD_SCALE(asc_copy_l12l0b_mx, "copy_l12l0b_mx", asim::Mem::L0B_MX)
#undef ASIM_LOAD_SCALE

// The matrix product.

enum class asc_hf32_round_mode : uint8_t { NEAREST_EVEN, NEAREST_AWAY };
ASIM_FN void asc_enable_hf32() { asim::set_special(asim::Special::HF32, 1); }
ASIM_FN void asc_disable_hf32() { asim::set_special(asim::Special::HF32, 0); }
ASIM_FN void asc_set_hf32_round_mode(asc_hf32_round_mode mode) { asim::set_special(asim::Special::HF32_ROUND, uint64_t(mode)); }
// The direction in which the unit walks over the result is a matter of time only.
ASIM_FN void asc_set_mmad_direction_m() { asim::set_special(asim::Special::MMAD_DIRECTION, 0); }
ASIM_FN void asc_set_mmad_direction_n() { asim::set_special(asim::Special::MMAD_DIRECTION, 1); }

namespace asim {
template <typename T>
inline constexpr bool is_fp8 = std::is_same_v<T, float8_e4m3_t> || std::is_same_v<T, float8_e5m2_t>;
}

template <typename C, typename A, typename B>
ASIM_FN void asc_mmad(C* c, A* a, B* b, uint16_t m, uint16_t k, uint16_t n, uint8_t unit_flag, bool disable_gemv, bool bias, bool clear) {
  constexpr bool integer = std::is_same_v<C, int32_t> && std::is_same_v<A, int8_t> && std::is_same_v<B, int8_t>;
  constexpr bool same = std::is_same_v<A, B> && (std::is_same_v<A, float> || std::is_same_v<A, half> || std::is_same_v<A, bfloat16_t>);
  constexpr bool floating = std::is_same_v<C, float> && (same || (asim::is_fp8<A> && asim::is_fp8<B>));
  static_assert(integer || floating, "asc_mmad does not exist for these types of C, A and B");
  asim::Mmad args{uint64_t(c), uint64_t(a), uint64_t(b), asim::CubeTypeOf<C>::value, asim::CubeTypeOf<A>::value,
                  asim::CubeTypeOf<B>::value, m, k, n, unit_flag, !disable_gemv, bias, clear, false};
  asim_mmad(&args, ASIM_CHECKED_SITE);
}
template <typename A, typename B>
ASIM_FN void asc_mmad_mx(float* c, A* a, B* b, uint16_t m, uint16_t k, uint16_t n, uint8_t unit_flag, bool disable_gemv, bool bias,
                         bool clear) {
  constexpr bool fp4 = std::is_same_v<A, float4_e2m1x2_t> && std::is_same_v<B, float4_e2m1x2_t>;
  static_assert(fp4 || (asim::is_fp8<A> && asim::is_fp8<B>), "asc_mmad_mx does not exist for these types of A and B");
  asim::Mmad args{uint64_t(c), uint64_t(a), uint64_t(b), asim::CubeType::F32, asim::CubeTypeOf<A>::value,
                  asim::CubeTypeOf<B>::value, m, k, n, unit_flag, !disable_gemv, bias, clear, true};
  asim_mmad(&args, ASIM_CHECKED_SITE);
}

// L0C to GM and UB.

enum class asc_unit_flag_mode : uint8_t {};
enum class asc_quant_mode : uint8_t {};
enum class asc_relu_pre_mode : uint8_t {};
enum class asc_dual_dst_mode : uint8_t {};

ASIM_FN void asc_set_l0c_copy_nz_para(uint16_t matrices, uint16_t from_stride, uint32_t to_stride) {
  asim::set_special(asim::Special::L0C_NZ, matrices | uint64_t(from_stride) << 16 | uint64_t(to_stride) << 32);
}

template <typename T, typename C>
ASIM_FN void asc_copy_l0c2gm(T* to, C* from, uint16_t n, uint16_t m, uint32_t to_stride, uint16_t from_stride, asc_store_l2_cache_mode,
                             asc_unit_flag_mode unit_flag, asc_quant_mode quant, asc_relu_pre_mode relu, bool split, bool nz2nd,
                             bool nz2dn, uint8_t clip_relu) {
  asim::count<"copy_l0c2gm">(asim::Pipe::FIX, uint64_t(n) * m * sizeof(T));
  asim::Fixpipe args{asim::Mem::GM, uint64_t(to), uint64_t(from), asim::CubeTypeOf<T>::value, asim::CubeTypeOf<C>::value, n, m, to_stride,
                     from_stride, 0, 0, uint32_t(unit_flag), uint32_t(quant), uint32_t(relu), clip_relu, split, nz2nd, nz2dn};
  asim_fixpipe(&args, ASIM_CHECKED_SITE);
}
template <typename T, typename C>
ASIM_FN void asc_copy_l0c2ub(T* to, C* from, uint16_t n, uint16_t m, uint32_t to_stride, uint16_t from_stride, bool sub_block,
                             asc_dual_dst_mode dual, asc_unit_flag_mode unit_flag, asc_quant_mode quant, asc_relu_pre_mode relu,
                             bool split, bool nz2nd, bool nz2dn, uint8_t clip_relu) {
  asim::count<"copy_l0c2ub">(asim::Pipe::FIX, uint64_t(n) * m * sizeof(T));
  asim::Fixpipe args{asim::Mem::UB, uint64_t(to), uint64_t(from), asim::CubeTypeOf<T>::value, asim::CubeTypeOf<C>::value, n, m, to_stride,
                     from_stride, uint32_t(dual), sub_block, uint32_t(unit_flag), uint32_t(quant), uint32_t(relu), clip_relu, split, nz2nd,
                     nz2dn};
  asim_fixpipe(&args, ASIM_CHECKED_SITE);
}
