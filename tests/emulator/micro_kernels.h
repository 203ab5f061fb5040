#pragma once
// Kernels of a few instructions, right and wrong, on two warps and 1 KiB of shared memory.
#include "core/dtype.h"
#include "device/cuda/stream.h"

namespace tfm::test {

// c (16, 8) += a (16, 16) b (8, 16)^T, fragments filled by ldmatrix
template <class T>
void micro_mma(cuda::Stream&, float* c, const T* a, const T* b);
// fragments as each lane holds them: c (32, 4), a (32, 4), b (32, 2)
template <class T>
void micro_mma_fragments(cuda::Stream&, float* c, const std::uint32_t* a, const std::uint32_t* b);
// out (32, matrices): the fragments of `matrices` 8x8 matrices that follow one another in `in`
void micro_ldmatrix(cuda::Stream&, int matrices, bool transposed, std::uint32_t* out,
                    const std::uint16_t* in);

enum class Micro {
  shuffles,
  half_a_warp,
  two_shuffles,
  two_barriers,
  thread_left,
  no_barrier,
  warp_barrier,
  warp_barrier_between_warps,
  never_written,
  past_shared,
  before_shared,
  own_copy,
  copy_without_barrier,
  copy_without_wait,
  wait_after_barrier,
  copy,
  misaligned_row,
  misaligned_load,
  shared_as_global,
  past_global,
  read_past_global,
  writes_input,
  lane_skips,
  zero_fill,
  blocks_share_words,
  block_reads_block,
  mma_poison,
};
void micro(cuda::Stream&, Micro, float* out, float* in);

}  // namespace tfm::test
