// The matrix unit (see asim/cube.h). Every function checks its accesses through the core library and then moves bytes.
// `site`, the code address for reports, is null in kernels compiled without checks.
#include "asim/cube_native.h"

#include <algorithm>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using asim::CubeType;
using asim::Mem;
using asim::Pipe;
using asim::Use;

constexpr uint32_t kBlock = 32;      // bytes of a fractal row
constexpr uint32_t kFractal = 512;   // bytes of a fractal
constexpr uint32_t kRows = 16;       // rows of a fractal
constexpr uint32_t kL0cColumns = 16; // columns of a fractal of L0C, whose rows are 64 bytes

uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
uint32_t align_up(uint32_t a, uint32_t b) { return ceil_div(a, b) * b; }

uint32_t type_bytes(CubeType type) {
  switch (type) {
    case CubeType::F32:
    case CubeType::S32: return 4;
    case CubeType::F16:
    case CubeType::BF16: return 2;
    default: return 1;
  }
}

void fail_at(const void* site, const char* code, const char* format, ...) __attribute__((noreturn, format(printf, 3, 4)));
void fail_at(const void* site, const char* code, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  asim_fail(code, text, site);
}

// Calls `visit(offset in the range)` for every byte of an on-chip range that was never written.
template <typename Visit>
void for_undefined(Mem mem, uint64_t at, uint64_t bytes, const void* site, Visit visit) {
  if (!site) return;
  for (uint64_t done = 0; done < bytes; done += 256) {
    asim::ByteMask mask{};
    uint64_t part = std::min<uint64_t>(256, bytes - done);
    asim_undefined(asim_core, mem, at + done, part, &mask);
    for (uint64_t i = 0; i < part; ++i) {
      if (mask.w[i / 64] >> (i % 64) & 1) visit(done + i);
    }
  }
}

template <typename T>
T load_as(const uint8_t* from) {
  T value;
  memcpy(&value, from, sizeof(T));
  return value;
}

// HF32 keeps 10 bits of the significand.
float round_hf32(float value, bool away) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  uint32_t add = away ? 0x1000u : 0xfffu + (bits >> 13 & 1);
  return std::bit_cast<float>((bits + add) & ~0x1fffu);
}

constexpr uint32_t kTileRows = 4, kTileColumns = 32;  // of the host's registers

// One operand of a product as [k][pitch], so that the inner loop runs over contiguous memory; rows past the last are zero.
// `undefined` has a flag a row.
struct Operand {
  std::vector<float> values;
  uint32_t pitch = 0;
  std::vector<uint8_t> undefined;
  bool any_undefined = false;
};

