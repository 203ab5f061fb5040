#pragma once
// Matrix products of 16-bit elements by warps and warpgroups, and loading of their factors.
#include "kernels/cuda/block.h"

#ifndef TFM_EMULATOR
namespace tfm::cuda {

// c (16, 8) += a (16, 16) b (16, 8). With g = lane / 4 and t = lane % 4:
//   c[i]    element (g + i/2 * 8, 2 t + i%2);
//   a[i]    elements (g + i%2 * 8, 2 t + i/2 * 8) and the next column;
//   b0, b1  rows 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of column g
// (PTX ISA, "Matrix Fragments for mma.m16n8k16").
template <class T>
__device__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                    std::uint32_t b1) {
  static_assert(is_half(dtype_of<T>));
  if constexpr (dtype_of<T> == DType::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads N 8x8 matrices of 16-bit elements. r[i] is this lane's pair of matrix i: row lane / 4,
// columns 2 * (lane % 4) and the next; transposed: of the transposed matrix. Lane 8 i + j passes
// the address of row j of matrix i; the addresses of lanes from 8 N on are not read.
#define TFM_LDMATRIX(name, modifier)                                                          \
  template <int N>                                                                            \
  __device__ void name(std::uint32_t(&r)[N], const void* row) {                               \
    static_assert(N == 1 || N == 2 || N == 4);                                                \
    if constexpr (N == 1)                                                                     \
      asm volatile("ldmatrix.sync.aligned.m8n8.x1" modifier ".shared.b16 {%0},[%1];"          \
                   : "=r"(r[0])                                                               \
                   : "r"(shared_address(row))                                                 \
                   : "memory");                                                               \
    else if constexpr (N == 2)                                                                \
      asm volatile("ldmatrix.sync.aligned.m8n8.x2" modifier ".shared.b16 {%0,%1},[%2];"       \
                   : "=r"(r[0]), "=r"(r[1])                                                   \
                   : "r"(shared_address(row))                                                 \
                   : "memory");                                                               \
    else                                                                                      \
      asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0,%1,%2,%3},[%4];" \
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                           \
                   : "r"(shared_address(row))                                                 \
                   : "memory");                                                               \
  }
TFM_LDMATRIX(ldmatrix, "")
TFM_LDMATRIX(ldmatrix_transposed, ".trans")
#undef TFM_LDMATRIX

// Warpgroup products: each of four warps holds 16 rows of the left factor, in fragments as for mma.
// Only on sm_90a; otherwise the kernel traps. The right factor is read asynchronously from shared
// memory, in rows of 64 elements. Chunk i (of eight elements) of row r is at place i ^ (r % 8), and
// row 0 is at a multiple of 1 KiB (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions",
// 128-byte swizzling).

// Whether the running code has them.
__device__ constexpr bool has_warpgroup_code() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  return true;
#else
  return false;
#endif
}
inline bool allows_warpgroups() { return true; }  // a switch of the emulator

// Makes this thread's writes and finished copies to shared memory visible to warpgroup products
// after the next barrier.
__device__ inline void show_to_warpgroups() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// To be called before the products that use these sums and left factors.
template <int N, int K>
__device__ void warpgroup_begin(float (&c)[N][4], std::uint32_t (&a)[K][4]) {
  TFM_UNROLL for (int n = 0; n < N; ++n) { TFM_UNROLL for (int e = 0; e < 4; ++e) hide(c[n][e]); }
  TFM_UNROLL for (int k = 0; k < K; ++k) { TFM_UNROLL for (int i = 0; i < 4; ++i) hide(a[k][i]); }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// c (64, N) += a (64, 16) b^T with b (N, 16) or, Transposed, a b with b (16, N), N = 64. The result
// is columns [8 First, 8 First + N) of the sums.
template <class T, bool Transposed, int N, int First, int M>
__device__ void warpgroup_mma(float (&c)[M][4], const std::uint32_t (&a)[4], const T* b) {
  static_assert(N == 64 || (N == 32 && !Transposed));
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr std::uint64_t kEightRows = 1024 >> 4, kSwizzle128 = 1;
  const std::uint64_t at = (shared_address(b) & 0x3FFFF) >> 4 | std::uint64_t{1} << 16 |
                           kEightRows << 32 | kSwizzle128 << 62;
#define TFM_SUM(i) \
  "+f"(c[First + i][0]), "+f"(c[First + i][1]), "+f"(c[First + i][2]), "+f"(c[First + i][3])
#define TFM_WGMMA(type)                                                                         \
  if constexpr (N == 64)                                                                        \
    asm volatile(                                                                               \
        "{.reg .pred add; setp.eq.u32 add,0,0;"                                                 \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                             \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"  \
        "%23,%24,%25,%26,%27,%28,%29,%30,%31},{%32,%33,%34,%35},%36,add,1,1,%37;}"              \
        : TFM_SUM(0), TFM_SUM(1), TFM_SUM(2), TFM_SUM(3), TFM_SUM(4), TFM_SUM(5), TFM_SUM(6),   \
          TFM_SUM(7)                                                                            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at), "n"(Transposed));                \
  else                                                                                          \
    asm volatile(                                                                               \
        "{.reg .pred add; setp.eq.u32 add,0,0;"                                                 \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                             \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},{%16,%17,%18,%19},%20,add,1," \
        "1,0;}"                                                                                 \
        : TFM_SUM(0), TFM_SUM(1), TFM_SUM(2), TFM_SUM(3)                                        \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at))
  if constexpr (dtype_of<T> == DType::bf16)
    TFM_WGMMA("bf16");
  else
    TFM_WGMMA("f16");
#undef TFM_WGMMA
#undef TFM_SUM
#else
  (void)c, (void)a, (void)b;
  __trap();
#endif
}

// Waits until the sums are complete and the right factor is no longer read.
template <int N>
__device__ void warpgroup_end(float (&c)[N][4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  TFM_UNROLL for (int n = 0; n < N; ++n) { TFM_UNROLL for (int e = 0; e < 4; ++e) hide(c[n][e]); }
}

}  // namespace tfm::cuda
#endif
