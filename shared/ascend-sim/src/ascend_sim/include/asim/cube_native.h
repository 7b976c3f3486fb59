// The matrix unit: what kernels and native/cube.cpp share.
#pragma once

#include "asim/core.h"
#include "asim/types.h"

namespace asim {

enum class CubeType : uint8_t { F32, F16, BF16, S32, S8, E4M3, E5M2, E2M1X2 };

template <typename T>
struct CubeTypeOf;  // undefined: the matrix unit does not know the type
template <> struct CubeTypeOf<float> { static constexpr CubeType value = CubeType::F32; };
template <> struct CubeTypeOf<half> { static constexpr CubeType value = CubeType::F16; };
template <> struct CubeTypeOf<bfloat16_t> { static constexpr CubeType value = CubeType::BF16; };
template <> struct CubeTypeOf<int32_t> { static constexpr CubeType value = CubeType::S32; };
template <> struct CubeTypeOf<int8_t> { static constexpr CubeType value = CubeType::S8; };
template <> struct CubeTypeOf<float8_e4m3_t> { static constexpr CubeType value = CubeType::E4M3; };
template <> struct CubeTypeOf<float8_e5m2_t> { static constexpr CubeType value = CubeType::E5M2; };
template <> struct CubeTypeOf<float4_e2m1x2_t> { static constexpr CubeType value = CubeType::E2M1X2; };

struct LoadNz {
  uint64_t to;          // L1
  uint64_t from;        // GM
  uint32_t element;     // bytes
  bool transpose;       // rows of the result are columns in GM
  uint64_t stride;      // bytes between rows (columns if transposed) in GM
  uint64_t matrix_stride;
  uint32_t rows, columns;
};

struct LoadL0 {
  Mem to_memory;
  uint64_t to, from;
  uint32_t element;     // bytes; 0 for 4-bit elements
  bool transpose;
  uint32_t row, column;           // first fractal
  uint32_t rows, columns;         // fractals
  int32_t from_stride, to_stride; // fractals between columns of fractals
};

struct LoadScale {
  Mem to_memory;
  uint64_t to, from;
  uint32_t x, y, x_steps, y_steps, from_stride, to_stride;
};

struct Mmad {
  uint64_t c, a, b;
  CubeType c_type, a_type, b_type;
  uint32_t m, k, n;
  uint32_t unit_flag;
  bool gemv, bias, clear, scaled;
};

struct Fixpipe {
  Mem to_memory;
  uint64_t to;          // an address, for UB too
  uint64_t from;
  CubeType to_type, from_type;
  uint32_t columns, rows;
  uint32_t to_stride, from_stride;
  uint32_t dual, sub_block;
  uint32_t unit_flag, quant, relu, clip_relu;
  bool split, to_nd, to_dn;
};

}  // namespace asim

// `site` is the code address for reports; null tells not to check.
extern "C" {
void asim_load_nz(const asim::LoadNz* args, const void* site);
void asim_fill_l1(uint64_t to, uint32_t word, uint64_t repeats, uint64_t blocks, uint64_t gap, const void* site);
void asim_load_l0(const asim::LoadL0* args, const void* site);
void asim_load_scale(const asim::LoadScale* args, const void* site);
void asim_mmad(const asim::Mmad* args, const void* site);
void asim_fixpipe(const asim::Fixpipe* args, const void* site);
}