// An operand lies in L0A or L0B as columns of fractals: [k / C0][rows / 16][16][C0], or, for a matrix-vector product, as k
// contiguous elements.
Operand load_operand(Mem mem, Mem scale_mem, uint64_t at, CubeType type, uint32_t rows, uint32_t k, bool vector, bool scaled,
                     const void* site) {
  bool four_bit = type == CubeType::E2M1X2;
  uint32_t c0 = four_bit ? 64 : kBlock / type_bytes(type);
  uint32_t padded_rows = vector ? 1 : align_up(rows, kRows);
  uint64_t bytes = vector ? align_up(k * type_bytes(type), kBlock) : uint64_t(ceil_div(k, c0)) * padded_rows * kBlock;
  uint64_t scale_at = at / 16;
  uint32_t scale_blocks = ceil_div(k, 64);
  uint64_t scale_bytes = uint64_t(padded_rows / kRows) * scale_blocks * kBlock;
  if (site) {
    asim_read(asim_core, mem, at, bytes, Pipe::M, kFractal, Use::MOVE, site);
    if (scaled) asim_read(asim_core, scale_mem, scale_at, scale_bytes, Pipe::M, kBlock, Use::MOVE, site);
  }

  Operand operand;
  operand.pitch = align_up(rows, kTileColumns);
  operand.values.resize(size_t(k) * operand.pitch);
  operand.undefined.resize(rows);
  const uint8_t* data = asim_core->base[int(mem)] + at;
  const uint8_t* scales = scaled ? asim_core->base[int(scale_mem)] + scale_at : nullptr;
  auto unpack = [&](auto element) {  // element(fractal row, index in it)
    for (uint32_t i = 0; i < k; ++i) {
      float* to = operand.values.data() + size_t(i) * operand.pitch;
      const uint8_t* column = data + uint64_t(i / c0) * padded_rows * kBlock;
      for (uint32_t row = 0; row < rows; ++row) to[row] = element(column + uint64_t(row) * kBlock, i % c0);
    }
  };
  switch (type) {
    case CubeType::F32: unpack([](const uint8_t* block, uint32_t i) { return load_as<float>(block + 4 * i); }); break;
    case CubeType::F16: unpack([](const uint8_t* block, uint32_t i) { return float(load_as<half>(block + 2 * i)); }); break;
    case CubeType::BF16: unpack([](const uint8_t* block, uint32_t i) { return float(load_as<bfloat16_t>(block + 2 * i)); }); break;
    case CubeType::S8: unpack([](const uint8_t* block, uint32_t i) { return float(load_as<int8_t>(block + i)); }); break;
    case CubeType::E4M3: unpack([](const uint8_t* block, uint32_t i) { return float(load_as<float8_e4m3_t>(block + i)); }); break;
    case CubeType::E5M2: unpack([](const uint8_t* block, uint32_t i) { return float(load_as<float8_e5m2_t>(block + i)); }); break;
    case CubeType::E2M1X2:
      unpack([](const uint8_t* block, uint32_t i) { return asim::decode(block[i / 2] >> (i % 2 * 4) & 15, asim::kE2m1); });
      break;
    case CubeType::S32: break;  // no operand has this type
  }
  if (type == CubeType::F32 && asim_core->special[int(asim::Special::HF32)]) {
    bool away = asim_core->special[int(asim::Special::HF32_ROUND)];
    for (float& value : operand.values) value = round_hf32(value, away);
  }
  if (scaled) {
    for (uint32_t i = 0; i < k; ++i) {
      for (uint32_t row = 0; row < rows; ++row) {
        uint64_t pair = (uint64_t(row / kRows) * scale_blocks + i / 64) * kBlock + row % kRows * 2;
        operand.values[size_t(i) * operand.pitch + row] *= asim::e8m0_to_float(scales[pair + i / 32 % 2]);
      }
    }
  }

  uint32_t doubled_bytes = four_bit ? 1 : 2 * type_bytes(type);  // of two elements, as four bits are half a byte
  auto mark = [&](uint64_t row, uint64_t element) {
    if (row < rows && element < k) operand.undefined[row] = operand.any_undefined = true;
  };
  for_undefined(mem, at, bytes, site, [&](uint64_t byte) {
    if (vector) return mark(0, byte * 2 / doubled_bytes);
    uint64_t column = byte / (padded_rows * kBlock), row = byte / kBlock % padded_rows;
    mark(row, column * c0 + byte % kBlock * 2 / doubled_bytes);
  });
  if (scaled) {
    for_undefined(scale_mem, scale_at, scale_bytes, site, [&](uint64_t byte) {
      uint64_t pair = byte / kBlock;
      mark(pair / scale_blocks * kRows + byte % kBlock / 2, pair % scale_blocks * 64 + byte % 2 * 32);
    });
  }
  return operand;
}

// The order of the hardware's sums is not documented: here it is one addition a term, in the order of k.
template <typename T>
void multiply(uint8_t* c, const Operand& a, const Operand& b, const asim::Mmad& p, uint64_t padded_rows) {
  for (uint32_t row = 0; row < p.m; row += kTileRows) {
    for (uint32_t column = 0; column < p.n; column += kTileColumns) {
      uint32_t rows = std::min(kTileRows, p.m - row), columns = std::min(kTileColumns, p.n - column);
      T sums[kTileRows][kTileColumns] = {};
      auto for_elements = [&](auto visit) {
        for (uint32_t y = 0; y < rows; ++y) {
          for (uint32_t x = 0; x < columns; ++x) {
            visit(c + ((column + x) / kL0cColumns * padded_rows + row + y) * 64 + (column + x) % kL0cColumns * 4, sums[y][x]);
          }
        }
      };
      if (!p.clear) for_elements([](const uint8_t* element, T& sum) { memcpy(&sum, element, 4); });
      for (uint32_t k = 0; k < p.k; ++k) {
        const float* left = a.values.data() + size_t(k) * a.pitch + row;
        const float* right = b.values.data() + size_t(k) * b.pitch + column;
        for (uint32_t y = 0; y < kTileRows; ++y) {
          for (uint32_t x = 0; x < kTileColumns; ++x) sums[y][x] += T(left[y]) * T(right[x]);
        }
      }
      for_elements([](uint8_t* element, const T& sum) { memcpy(element, &sum, 4); });
    }
  }
}

