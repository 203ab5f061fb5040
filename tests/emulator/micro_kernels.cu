#include "kernels/cuda/tensor_cores.h"
#include "micro_kernels.h"

namespace tfm::test {
namespace {

constexpr int kPitch = 24;  // elements from one row of shared memory to the next: keeps 16-byte
                            // alignment, avoids bank conflicts

template <class T>
__global__ void mma_kernel(float* c, const T* a, const T* b) {
  T *sa = cuda::shared_memory<T>(), *sb = sa + 16 * kPitch;
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  for (int i = lane; i < 16 * 16; i += 32) cuda::store(sa + i / 16 * kPitch + i % 16, a[i]);
  for (int i = lane; i < 8 * 16; i += 32) cuda::store(sb + i / 16 * kPitch + i % 16, b[i]);
  cuda::warp_barrier();
  std::uint32_t fa[4], fb[2];
  cuda::ldmatrix(fa, sa + lane % 16 * kPitch + lane / 16 * 8);
  cuda::ldmatrix(fb, sb + lane % 8 * kPitch + lane / 8 % 2 * 8);
  float fc[4];
  for (int i = 0; i < 4; ++i) fc[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  cuda::mma<T>(fc, fa, fb[0], fb[1]);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fc[i];
}

template <class T>
__global__ void fragments_kernel(float* c, const std::uint32_t* a, const std::uint32_t* b) {
  const int lane = threadIdx.x;
  float fc[4];
  std::uint32_t fa[4];
  for (int i = 0; i < 4; ++i) fc[i] = c[lane * 4 + i], fa[i] = a[lane * 4 + i];
  cuda::mma<T>(fc, fa, b[lane * 2], b[lane * 2 + 1]);
  for (int i = 0; i < 4; ++i) c[lane * 4 + i] = fc[i];
}

template <int N>
__global__ void ldmatrix_kernel(bool transposed, std::uint32_t* out, const std::uint16_t* in) {
  auto* s = cuda::shared_memory<std::uint16_t>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) cuda::store(s + i, in[i]);
  cuda::warp_barrier();
  std::uint32_t r[N];
  if (transposed)
    cuda::ldmatrix_transposed(r, s + lane * 8);
  else
    cuda::ldmatrix(r, s + lane * 8);
  for (int i = 0; i < N; ++i) out[lane * N + i] = r[i];
}

__device__ float sum_of_shuffles(int lane, float x) {
  for (int m = 16; m > 0; m /= 2) x += cuda::shuffle_xor(x, m);
  x += cuda::shuffle(x, 3) + cuda::shuffle_up(static_cast<float>(lane), 1) +
       cuda::shuffle_down(static_cast<float>(lane), 2);
  return x + static_cast<float>(cuda::ballot(lane % 3 == 0) & 0xFF);
}

__device__ void copies(Micro which, float* s, float* out, const float* in, int t) {
  cuda::copy_async<4>(s + t, in + t, 4);
  cuda::copy_async_commit();
  if (which == Micro::copy_without_wait) {
    cuda::block_barrier();
  } else if (which == Micro::wait_after_barrier) {
    cuda::block_barrier();
    cuda::copy_async_wait<0>();
  } else {
    cuda::copy_async_wait<0>();
    if (which == Micro::copy) cuda::block_barrier();
  }
  out[t] = s[which == Micro::own_copy || which == Micro::copy_without_wait ? t : t ^ 1];
}

__device__ void divergent(Micro which, float* out, int t) {
  const int lane = t % 32;
  float x = 0;
  if (which == Micro::half_a_warp && lane < 16) cuda::warp_barrier();
  if (which == Micro::two_shuffles) {
    if (lane < 7)
      x = cuda::shuffle_xor(x, 1);
    else
      x = cuda::shuffle_xor(x, 2);
  }
  if (which == Micro::two_barriers) {
    if (t < 32)
      cuda::block_barrier();
    else
      cuda::block_barrier();
  }
  if (which == Micro::thread_left) {
    if (t == 5) return;
    cuda::block_barrier();
  }
  std::uint32_t r[4];
  if (which == Micro::lane_skips && lane < 31) cuda::ldmatrix(r, cuda::shared_memory());
  out[t] = x;
}

__device__ void exchanges(Micro which, float* s, float* out, const float* in, int t) {
  s[t] = in[t];
  if (which != Micro::no_barrier) cuda::warp_barrier();
  out[t] = s[t ^ (which == Micro::warp_barrier_between_warps ? 32 : 1)];
}

__device__ void fragments(Micro which, float* s, float* out, const float* in, int t) {
  std::uint32_t r[4];
  cuda::store(s + t * 4, cuda::Pack<float>{1, 2, 3, 4});
  cuda::block_barrier();
  if (which == Micro::misaligned_row) cuda::ldmatrix(r, s + t % 32 * 4 + (t % 32 == 9));
  if (which == Micro::misaligned_load) out[t] = cuda::load<cuda::Pack<float>>(in + (t == 3)).at[0];
  if (which == Micro::mma_poison) {
    float c[4] = {};
    cuda::ldmatrix(r, s + t % 32 * 4);
    if (t == 40) r[2] = ~0u;
    cuda::mma<bf16>(c, r, r[0], r[1]);
    out[t] = c[0];
  }
}

__global__ void micro_kernel(Micro which, float* out, float* in) {
  float* s = cuda::shared_memory<float>();
  const int t = threadIdx.x;
  switch (which) {
    case Micro::shuffles:
      out[t] = sum_of_shuffles(t % 32, in[t]);
      break;
    case Micro::half_a_warp:
    case Micro::two_shuffles:
    case Micro::two_barriers:
    case Micro::thread_left:
    case Micro::lane_skips:
      divergent(which, out, t);
      break;
    case Micro::no_barrier:
    case Micro::warp_barrier:
    case Micro::warp_barrier_between_warps:
      exchanges(which, s, out, in, t);
      break;
    case Micro::never_written:
      out[t] = s[t];
      break;
    case Micro::past_shared:
      s[t == 63 ? 256 : t] = 1;
      break;
    case Micro::before_shared:
      s[t - 1] = 1;
      break;
    case Micro::own_copy:
    case Micro::copy_without_barrier:
    case Micro::copy_without_wait:
    case Micro::wait_after_barrier:
    case Micro::copy:
      copies(which, s, out, in, t);
      break;
    case Micro::misaligned_row:
    case Micro::misaligned_load:
    case Micro::mma_poison:
      fragments(which, s, out, in, t);
      break;
    case Micro::shared_as_global:
      cuda::store_global(s + t * 4, cuda::Pack<float>{1, 2, 3, 4});
      break;
    case Micro::past_global:
      out[t == 63 ? 64 : t] = 1;
      break;
    case Micro::read_past_global:
      out[t] = in[t + 1];
      break;
    case Micro::writes_input:
      in[t] = 1;
      break;
    case Micro::zero_fill:
      cuda::copy_async<16>(s + t * 4, in + t % 16 * 4, t == 3 ? 8 : 16);
      cuda::copy_async_commit();
      cuda::copy_async_wait<0>();
      out[t] = s[t * 4 + 3];
      break;
    case Micro::blocks_share_words:
      out[t] = static_cast<float>(t);
      break;
    case Micro::block_reads_block:
      if (blockIdx.x == 1)
        out[t] = 1;
      else if (blockIdx.x == 2 && out[t] == 5)
        out[t + 64] = 1;
      break;
  }
}

}  // namespace

template <class T>
void micro_mma(cuda::Stream& stream, float* c, const T* a, const T* b) {
  cuda::launch(stream, mma_kernel<T>, 1, 32, 24 * kPitch * sizeof(T), c, a, b);
}
template <class T>
void micro_mma_fragments(cuda::Stream& stream, float* c, const std::uint32_t* a,
                         const std::uint32_t* b) {
  cuda::launch(stream, fragments_kernel<T>, 1, 32, 0, c, a, b);
}
void micro_ldmatrix(cuda::Stream& stream, int matrices, bool transposed, std::uint32_t* out,
                    const std::uint16_t* in) {
  const auto kernel = matrices == 1   ? ldmatrix_kernel<1>
                      : matrices == 2 ? ldmatrix_kernel<2>
                                      : ldmatrix_kernel<4>;
  cuda::launch(stream, kernel, 1, 32, 512, transposed, out, in);
}
void micro(cuda::Stream& stream, Micro which, float* out, float* in) {
  const bool grid = which == Micro::blocks_share_words || which == Micro::block_reads_block;
  cuda::launch(stream, micro_kernel, grid ? 4 : 1, 64, 1024, which, out, in);
}

template void micro_mma(cuda::Stream&, float*, const bf16*, const bf16*);
template void micro_mma(cuda::Stream&, float*, const f16*, const f16*);
template void micro_mma_fragments<bf16>(cuda::Stream&, float*, const std::uint32_t*,
                                        const std::uint32_t*);
template void micro_mma_fragments<f16>(cuda::Stream&, float*, const std::uint32_t*,
                                       const std::uint32_t*);

}  // namespace tfm::test
