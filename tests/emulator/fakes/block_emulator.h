#pragma once
// What kernels/cuda/block.h and tensor_cores.h offer, on the emulator. Each warp or block
// instruction knows the place that called it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "../emulator.h"
#include "../fake_runtime.h"
#include "core/dtype.h"
#include "device/cuda/stream.h"

#define __global__
#define __device__
#define __noinline__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__
#define threadIdx (::tfm::emulator::current.thread)
#define blockIdx (::tfm::emulator::current.block)
#define blockDim (::tfm::emulator::current.block_size)
#define gridDim (::tfm::emulator::current.grid_size)
#define TFM_UNROLL

namespace tfm::emulator {

using Place = std::source_location;
struct Current {
  dim3 thread, block, block_size, grid_size;
  char* shared;
};
extern Current current;

void block_barrier(Place);
void warp_barrier(Place);
enum class Shuffle : unsigned { idx, up, down, exclusive_or };
std::uint64_t shuffle(Shuffle, std::uint64_t value, int operand, Place);
unsigned ballot(bool, Place);
void mma(DType, float* c, const std::uint32_t* a, const std::uint32_t* b, Place);
void ldmatrix(int matrices, bool transposed, std::uint32_t* r, const void* row, Place);
void warpgroup_mma(DType, bool transposed, int columns, float* c, const std::uint32_t* a,
                   const void* b, Place);
void show_to_warpgroups(Place);
void copy_async(void* shared, const void* global, int bytes, int used, Place);
void copy_async_commit();
void copy_async_wait(int pending, Place);
void check_alignment(const void* p, std::size_t bytes, Place);
void check_global(const void* p, Place);
float perturbed(float x);

template <class V>
V shuffled(Shuffle mode, V v, int operand, Place at) {
  static_assert(sizeof(V) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  bits = shuffle(mode, bits, operand, at);
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

}  // namespace tfm::emulator

namespace tfm::cuda {

#define TFM_PLACE emulator::Place at = emulator::Place::current()
inline void block_barrier(TFM_PLACE) { emulator::block_barrier(at); }
inline void warp_barrier(TFM_PLACE) { emulator::warp_barrier(at); }
template <class V>
V shuffle(V v, int lane, TFM_PLACE) {
  return emulator::shuffled(emulator::Shuffle::idx, v, lane, at);
}
template <class V>
V shuffle_up(V v, int by, TFM_PLACE) {
  return emulator::shuffled(emulator::Shuffle::up, v, by, at);
}
template <class V>
V shuffle_down(V v, int by, TFM_PLACE) {
  return emulator::shuffled(emulator::Shuffle::down, v, by, at);
}
template <class V>
V shuffle_xor(V v, int mask, TFM_PLACE) {
  return emulator::shuffled(emulator::Shuffle::exclusive_or, v, mask, at);
}
inline unsigned ballot(bool p, TFM_PLACE) { return emulator::ballot(p, at); }

template <class T = char>
T* shared_memory() {
  return reinterpret_cast<T*>(emulator::current.shared);
}

template <class V>
V load(const void* p, TFM_PLACE) {
  emulator::check_alignment(p, alignof(V), at);
  V v;
  std::memcpy(&v, __builtin_assume_aligned(p, alignof(V)), sizeof v);
  return v;
}
template <class V>
void store(void* p, const V& v, TFM_PLACE) {
  emulator::check_alignment(p, alignof(V), at);
  std::memcpy(__builtin_assume_aligned(p, alignof(V)), &v, sizeof v);
}
template <class V>
void store_global(void* p, const V& v, TFM_PLACE) {
  emulator::check_global(p, at);
  store(p, v, at);
}

template <class T>
void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         TFM_PLACE) {
  const std::uint32_t b[2] = {b0, b1};
  emulator::mma(dtype_of<T>, c, a, b, at);
}
template <int N>
void ldmatrix(std::uint32_t (&r)[N], const void* row, TFM_PLACE) {
  emulator::ldmatrix(N, false, r, row, at);
}
template <int N>
void ldmatrix_transposed(std::uint32_t (&r)[N], const void* row, TFM_PLACE) {
  emulator::ldmatrix(N, true, r, row, at);
}

template <int Bytes>
void copy_async(void* shared, const void* global, int used, TFM_PLACE) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  emulator::copy_async(shared, global, Bytes, used, at);
}
inline void copy_async_commit() { emulator::copy_async_commit(); }
inline void hide(std::uint32_t&) {}

constexpr bool has_warpgroup_code() { return true; }
inline bool allows_warpgroups() { return emulator::options.warpgroups; }
inline void show_to_warpgroups(TFM_PLACE) { emulator::show_to_warpgroups(at); }
template <int N, int K>
void warpgroup_begin(float (&)[N][4], std::uint32_t (&)[K][4]) {}
template <class T, bool Transposed, int N, int First, int M>
void warpgroup_mma(float (&c)[M][4], const std::uint32_t (&a)[4], const T* b, TFM_PLACE) {
  static_assert(N == 64 || (N == 32 && !Transposed));
  emulator::warpgroup_mma(dtype_of<T>, Transposed, N, c[First], a, b, at);
}
template <int N>
void warpgroup_end(float (&)[N][4]) {}
template <int Pending>
void copy_async_wait(TFM_PLACE) {
  emulator::copy_async_wait(Pending, at);
}
#undef TFM_PLACE

inline float exp2_approximate(float x) { return emulator::perturbed(std::exp2(x)); }
inline float reciprocal_approximate(float x) { return 1 / x; }
inline float log2_approximate(float x) { return std::log2(x); }
template <class T>
Accum<T> widen(T x) {
  return static_cast<Accum<T>>(x);
}
template <class T>
T narrow(Accum<T> x) {
  return static_cast<T>(x);
}
template <class T>
std::uint32_t pack2(float low, float high) {
  return T(low).bits | static_cast<std::uint32_t>(T(high).bits) << 16;
}

inline std::size_t shared_memory_limit() { return 163 << 10; }

template <class... P, class... A>
void launch(Stream& stream, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            const A&... args) {
  emulator::submit(stream.get(), [=, values = std::tuple<P...>(P(args)...)] {
    emulator::launch(grid, block, shared_bytes, [&] { std::apply(kernel, values); });
  });
}

}  // namespace tfm::cuda
