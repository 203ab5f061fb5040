#pragma once
// AMX, the tile instructions of Intel's processors from Sapphire Rapids on: a tile has 16 rows of
// 64 bytes. As left factor of a bf16 product it holds 16 rows of 32 terms, as right factor 16 pairs
// of terms of 16 columns, as sum 16 x 16 floats.
#include <cstdint>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tfm::kernels {

// Whether processor and system have them. ONEDNN_MAX_CPU_ISA hides them.
bool has_amx();

#ifdef __x86_64__
// Compiled for these instruction sets whatever -march says; called only where has_amx().
#define TFM_AMX_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))

struct alignas(64) AmxTileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Not on the stack: GCC 12 takes _tile_loadconfig to read its first bytes only.
inline constexpr AmxTileShapes kAmxTileShapes;

// The calling thread's eight tiles.
class AmxTiles {
 public:
  TFM_AMX_TARGET AmxTiles() { _tile_loadconfig(&kAmxTileShapes); }
  TFM_AMX_TARGET ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};
#endif

}  // namespace tfm::kernels