// The unit flags: one a 512 bytes of L0C, set by the last product of a tile and cleared by the fixpipe that drains it. A product
// waits for a clear flag, a fixpipe for a set one. Execution is in program order here, so a flag that is not in the state that is
// waited for would be waited for forever, or be satisfied by a later instruction out of order.
void use_unit_flags(uint64_t at, uint64_t bytes, bool expected, bool toggle, const void* site) {
  uint8_t* flags = asim_core->unit_flags;
  for (uint64_t block = at / kFractal; block < (at + bytes + kFractal - 1) / kFractal; ++block) {
    if (bool(flags[block]) != expected) {
      fail_at(site, "deadlock", expected ? "asc_copy_l0c2*: waits for the unit flag of L0C block %u, which no asc_mmad has set"
                                         : "asc_mmad: waits for the unit flag of L0C block %u, which no asc_copy_l0c2* has cleared",
              unsigned(block));
    }
    if (toggle) flags[block] = !expected;
  }
}

// How the fixpipe changes a value on its way out.
struct Conversion {
  CubeType from, to;
  uint32_t quant;
  bool relu;

  void operator()(const uint8_t* source, uint8_t* target) const {
    if (from == CubeType::S32) {
      int32_t value = load_as<int32_t>(source);
      if (relu) value = std::max(value, 0);
      memcpy(target, &value, 4);
      return;
    }
    float value = load_as<float>(source);
    if (relu) value = value > 0 || value != value ? value : 0.0f;
    if (to == CubeType::F32) {
      memcpy(target, &value, 4);
      return;
    }
    // Conversion to bf16 is documented to have no infinities and NaNs.
    uint16_t bits = to == CubeType::F16 ? half(value).bits : uint16_t(asim::encode(value, asim::kBf16, asim::Round::RINT, true));
    memcpy(target, &bits, 2);
  }
};

constexpr uint32_t kQuantNone = 0, kQuantF16 = 1, kQuantBf16 = 16;

void check_fixpipe(const asim::Fixpipe& f, const void* site) {
  bool plain = f.quant == kQuantNone && f.to_type == f.from_type && (f.to_type == CubeType::F32 || f.to_type == CubeType::S32);
  bool to_half = f.quant == kQuantF16 && f.from_type == CubeType::F32 && f.to_type == CubeType::F16;
  bool to_bf16 = f.quant == kQuantBf16 && f.from_type == CubeType::F32 && f.to_type == CubeType::BF16;
  if (!plain && !to_half && !to_bf16) fail_at(site, "unsupported", "asc_copy_l0c2*: quant_pre mode %u for these types", f.quant);
  if (f.relu > 1) fail_at(site, "unsupported", "asc_copy_l0c2*: relu_pre mode %u", f.relu);
  if (f.clip_relu) fail_at(site, "unsupported", "asc_copy_l0c2*: clip_relu_pre");
  if (f.split) fail_at(site, "unsupported", "asc_copy_l0c2*: channel split");
  if (f.to_nd && f.to_dn) fail_at(site, "argument", "asc_copy_l0c2*: nz2nd and nz2dn exclude each other");
  if (f.columns == 0 || f.rows == 0) {
    fail_at(site, "argument", "asc_copy_l0c2*: n_size and m_size must be at least 1, got %u and %u", f.columns, f.rows);
  }
  if (f.columns > 4095) fail_at(site, "argument", "asc_copy_l0c2*: n_size must be at most 4095, got %u", f.columns);
  if (f.dual > 2) fail_at(site, "argument", "asc_copy_l0c2ub: dual_dst_mode must be 0, 1 or 2, got %u", f.dual);
  if (f.dual && (f.quant || f.relu || f.to_dn)) {
    fail_at(site, "argument", "asc_copy_l0c2ub: a dual destination allows no conversion, relu or nz2dn");
  }
  if (f.dual == 1 && f.rows % 2) fail_at(site, "argument", "asc_copy_l0c2ub: m_size must be even to be split, got %u", f.rows);
  if (f.dual == 2 && f.columns % 32) {
    fail_at(site, "argument", "asc_copy_l0c2ub: n_size must be a multiple of 32 to be split, got %u", f.columns);
  }
}

}  // namespace

