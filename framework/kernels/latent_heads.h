#pragma once
// Heads of latent attention (DeepSeek-AI 2024a, "DeepSeek-V2", section 2.1): the columns of queries
// and keys that turn with the position apart from those that do not, and one turning key that all
// heads share. Pair (2 i, 2 i + 1) of R turning columns turns by t * frequency[i], where t is the
// row's position.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

struct LatentSizes {
  std::int64_t heads = 0;                           // H of this rank
  std::int64_t plain = 0, turning = 0, values = 0;  // P, R, V columns of a head; V <= P + R
  constexpr std::int64_t head() const { return plain + turning; }  // D
};
struct Positions {
  std::int64_t length = 0, offset = 0;  // of row r: r % length + offset
  const double* frequency = nullptr;    // (R / 2)
  double factor = 1;                    // of turned columns
};

// qkv (N, 3 H D): queries, keys, and values, behind each of which are D - V zeros.
template <class T>
struct LatentHeadsArgs {
  std::int64_t rows = 0;  // N
  LatentSizes sizes;
  Positions positions;
  const T* q = nullptr;       // (N, H (P + R)), not yet turned
  const T* kv = nullptr;      // (N, H (P + V)), of each head the key, then the value
  const T* shared = nullptr;  // (N, R), not yet turned
  T* qkv = nullptr;
};
template <class T>
struct LatentHeadsBackwardArgs {
  std::int64_t rows = 0;
  LatentSizes sizes;
  Positions positions;
  const T* dqkv = nullptr;
  // As above, each with whether it is added to.
  T *dq = nullptr, *dkv = nullptr, *dshared = nullptr;
  bool adds_q = false, adds_kv = false, adds_shared = false;
};
// y = x turned, of `heads` heads of R columns in each row.
template <class T>
struct TurnArgs {
  std::int64_t rows = 0, heads = 0, turning = 0;
  Positions positions;
  const T* x = nullptr;
  std::int64_t x_row = 0, x_head = 0;  // elements between rows, and between heads
  T* y = nullptr;
  std::int64_t y_row = 0, y_head = 0;
};

#define TFM_LATENT_KERNELS(Stream)                                        \
  template <class T>                                                      \
  void latent_heads(Stream&, const LatentHeadsArgs<T>&);                  \
  template <class T>                                                      \
  void latent_heads_backward(Stream&, const LatentHeadsBackwardArgs<T>&); \
  template <class T>                                                      \
  void turn(Stream&, const TurnArgs<T>&);
TFM_LATENT_KERNELS(cpu::Stream)
TFM_LATENT_KERNELS(cuda::Stream)
#undef TFM_LATENT_KERNELS

}  // namespace tfm::kernels
