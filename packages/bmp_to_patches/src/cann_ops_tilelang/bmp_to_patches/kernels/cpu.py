"""CPU kernel of ``bmp_to_patches``."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

from ..levels import has_vbmi, value_table

# Least work worth a thread: 128 Ki values.
GRAIN_VALUES = 1 << 17
# Sides of patches for the byte permutations: smaller ones leave most of a register empty, the planes of larger ones
# do not stay in the first-level cache.
VBMI_PATCHES = range(4, 65)

# TileLang's C generator has no byte permutation, which de-interleaves the channels and looks up 64 values at a time.
VBMI_PATCH = """
#include <immintrin.h>
#include <stdint.h>

struct Pick {
  alignas(64) uint8_t index[3][64];
  constexpr Pick() : index{} {
    for (int channel = 0; channel < 3; ++channel)
      for (int column = 0; column < 21; ++column) index[channel][column] = 3 * column + 2 - channel;
  }
};
static constexpr Pick pick;

// One patch of SIZE x SIZE pixels. `table` holds for each channel 256 low bytes, then 256 high bytes.
extern "C" __attribute__((visibility("hidden"))) inline int32_t patch_vbmi(
    int16_t* patches, int64_t target, uint8_t* pixels, int64_t source, int64_t step, uint8_t* table) {
  constexpr int64_t area = SIZE * SIZE, plane = area + 64;
  uint8_t planes[3 * plane];
  const __m512i red = _mm512_load_si512(pick.index[0]);
  const __m512i green = _mm512_load_si512(pick.index[1]);
  const __m512i blue = _mm512_load_si512(pick.index[2]);
  for (int64_t row = 0; row < SIZE; ++row) {
    for (int64_t column = 0; column < SIZE; column += 21) {
      // A load holds 21 pixels. What a store writes past its pixels is overwritten by the next one.
      const int64_t bytes = 3 * (SIZE - column < 21 ? SIZE - column : 21);
      const __m512i bgr =
          _mm512_maskz_loadu_epi8(~uint64_t(0) >> (64 - bytes), pixels + source + row * step + 3 * column);
      uint8_t* out = planes + row * SIZE + column;
      _mm256_storeu_si256((__m256i*)out, _mm512_castsi512_si256(_mm512_permutexvar_epi8(red, bgr)));
      _mm256_storeu_si256((__m256i*)(out + plane), _mm512_castsi512_si256(_mm512_permutexvar_epi8(green, bgr)));
      _mm256_storeu_si256((__m256i*)(out + 2 * plane), _mm512_castsi512_si256(_mm512_permutexvar_epi8(blue, bgr)));
    }
  }
  // Interleaving low and high bytes works on 128-bit lanes: this order of quarters makes its results consecutive.
  const __m512i lanes = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  for (int channel = 0; channel < 3; ++channel) {
    __m512i t[8];
    for (int part = 0; part < 8; ++part) t[part] = _mm512_loadu_si512(table + channel * 512 + part * 64);
    int16_t* out = patches + target + channel * area;
    for (int64_t i = 0; i < area; i += 64) {
      const __m512i byte = _mm512_permutexvar_epi64(lanes, _mm512_loadu_si512(planes + channel * plane + i));
      const __mmask64 upper = _mm512_movepi8_mask(byte);
      const __m512i low = _mm512_mask_blend_epi8(
          upper, _mm512_permutex2var_epi8(t[0], byte, t[1]), _mm512_permutex2var_epi8(t[2], byte, t[3]));
      const __m512i high = _mm512_mask_blend_epi8(
          upper, _mm512_permutex2var_epi8(t[4], byte, t[5]), _mm512_permutex2var_epi8(t[6], byte, t[7]));
      const __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
      const int64_t left = area - i;
      if (left >= 64) {
        _mm512_storeu_si512(out + i, first);
        _mm512_storeu_si512(out + i + 32, second);
      } else {
        const uint64_t mask = ~uint64_t(0) >> (64 - left);
        _mm512_mask_storeu_epi16(out + i, (__mmask32)mask, first);
        _mm512_mask_storeu_epi16(out + i + 32, (__mmask32)(mask >> 32), second);
      }
    }
  }
  return 0;
}
"""


def launch(
    patches: Any,
    pixels: Any,
    offsets: Any,
    sizes: Any,
    cu_patches: Any,
    total_patches: int,
    patch_size: int,
    mean: Any,
    std: Any,
    crops: Any,
) -> None:
    num_values = 3 * patch_size**2
    vbmi = patch_size in VBMI_PATCHES and has_vbmi()
    build(patch_size, crops is not None, vbmi)(
        patches.data_ptr(),
        pixels.data_ptr(),
        offsets.data_ptr(),
        sizes.data_ptr(),
        cu_patches.data_ptr(),
        None if crops is None else crops.data_ptr(),
        value_table(tuple(mean), tuple(std), vbmi).data_ptr(),
        total_patches * num_values,
        pixels.shape[0],
        sizes.shape[0],
        cu_patches.shape[0] - 1,
        total_patches,
        GRAIN_VALUES // num_values + 1,
    )


@kernel("cpu")
def build(patch_size: int, cropped: bool, vbmi: bool) -> Any:
    """One kernel for each patch_size, with or without crops. A task is a patch.

    Paths: with ``vbmi`` a patch is the micro-kernel above, otherwise the loop over ``T.grid``, which runs on every
    processor. Both copy from the table, so they give the same bits.
    """
    num_values = T.dynamic("num_values", "int64")
    num_bytes = T.dynamic("num_bytes", "int64")
    num_images = T.dynamic("num_images")
    num_crops = T.dynamic("num_crops")
    area = patch_size * patch_size
    prelude = VBMI_PATCH.replace("SIZE", str(patch_size)) if vbmi else None

    @T.prim_func
    def bmp_to_patches(
        patches: T.Tensor((num_values,), "int16"),
        pixels: T.Tensor((num_bytes,), "uint8"),
        offsets: T.Tensor((num_images,), "int64"),
        sizes: T.Tensor((num_images, 2), "int32"),
        cu_patches: T.Tensor((num_crops + 1,), "int32"),
        crops: T.Tensor((num_crops, 5), "int32"),
        table: T.Tensor((3, 2, 256), "uint8") if vbmi else T.Tensor((3, 256), "int16"),
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1, prelude=prelude):
            crop = T.alloc_var("int32")
            image = T.alloc_var("int32")
            top = T.alloc_var("int32")
            left = T.alloc_var("int32")
            columns = T.alloc_var("int32")
            patch = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            place = T.alloc_var("int32")
            step = T.alloc_var("int64")
            origin = T.alloc_var("int64")
            source = T.alloc_var("int64")
            target = T.alloc_var("int64")
            crop = 0
            patch = begin
            while patch < T.min(end, cu_patches[num_crops]):
                while cu_patches[crop + 1] <= patch:
                    crop = crop + 1
                if cropped:
                    image = crops[crop, 0]
                    top = crops[crop, 1]
                    left = crops[crop, 2]
                    columns = T.truncdiv(crops[crop, 4], patch_size)
                else:
                    image = crop
                    top = 0
                    left = 0
                    columns = T.truncdiv(sizes[image, 1], patch_size)
                step = T.cast(sizes[image, 1], "int64") * 3 + 3 & -4
                origin = offsets[image] + top * step
                if sizes[image, 0] > 0:
                    origin = offsets[image] + (sizes[image, 0] - 1 - top) * step
                    step = -step
                origin = origin + left * 3
                stop = T.min(end, cu_patches[crop + 1])
                while patch < stop:
                    place = patch - cu_patches[crop]
                    source = (
                        origin
                        + T.truncdiv(place, columns) * patch_size * step
                        + T.truncmod(place, columns) * (3 * patch_size)
                    )
                    target = T.cast(patch, "int64") * (3 * area)
                    if vbmi:
                        T.evaluate(
                            T.call_extern(
                                "int32", "patch_vbmi", patches.data, target, pixels.data, source, step, table.data
                            )
                        )
                    else:
                        for channel, row, column in T.grid(3, patch_size, patch_size):
                            patches[target + (channel * area + row * patch_size + column)] = table[
                                channel, T.cast(pixels[source + row * step + (3 * column + 2 - channel)], "int32")
                            ]
                    patch = patch + 1
            target = T.cast(patch, "int64") * (3 * area)
            for value in T.serial(T.cast(end - patch, "int64") * (3 * area)):
                patches[target + value] = T.int16(0)

    return bmp_to_patches
