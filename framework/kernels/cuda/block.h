#pragma once
// The features of CUDA that kernel sources use: instructions of thread blocks, 16-bit conversions,
// scratch memory and launches; tensor_cores.h has products. With TFM_EMULATOR the same sources are
// compiled as C++ and run on CPUs (tests/emulator). Kernels must therefore use nothing else of
// CUDA, use only dynamic shared memory, and call warp (block) instructions with all lanes of the
// warp (threads of the block).
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "device/cuda/scratch.h"

#ifdef TFM_EMULATOR
#include "block_emulator.h"
#else

#define TFM_UNROLL _Pragma("unroll")

namespace tfm::cuda {

__device__ inline void block_barrier() { __syncthreads(); }
__device__ inline void warp_barrier() { __syncwarp(); }
template <class V>
__device__ V shuffle(V v, int lane) {
  return __shfl_sync(~0u, v, lane);
}
template <class V>
__device__ V shuffle_up(V v, int by) {
  return __shfl_up_sync(~0u, v, by);
}
template <class V>
__device__ V shuffle_down(V v, int by) {
  return __shfl_down_sync(~0u, v, by);
}
template <class V>
__device__ V shuffle_xor(V v, int mask) {
  return __shfl_xor_sync(~0u, v, mask);
}
__device__ inline unsigned ballot(bool p) { return __ballot_sync(~0u, p); }

extern __shared__ __align__(1024) char dynamic_shared_memory[];
template <class T = char>
__device__ T* shared_memory() {
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

// Loads and stores in one access of sizeof(V) bytes; the address is a multiple of alignof(V).
template <class V>
__device__ V load(const void* p) {
  return *static_cast<const V*>(p);
}
template <class V>
__device__ void store(void* p, const V& v) {
  *static_cast<V*>(p) = v;
}
// The same in global memory. Written so that it stays one access: where a branch stores the same
// elements one by one, compilers share some of its stores with the vector's.
template <class V>
__device__ void store_global(void* p, const V& v) {
  if constexpr (sizeof(V) == 16) {
    const auto w = std::bit_cast<uint4>(v);
    asm volatile("st.global.v4.b32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z),
                 "r"(w.w)
                 : "memory");
  } else {
    store(p, v);
  }
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Starts to copy Bytes (4, 8 or 16) to shared memory: `used` bytes from `global`, which is not read
// if `used` is 0, followed by zeros.
template <int Bytes>
__device__ void copy_async(void* shared, const void* global, int used) {
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(used)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0],[%1],%2,%3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(Bytes), "r"(used)
                 : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most Pending of this thread's groups are pending. Other threads see the bytes
// after a barrier.
template <int Pending>
__device__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Hides from the compiler how the word was computed.
__device__ inline void hide(std::uint32_t& word) { asm volatile("" : "+r"(word)); }
__device__ inline void hide(float& word) { asm volatile("" : "+f"(word)); }

__device__ inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float log2_approximate(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}

// Converts from and to Accum<T>, with the same bits as core/half.h except for the payload of NaNs.
template <class T>
__device__ Accum<T> widen(T x) {
  if constexpr (dtype_of<T> == DType::f16) {
    float y;
    asm("cvt.f32.f16 %0,%1;" : "=f"(y) : "h"(x.bits));
    return y;
  } else {
    return x;
  }
}
template <class T>
__device__ T narrow(Accum<T> x) {
  T y;
  if constexpr (dtype_of<T> == DType::bf16)
    asm("cvt.rn.bf16.f32 %0,%1;" : "=h"(y.bits) : "f"(x));
  else if constexpr (dtype_of<T> == DType::f16)
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(y.bits) : "f"(x));
  else
    y = x;
  return y;
}
template <class T>
__device__ std::uint32_t pack2(float low, float high) {
  std::uint32_t r;
  if constexpr (dtype_of<T> == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Most bytes of shared memory that a thread block can have on the current device.
inline std::size_t shared_memory_limit() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<std::size_t>(bytes);
}

// Starts kernel(args...) on the stream. The grid must not be empty. Throws Error(environment) if
// the GPU has too little shared memory.
template <class... P, class... A>
void launch(Stream& stream, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            const A&... args) {
  if (shared_bytes > 48 * 1024) {
    // The limit is only raised: graphs may hold launches that need more.
    if (const std::size_t most = shared_memory_limit(); shared_bytes > most)
      throw Error(ExitCode::environment,
                  "a block of threads of this GPU can have " + std::to_string(most) +
                      " bytes of shared memory, and a kernel for these sizes needs " +
                      std::to_string(shared_bytes) +
                      "; use smaller heads of attention, or another GPU");
    cudaFuncAttributes known;
    check(cudaFuncGetAttributes(&known, kernel));
    if (static_cast<std::size_t>(known.maxDynamicSharedSizeBytes) < shared_bytes)
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes)));
  }
  // clang-format off
  kernel<<<grid, block, shared_bytes, stream.get()>>>(P(args)...);
  // clang-format on
  check(cudaGetLastError());
}

}  // namespace tfm::cuda
#endif

namespace tfm::cuda {

// N adjacent elements that are loaded and stored at once; 16 bytes by default.
template <class T, int N = 16 / sizeof(T)>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

}  // namespace tfm::cuda
