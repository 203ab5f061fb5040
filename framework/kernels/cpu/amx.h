#pragma once
// AMX, the tile instructions of Intel processors since Sapphire Rapids. A tile has 16 rows of 64
// bytes. In bf16 products it holds 16 rows of 32 terms as the left factor, 16 pairs of terms of 16
// columns as the right factor, and 16 x 16 floats as the sum.
#include <cstdint>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tfm::kernels {

// Whether the processor and the operating system support AMX. ONEDNN_MAX_CPU_ISA can hide it.
bool has_amx();

#ifdef __x86_64__
// Compiles a function for these instruction sets regardless of -march. Call it only if has_amx().
#define TFM_AMX_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))

struct alignas(64) AmxTileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Not on the stack: GCC 12 assumes that _tile_loadconfig reads only its first bytes.
inline constexpr AmxTileShapes kAmxTileShapes;

// Configures the calling thread's eight tiles in this object's lifetime.
class AmxTiles {
 public:
  TFM_AMX_TARGET AmxTiles() { _tile_loadconfig(&kAmxTileShapes); }
  TFM_AMX_TARGET ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};
#endif

}  // namespace tfm::kernels