EXPORT void asim_load_nz(const asim::LoadNz* args, const void* site) {
  const asim::LoadNz& a = *args;
  uint64_t config = asim_core->special[int(asim::Special::GM2L1_NZ)];
  uint32_t matrices = config & 0xffff;
  uint64_t row_stride = (config >> 16 & 0xffff) * kBlock, c0_stride = (config >> 32 & 0xffff) * kBlock, nz_stride = (config >> 48) * kBlock;
  uint32_t c0 = kBlock / a.element;
  if (a.rows == 0 || a.columns == 0) return;
  for (uint32_t matrix = 0; matrix < matrices; ++matrix) {
    uint64_t from = a.from + matrix * a.matrix_stride, to = a.to + matrix * nz_stride;
    uint32_t lines = a.transpose ? a.columns : a.rows, line_bytes = (a.transpose ? a.rows : a.columns) * a.element;
    uint32_t groups = ceil_div(a.columns, c0);
    if (site) {
      for (uint32_t line = 0; line < lines; ++line) {
        asim_read(asim_core, Mem::GM, from + line * a.stride, line_bytes, Pipe::MTE2, 1, Use::MOVE, site);
      }
      for (uint32_t group = 0; group < groups; ++group) {
        if (row_stride == kBlock) {
          asim_write(asim_core, Mem::L1, to + group * c0_stride, uint64_t(a.rows) * kBlock, Pipe::MTE2, kBlock, nullptr, nullptr, site);
        } else {
          for (uint32_t row = 0; row < a.rows; ++row) {
            asim_write(asim_core, Mem::L1, to + group * c0_stride + row * row_stride, kBlock, Pipe::MTE2, kBlock, nullptr, nullptr, site);
          }
        }
      }
    }
    if (!site) asim_traffic(from, uint64_t(lines) * line_bytes, false);
    const uint8_t* source = reinterpret_cast<const uint8_t*>(from);
    uint8_t* l1 = asim_core->base[int(Mem::L1)] + to;
    for (uint32_t group = 0; group < groups; ++group) {
      uint32_t present = std::min(c0, a.columns - group * c0);
      for (uint32_t row = 0; row < a.rows; ++row) {
        uint8_t* block = l1 + group * c0_stride + row * row_stride;
        if (a.transpose) {
          for (uint32_t i = 0; i < present; ++i) {
            memcpy(block + i * a.element, source + (uint64_t(group) * c0 + i) * a.stride + uint64_t(row) * a.element, a.element);
          }
        } else {
          memcpy(block, source + row * a.stride + uint64_t(group) * kBlock, present * a.element);
        }
        memset(block + present * a.element, 0, kBlock - present * a.element);
      }
    }
  }
}

EXPORT void asim_fill_l1(uint64_t to, uint32_t word, uint64_t repeats, uint64_t blocks, uint64_t gap, const void* site) {
  for (uint64_t repeat = 0; repeat < repeats && blocks; ++repeat, to += (blocks + gap) * kBlock) {
    if (site) asim_write(asim_core, Mem::L1, to, blocks * kBlock, Pipe::MTE2, kBlock, nullptr, nullptr, site);
    for (uint64_t i = 0; i < blocks * kBlock; i += 4) memcpy(asim_core->base[int(Mem::L1)] + to + i, &word, 4);
  }
}

