#include "kernels/cuda/block.h"
#include "kernels/elementwise.h"

namespace tfm::kernels {
namespace {

constexpr int kThreads = 256;

// f.run<N>(i) does elements [i, i + N); the last thread does what is left one by one.
template <int N, class F>
__global__ void __launch_bounds__(kThreads) run_packs(F f, std::int64_t n) {
  std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i + N <= n) {
    f.template run<N>(i);
    return;
  }
  for (; i < n; ++i) f.template run<1>(i);
}

template <int N, class F>
void launch_packs(cuda::Stream& stream, const F& f, std::int64_t n) {
  const auto blocks = static_cast<unsigned>(ceil_div(ceil_div(n, N), kThreads));
  cuda::launch(stream, run_packs<N, F>, blocks, kThreads, 0, f, n);
}

// Packs of 16 bytes where all addresses (or'ed in `addresses`, with lengths of rows in bytes) are multiples of 16.
template <int N, class F>
void for_packs(cuda::Stream& stream, const F& f, std::int64_t n, std::uintptr_t addresses) {
  if (n == 0) return;
  addresses % 16 ? launch_packs<1>(stream, f, n) : launch_packs<N>(stream, f, n);
}
std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

template <class T>
struct Copy {
  CopyArgs<T> a;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto x = cuda::load<cuda::Pack<T, N>>(a.x + i);
    if (a.accumulate) {
      const auto y = cuda::load<cuda::Pack<T, N>>(a.y + i);
      TFM_UNROLL for (int j = 0; j < N; ++j)
        x.at[j] = cuda::narrow<T>(cuda::widen(y.at[j]) + cuda::widen(x.at[j]) * a.scale);
    } else if (a.scale != Wide<T>{1}) {
      TFM_UNROLL for (int j = 0; j < N; ++j)
        x.at[j] = cuda::narrow<T>(cuda::widen(x.at[j]) * a.scale);
    }
    cuda::store(a.y + i, x);
  }
};

template <class T>
struct Fill {
  FillArgs<T> a;
  template <int N>
  __device__ void run(std::int64_t i) const {
    cuda::Pack<T, N> y;
    TFM_UNROLL for (int j = 0; j < N; ++j)
      y.at[j] = a.value;
    cuda::store(a.y + i, y);
  }
};

template <class From, class To>
struct Convert {
  ConvertArgs<From, To> a;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto x = cuda::load<cuda::Pack<From, N>>(a.x + i);
    cuda::Pack<To, N> y;
    TFM_UNROLL for (int j = 0; j < N; ++j)
      y.at[j] = cuda::narrow<To>(cuda::widen(x.at[j]));
    cuda::store(a.y + i, y);
  }
};

template <class T>
struct AddBias {
  AddBiasArgs<T> a;
  template <int N>
  __device__ void run(std::int64_t i) const {  // N divides the columns
    auto x = cuda::load<cuda::Pack<T, N>>(a.x + i);
    const auto bias = cuda::load<cuda::Pack<T, N>>(a.bias + i % a.cols);
    TFM_UNROLL for (int j = 0; j < N; ++j)
      x.at[j] = cuda::narrow<T>(cuda::widen(x.at[j]) + cuda::widen(bias.at[j]));
    cuda::store(a.x + i, x);
  }
};

}  // namespace

template <class T>
void copy(cuda::Stream& stream, const CopyArgs<T>& a) {
  if (a.x == a.y && !a.accumulate && a.scale == Wide<T>{1}) return;
  for_packs<16 / sizeof(T)>(stream, Copy<T>{a}, a.n, address(a.x) | address(a.y));
}
template <class T>
void fill(cuda::Stream& stream, const FillArgs<T>& a) {
  for_packs<16 / sizeof(T)>(stream, Fill<T>{a}, a.n, address(a.y));
}
template <class From, class To>
void convert(cuda::Stream& stream, const ConvertArgs<From, To>& a) {
  for_packs<4>(stream, Convert<From, To>{a}, a.n, address(a.x) | address(a.y));
}
template <class T>
void add_bias(cuda::Stream& stream, const AddBiasArgs<T>& a) {
  for_packs<16 / sizeof(T)>(stream, AddBias<T>{a}, a.rows * a.cols, address(a.x) | address(a.bias) | a.cols * sizeof(T));
}

#define TFM_INSTANTIATE(T)                               \
  template void copy(cuda::Stream&, const CopyArgs<T>&); \
  template void fill(cuda::Stream&, const FillArgs<T>&); \
  template void add_bias(cuda::Stream&, const AddBiasArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(f16)
template void convert(cuda::Stream&, const ConvertArgs<float, bf16>&);
template void convert(cuda::Stream&, const ConvertArgs<float, f16>&);
template void convert(cuda::Stream&, const ConvertArgs<bf16, float>&);
template void convert(cuda::Stream&, const ConvertArgs<f16, float>&);

}  // namespace tfm::kernels
