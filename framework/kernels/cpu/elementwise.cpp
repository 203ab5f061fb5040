#include "kernels/elementwise.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/cpu/simd_softcap.h"

namespace tfm::kernels {

template <class T>
void copy(cpu::Stream& stream, const CopyArgs<T>& a) {
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    const T* x = a.x + begin;
    T* y = a.y + begin;
    if (a.accumulate)
      each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
        store(y + i, load(y + i, m) + load(x + i, m) * a.scale, m);
      });
    else if (a.scale != Accum<T>{1})
      each<T>(end - begin, [&](std::int64_t i, auto m)
                               TFM_INLINE { store(y + i, load(x + i, m) * a.scale, m); });
    else if (x != y)
      std::memcpy(y, x, static_cast<std::size_t>(end - begin) * sizeof(T));
  });
}

template <class T>
void copy_rows(cpu::Stream& stream, const CopyRowsArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    cpu::Stream alone{1};
    copy(alone, CopyArgs<T>{a.cols, a.x + r * a.x_stride, a.y + r * a.y_stride, a.accumulate});
  });
}

template <class From, class To>
void convert_rows(cpu::Stream& stream, const ConvertRowsArgs<From, To>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    const From* x = a.x + r * a.x_stride;
    To* y = a.y + r * a.y_stride;
    each<From>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      store(y + i, a.accumulate ? load(y + i, m) + load(x + i, m) : load(x + i, m), m);
    });
  });
}

template <class T>
void fill(cpu::Stream& stream, const FillArgs<T>& a) {
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    std::fill(a.y + begin, a.y + end, a.value);
  });
}

template <class T>
void column_sum(cpu::Stream& stream, const ColumnSumArgs<T>& a) {
  const RowBlocks blocks(a.rows);
  const std::int64_t width = round_up(a.cols, kLanes<T>);
  Accum<T>* partial = scratch<Accum<T>, struct PartialSums>(blocks.count * width);
  parallel(stream, blocks.count, a.rows * a.cols, [&](std::int64_t b) {
    Accum<T>* sum = partial + b * width;
    std::fill_n(sum, a.cols, Accum<T>{0});
    std::int64_t r = blocks.begin(b);
    for (; r + 4 <= blocks.end(b); r += 4) {
      const T *x0 = a.x + r * a.stride, *x1 = x0 + a.stride, *x2 = x1 + a.stride,
              *x3 = x2 + a.stride;
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        store(sum + i,
              load(sum + i, m) +
                  ((load(x0 + i, m) + load(x1 + i, m)) + (load(x2 + i, m) + load(x3 + i, m))),
              m);
      });
    }
    for (; r < blocks.end(b); ++r) {
      const T* x = a.x + r * a.stride;
      each<T>(a.cols, [&](std::int64_t i, auto m)
                          TFM_INLINE { store(sum + i, load(sum + i, m) + load(x + i, m), m); });
    }
  });
  each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
    Vec<T> sum{};
    for (std::int64_t b = 0; b < blocks.count; ++b) sum += load(partial + b * width + i, m);
    store(a.y + i, a.accumulate ? load(a.y + i, m) + sum : sum, m);
  });
}

template <class T>
void add_bias(cpu::Stream& stream, const AddBiasArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    T* x = a.x + r * a.cols;
    each<T>(a.cols, [&](std::int64_t i, auto m)
                        TFM_INLINE { store(x + i, load(x + i, m) + load(a.bias + i, m), m); });
  });
}

template <class T>
void softcap(cpu::Stream& stream, const SoftcapArgs<T>& a) {
  const Accum<T> inverse = 1 / a.cap;
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    const T* x = a.x + r * a.stride;
    T* y = a.y + r * a.stride;
    each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      store(y + i, softcap_tanh(load(x + i, m) * inverse) * a.cap, m);
    });
  });
}

template <class T>
void softcap_backward(cpu::Stream& stream, const SoftcapBackwardArgs<T>& a) {
  const Accum<T> inverse = 1 / a.cap;
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    T* dx = a.dx + begin;
    each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
      const Vec<T> t = load(a.y + begin + i, m) * inverse,
                   d = load(a.dy + begin + i, m) * (Accum<T>{1} - t * t);
      store(dx + i, a.accumulate ? load(dx + i, m) + d : d, m);
    });
  });
}

#define TFM_INSTANTIATE(T)                                         \
  template void copy(cpu::Stream&, const CopyArgs<T>&);            \
  template void copy_rows(cpu::Stream&, const CopyRowsArgs<T>&);   \
  template void fill(cpu::Stream&, const FillArgs<T>&);            \
  template void column_sum(cpu::Stream&, const ColumnSumArgs<T>&); \
  template void add_bias(cpu::Stream&, const AddBiasArgs<T>&);     \
  template void softcap(cpu::Stream&, const SoftcapArgs<T>&);      \
  template void softcap_backward(cpu::Stream&, const SoftcapBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)
template void convert_rows(cpu::Stream&, const ConvertRowsArgs<float, float>&);
template void convert_rows(cpu::Stream&, const ConvertRowsArgs<double, double>&);
template void convert_rows(cpu::Stream&, const ConvertRowsArgs<float, bf16>&);
template void convert_rows(cpu::Stream&, const ConvertRowsArgs<float, f16>&);
template void convert_rows(cpu::Stream&, const ConvertRowsArgs<bf16, float>&);
template void convert_rows(cpu::Stream&, const ConvertRowsArgs<f16, float>&);

}  // namespace tfm::kernels