EXPORT void asim_load_l0(const asim::LoadL0* args, const void* site) {
  const asim::LoadL0& a = *args;
  uint64_t from = a.from + (int64_t(a.column) * a.from_stride + a.row) * int64_t(kFractal);
  const uint8_t* l1 = asim_core->base[int(Mem::L1)];
  uint8_t* l0 = asim_core->base[int(a.to_memory)];
  uint64_t run = uint64_t(a.rows) * kFractal;
  if (a.rows == 0) return;
  if (!a.transpose) {
    for (uint32_t column = 0; column < a.columns; ++column) {
      uint64_t source = from + int64_t(column) * a.from_stride * int64_t(kFractal);
      uint64_t target = a.to + uint64_t(column) * a.to_stride * kFractal;
      if (site) {
        asim_read(asim_core, Mem::L1, source, run, Pipe::MTE1, kBlock, Use::MOVE, site);
        asim_write(asim_core, a.to_memory, target, run, Pipe::MTE1, kFractal, nullptr, nullptr, site);
        asim_move_defined(asim_core, a.to_memory, target, asim_core, Mem::L1, source, run, site);
      }
      memcpy(l0 + target, l1 + source, run);
    }
    return;
  }

  // Squares of 16, 32 or 64 elements are transposed: C0 columns of 16 rows, or several fractals side by side.
  uint32_t c0 = a.element ? kBlock / a.element : 64;
  if (a.element == 0) fail_at(site, "unsupported", "asc_copy_l12l0*_transpose of 4-bit elements");
  if (c0 > kRows && a.rows % (c0 / kRows)) {
    fail_at(site, "argument", "asc_copy_l12l0*_transpose: m_step must be a multiple of %u for %u-byte elements, got %u", c0 / kRows, a.element,
            a.rows);
  }
  if (c0 < kRows && a.columns % (kRows / c0)) {
    fail_at(site, "argument", "asc_copy_l12l0*_transpose: k_step must be a multiple of %u for %u-byte elements, got %u", kRows / c0, a.element,
            a.columns);
  }
  uint32_t rows = a.rows * kRows, columns = a.columns * c0;  // of the source, in elements
  auto source_at = [&](uint32_t row, uint32_t column) {
    return from + int64_t(column / c0) * a.from_stride * int64_t(kFractal) + uint64_t(row) * kBlock + column % c0 * a.element;
  };
  auto target_at = [&](uint32_t row, uint32_t column) {  // where element (row, column) of the source goes
    return a.to + uint64_t(row / c0) * a.to_stride * kFractal + uint64_t(column) * kBlock + row % c0 * a.element;
  };
  if (site) {
    for (uint32_t column = 0; column < a.columns; ++column) {
      asim_read(asim_core, Mem::L1, from + int64_t(column) * a.from_stride * int64_t(kFractal), run, Pipe::MTE1, kBlock, Use::MOVE, site);
    }
    for (uint32_t row = 0; row < rows; row += c0) {
      asim_write(asim_core, a.to_memory, target_at(row, 0), uint64_t(columns) * kBlock, Pipe::MTE1, kFractal, nullptr, nullptr, site);
    }
  }
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      memcpy(l0 + target_at(row, column), l1 + source_at(row, column), a.element);
    }
  }
  for (uint32_t group = 0; group < a.columns; ++group) {
    for_undefined(Mem::L1, from + int64_t(group) * a.from_stride * int64_t(kFractal), run, site, [&](uint64_t byte) {
      uint32_t row = byte / kBlock, column = group * c0 + byte % kBlock / a.element;
      asim_set_undefined(asim_core, a.to_memory, target_at(row, column) + byte % a.element, 1);
    });
  }
}

EXPORT void asim_load_scale(const asim::LoadScale* args, const void* site) {
  const asim::LoadScale& a = *args;
  uint64_t run = uint64_t(a.y_steps) * kBlock;
  if (run == 0) return;
  for (uint32_t x = 0; x < a.x_steps; ++x) {
    uint64_t source = a.from + (uint64_t(a.x + x) * a.from_stride + a.y) * kBlock, target = a.to + uint64_t(x) * a.to_stride * kBlock;
    if (site) {
      asim_read(asim_core, Mem::L1, source, run, Pipe::MTE1, kBlock, Use::MOVE, site);
      asim_write(asim_core, a.to_memory, target, run, Pipe::MTE1, kBlock, nullptr, nullptr, site);
      asim_move_defined(asim_core, a.to_memory, target, asim_core, Mem::L1, source, run, site);
    }
    memcpy(asim_core->base[int(a.to_memory)] + target, asim_core->base[int(Mem::L1)] + source, run);
  }
}

