// Plain vector operations; see packs.h.
#include <cmath>

#include "kernels/cuda/column_sum.h"

namespace tfm::kernels {
namespace {

template <class T>
struct Copy {
  CopyArgs<T> a;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto x = load_pack(a.x + at, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] * a.scale;
    store_pack(a.y + at, part, y, a.accumulate);
  }
};

template <class T>
struct CopyRows {
  CopyRowsArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.x_stride + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i];
    store_pack(a.y + row * a.y_stride + c, part, y, a.accumulate);
  }
};

template <class From, class To>
struct ConvertRows {
  ConvertRowsArgs<From, To> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.x_stride + c, part);
    Accum<To> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i];
    store_pack(a.y + row * a.y_stride + c, part, y, a.accumulate);
  }
};

template <class T>
struct Fill {
  FillArgs<T> a;
  __device__ void operator()(std::int64_t at, Part part) const {
    const Accum<T> value = cuda::widen<T>(a.value);
    const Accum<T> y[kPack] = {value, value, value, value, value, value, value, value};
    store_pack(a.y + at, part, y);
  }
};

template <class T>
struct AddBias {
  AddBiasArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    T* to = a.x + row * a.cols + c;
    const auto x = load_pack(to, part), bias = load_pack(a.bias + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] + bias[i];
    store_pack(to, part, y);
  }
};

template <class T>
struct Softcap {
  SoftcapArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.stride + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = a.cap * std::tanh(x[i] / a.cap);
    store_pack(a.y + row * a.stride + c, part, y);
  }
};

template <class T>
struct SoftcapBackward {
  SoftcapBackwardArgs<T> a;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto y = load_pack(a.y + at, part), dy = load_pack(a.dy + at, part);
    Accum<T> dx[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const Accum<T> t = y[i] / a.cap;
      dx[i] = dy[i] * (1 - t * t);
    }
    store_pack(a.dx + at, part, dx, a.accumulate);
  }
};

}  // namespace

template <class T>
void copy(cuda::Stream& stream, const CopyArgs<T>& a) {
  if (a.x != a.y || a.accumulate || a.scale != Accum<T>{1})
    over_array(stream, a.y, a.n, Copy<T>{a});
}
template <class T>
void copy_rows(cuda::Stream& stream, const CopyRowsArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, CopyRows<T>{a});
}
template <class From, class To>
void convert_rows(cuda::Stream& stream, const ConvertRowsArgs<From, To>& a) {
  over_rows(stream, a.rows, a.cols, ConvertRows<From, To>{a});
}
template <class T>
void fill(cuda::Stream& stream, const FillArgs<T>& a) {
  over_array(stream, a.y, a.n, Fill<T>{a});
}
template <class T>
void add_bias(cuda::Stream& stream, const AddBiasArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, AddBias<T>{a});
}
template <class T>
void softcap(cuda::Stream& stream, const SoftcapArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, Softcap<T>{a});
}
template <class T>
void softcap_backward(cuda::Stream& stream, const SoftcapBackwardArgs<T>& a) {
  over_array(stream, a.dx, a.n, SoftcapBackward<T>{a});
}

template <class T>
void column_sum(cuda::Stream& stream, const ColumnSumArgs<T>& a) {
  column_sum(stream, a, ReadColumns<T>{a.x});
}

#define TFM_INSTANTIATE(T)                                          \
  template void copy(cuda::Stream&, const CopyArgs<T>&);            \
  template void copy_rows(cuda::Stream&, const CopyRowsArgs<T>&);   \
  template void fill(cuda::Stream&, const FillArgs<T>&);            \
  template void column_sum(cuda::Stream&, const ColumnSumArgs<T>&); \
  template void add_bias(cuda::Stream&, const AddBiasArgs<T>&);     \
  template void softcap(cuda::Stream&, const SoftcapArgs<T>&);      \
  template void softcap_backward(cuda::Stream&, const SoftcapBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<float, float>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<double, double>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<float, bf16>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<float, f16>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<bf16, float>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<f16, float>&);

}  // namespace tfm::kernels