EXPORT void asim_mmad(const asim::Mmad* args, const void* site) {
  const asim::Mmad& p = *args;
  if (p.m > 4095 || p.k > 4095 || p.n > 4095) {
    fail_at(site, "argument", "asc_mmad: m, k and n must be at most 4095, got %u, %u and %u", p.m, p.k, p.n);
  }
  if (p.bias && !p.clear) fail_at(site, "unsupported", "asc_mmad: initial values from the bias table");
  if (p.unit_flag == 1 || p.unit_flag > 3) fail_at(site, "argument", "asc_mmad: unit_flag must be 0, 2 or 3, got %u", p.unit_flag);
  if (p.m == 0 || p.k == 0 || p.n == 0) return;

  // What the unit multiplies is whole fractals; what the arguments ask for is less at the edges.
  uint32_t c0 = p.a_type == CubeType::E2M1X2 ? 64 : kBlock / type_bytes(p.a_type);
  bool gemv = p.gemv && p.m == 1;
  static const int issued = asim_kind("mmad"), useful = asim_kind("useful_multiply_adds");
  asim_issue(Pipe::M, issued, uint64_t(gemv ? 1 : align_up(p.m, kRows)) * align_up(p.k, c0) * align_up(p.n, kRows));
  asim_issue(Pipe::S, useful, uint64_t(p.m) * p.k * p.n);  // a count without time

  uint64_t padded_rows = align_up(p.m, kRows), bytes = padded_rows * align_up(p.n, kL0cColumns) * 4;
  if (p.unit_flag) {
    asim_order(Pipe::M, Pipe::FIX);
    use_unit_flags(p.c, bytes, false, p.unit_flag == 3, site);
  }
  Operand a = load_operand(Mem::L0A, Mem::L0A_MX, p.a, p.a_type, p.m, p.k, gemv, p.scaled, site);
  Operand b = load_operand(Mem::L0B, Mem::L0B_MX, p.b, p.b_type, p.n, p.k, false, p.scaled, site);
  std::vector<uint8_t> undefined;  // of C, a flag an element; empty if all are defined
  if (site) {
    if (!p.clear) asim_read(asim_core, Mem::L0C, p.c, bytes, Pipe::M, kFractal, Use::MOVE, site);
    if (a.any_undefined || b.any_undefined) undefined.resize(size_t(p.m) * p.n);
    if (!p.clear) {
      for_undefined(Mem::L0C, p.c, bytes, site, [&](uint64_t byte) {
        uint64_t row = byte / 64 % padded_rows, column = byte / (padded_rows * 64) * kL0cColumns + byte % 64 / 4;
        if (row >= p.m || column >= p.n) return;
        undefined.resize(size_t(p.m) * p.n);
        undefined[row * p.n + column] = 1;
      });
    }
    asim_write(asim_core, Mem::L0C, p.c, bytes, Pipe::M, kFractal, nullptr, nullptr, site);
  }

  uint8_t* c = asim_core->base[int(Mem::L0C)] + p.c;
  if (p.c_type == CubeType::S32) {
    multiply<int32_t>(c, a, b, p, padded_rows);
  } else {
    multiply<float>(c, a, b, p, padded_rows);
  }

  if (site) {
    uint64_t base = p.c;
    auto set_undefined = [&](uint32_t row, uint32_t column, uint32_t columns) {
      uint64_t at = base + (column / kL0cColumns * padded_rows + row) * 64 + column % kL0cColumns * 4;
      asim_set_undefined(asim_core, Mem::L0C, at, columns * 4);
    };
    for (uint32_t column = 0; column < align_up(p.n, kL0cColumns); column += kL0cColumns) {
      for (uint32_t row = p.m; row < padded_rows; ++row) set_undefined(row, column, kL0cColumns);
    }
    if (p.n % kL0cColumns) {
      for (uint32_t row = 0; row < p.m; ++row) set_undefined(row, p.n, kL0cColumns - p.n % kL0cColumns);
    }
    for (size_t i = 0; i < undefined.size(); ++i) {
      uint32_t row = i / p.n, column = i % p.n;
      if (undefined[i] || a.undefined[row] || b.undefined[column]) set_undefined(row, column, 1);
    }
  }
}

EXPORT void asim_fixpipe(const asim::Fixpipe* args, const void* site) {
  const asim::Fixpipe& f = *args;
  check_fixpipe(f, site);
  uint64_t config = asim_core->special[int(asim::Special::L0C_NZ)];
  uint32_t matrices = f.to_nd || f.to_dn ? config & 0xffff : 1;
  uint64_t matrix_from_stride = (config >> 16 & 0xffff) * 64, matrix_to_stride = config >> 32;
  uint32_t size = type_bytes(f.to_type);
  Conversion convert{f.from_type, f.to_type, f.quant, f.relu == 1};
  if (f.unit_flag) asim_order(Pipe::FIX, Pipe::M);

  for (uint32_t matrix = 0; matrix < matrices; ++matrix) {
    uint64_t from = f.from + matrix * matrix_from_stride;
    uint32_t groups = ceil_div(f.columns, kL0cColumns);
    std::vector<uint8_t> undefined;
    for (uint32_t group = 0; group < groups; ++group) {
      uint64_t at = from + uint64_t(group) * f.from_stride * 64, bytes = uint64_t(f.rows) * 64;
      if (f.unit_flag) use_unit_flags(at, bytes, true, f.unit_flag == 3, site);
      if (!site) continue;
      asim_read(asim_core, Mem::L0C, at, bytes, Pipe::FIX, 64, Use::MOVE, site);
      for_undefined(Mem::L0C, at, bytes, site, [&](uint64_t byte) {
        uint64_t column = group * kL0cColumns + byte % 64 / 4;
        if (column >= f.columns) return;
        undefined.resize(size_t(f.rows) * f.columns);
        undefined[byte / 64 * f.columns + column] = 1;
      });
    }

    // A part is what one vector core receives; there is one but for dual destinations.
    for (uint32_t part = 0; part < (f.dual ? 2u : 1u); ++part) {
      uint32_t rows = f.dual == 1 ? f.rows / 2 : f.rows, columns = f.dual == 2 ? f.columns / 2 : f.columns;
      uint32_t first_row = f.dual == 1 ? part * rows : 0, first_column = f.dual == 2 ? part * columns : 0;
      asim::Core* owner = f.to_memory == Mem::UB ? asim_core->vector[f.dual ? part : f.sub_block] : asim_core;
      if (!owner) fail_at(site, "argument", "asc_copy_l0c2ub: the kernel has no vector core %u", f.dual ? part : f.sub_block);
      uint64_t to = f.to + matrix * matrix_to_stride * size;
      if (f.to_memory == Mem::UB) to -= reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);

      // Runs of contiguous bytes of the destination: rows of ND, columns of DN, rows of a fractal column of NZ.
      uint32_t run = f.to_dn ? rows : f.to_nd ? columns : kL0cColumns;
      uint32_t runs = f.to_dn ? columns : f.to_nd ? rows : rows * ceil_div(columns, kL0cColumns);
      std::vector<uint8_t> line(size_t(run) * size);
      for (uint32_t r = 0; r < runs; ++r) {
        uint64_t start;
        uint32_t length = run;
        uint32_t row = 0, column = 0;
        if (f.to_dn) {
          column = r;
          start = uint64_t(r) * f.to_stride;
        } else if (f.to_nd) {
          row = r;
          start = uint64_t(r) * f.to_stride;
        } else {
          row = r % rows;
          column = r / rows * kL0cColumns;
          length = std::min(run, columns - column);
          start = uint64_t(r / rows) * f.to_stride + uint64_t(row) * kL0cColumns;
        }
        uint64_t target = to + start * size;
        auto element = [&](uint32_t i) {  // row and column in the tile of the i-th element of the run
          return std::pair(first_row + row + (f.to_dn ? i : 0), first_column + column + (f.to_dn ? 0 : i));
        };
        bool any_undefined = false;
        for (uint32_t i = 0; i < length; ++i) {
          auto [y, x] = element(i);
          convert(asim_core->base[int(Mem::L0C)] + from + (uint64_t(x / kL0cColumns) * f.from_stride + y) * 64 + x % kL0cColumns * 4,
                  line.data() + size_t(i) * size);
          any_undefined |= !undefined.empty() && undefined[size_t(y) * f.columns + x];
        }
        if (any_undefined) {
          uint32_t chunk = 256 / size;
          for (uint32_t i = 0; i < length; i += chunk) {
            asim::ByteMask mask{};
            uint32_t n = std::min(chunk, length - i);
            for (uint32_t byte = 0; byte < n * size; ++byte) {
              auto [y, x] = element(i + byte / size);
              mask.w[byte / 64] |= uint64_t(undefined[size_t(y) * f.columns + x]) << (byte % 64);
            }
            asim_write(owner, f.to_memory, target + uint64_t(i) * size, uint64_t(n) * size, Pipe::FIX, 1, nullptr, &mask, site);
          }
        } else if (site && f.to_memory == Mem::UB) {
          asim_write(owner, Mem::UB, target, uint64_t(length) * size, Pipe::FIX, r == 0 ? kBlock : 1, nullptr, nullptr, site);
        }
        if (f.to_memory == Mem::GM) {
          asim_gm_store(target, line.data(), uint64_t(length) * size, Pipe::FIX, site && !any_undefined, site);
        } else {
          memcpy(owner->base[int(Mem::UB)] + target, line.data(), uint64_t(length) * size);
        }
      }
    }
  }
}
