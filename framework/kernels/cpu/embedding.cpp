#include "kernels/embedding.h"

#include "kernels/cpu/rotations.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

// f(begin, columns) over parts of a row, one a thread: sums over rows then need no second pass.
template <class F>
void over_columns(cpu::Stream& stream, std::int64_t cols, std::int64_t work, F&& f) {
  const std::int64_t width = round_up(ceil_div(cols, std::max(1, stream.threads)), 16),
                     parts = ceil_div(cols, width);
  parallel(stream, parts, work,
           [&](std::int64_t p) { f(p * width, std::min(width, cols - p * width)); });
}

template <class Y, class T>
TFM_INLINE inline void add_row(Y* y, const T* x, Accum<T> scale, std::int64_t n) {
  each<T>(n, [&](std::int64_t i, auto m)
                 TFM_INLINE { store(y + i, load(y + i, m) + load(x + i, m) * scale, m); });
}

// Rotates one head: pairs (i, i + half).
template <class T, bool Accumulate>
void rotate(const T* x, T* y, const Accum<T>* cosine, const Accum<T>* sine, std::int64_t half,
            Accum<T> sign) {
  each<T>(half, [&](std::int64_t i, auto m) TFM_INLINE {
    const Vec<T> a = load(x + i, m), b = load(x + half + i, m), c = load(cosine + i, m),
                 s = load(sine + i, m) * sign;
    const Vec<T> low = a * c - b * s, high = b * c + a * s;
    store(y + i, Accumulate ? load(y + i, m) + low : low, m);
    store(y + half + i, Accumulate ? load(y + half + i, m) + high : high, m);
  });
}

}  // namespace

template <class T>
void embedding(cpu::Stream& stream, const EmbeddingArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    T* y = a.y + r * a.cols;
    const std::int64_t id = a.ids[r];
    if (id < a.vocab_begin || id >= a.vocab_end) {
      std::fill_n(y, a.cols, T{0});
      return;
    }
    const T* row = a.table + (id - a.vocab_begin) * a.cols;
    each<T>(a.cols, [&](std::int64_t i, auto m)
                        TFM_INLINE { store(y + i, load(row + i, m) * a.scale, m); });
  });
}

template <class T>
void embedding_backward(cpu::Stream& stream, const EmbeddingBackwardArgs<T>& a) {
  if (!a.accumulate)
    parallel_ranges(stream, a.table_rows * a.cols, [&](std::int64_t begin, std::int64_t end) {
      std::fill(a.dtable + begin, a.dtable + end, Accum<T>{0});
    });
  over_columns(stream, a.cols, a.rows * a.cols, [&](std::int64_t begin, std::int64_t n) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const std::int64_t id = a.ids[r];
      if (id < a.vocab_begin || id >= a.vocab_end || id == a.padding_idx) continue;
      add_row(a.dtable + (id - a.vocab_begin) * a.cols + begin, a.dy + r * a.cols + begin, a.scale,
              n);
    }
  });
}

template <class T>
void add_position(cpu::Stream& stream, const PositionArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    const T *x = a.x + r * a.cols,
            *row = a.table + (a.first + (a.row_offset + r) % a.length) * a.cols;
    T* y = a.y + r * a.cols;
    each<T>(a.cols, [&](std::int64_t i, auto m)
                        TFM_INLINE { store(y + i, load(x + i, m) + load(row + i, m), m); });
  });
}

template <class T>
void add_position_backward(cpu::Stream& stream, const PositionBackwardArgs<T>& a) {
  TFM_CHECK(a.length >= 1 && a.first + a.length <= a.table_rows,
            "the position table has " + std::to_string(a.table_rows) +
                " rows, but sequences have " + std::to_string(a.length));
  const std::int64_t start = a.row_offset % a.length;
  parallel(stream, a.table_rows, a.rows * a.cols, [&](std::int64_t t) {
    Accum<T>* to = a.dtable + t * a.cols;
    if (!a.accumulate) std::fill_n(to, a.cols, Accum<T>{0});
    if (t < a.first || t >= a.first + a.length) return;
    for (std::int64_t r = (t - a.first - start + a.length) % a.length; r < a.rows; r += a.length)
      add_row(to, a.dy + r * a.cols, Accum<T>{1}, a.cols);
  });
}

template <class T>
void rotary(cpu::Stream& stream, const RotaryArgs<T>& a) {
  TFM_CHECK(
      a.turning % 2 == 0 && a.turning <= a.head_size && a.rotated_heads * a.head_size <= a.cols,
      std::to_string(a.rotated_heads) + " heads of " + std::to_string(a.head_size) +
          " in a row of " + std::to_string(a.cols));
  const std::int64_t half = a.turning / 2, step = 2 * half;
  const auto* const table = rotations<Accum<T>>(
      stream, std::min(a.rows, a.length), half, a.frequency, a.factor,
      [&](std::int64_t r) { return (a.row_offset + r) % a.length + a.position_offset; });
  const Accum<T> sign = a.inverse ? -1 : 1;
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    const T* x = a.x + r * a.cols;
    const Accum<T>*cosine = table + r % a.length * step, *sine = cosine + half;
    T* y = a.y + r * a.cols;
    const auto keep = [&](std::int64_t first, std::int64_t end) {
      if (a.accumulate)
        add_row(y + first, x + first, Accum<T>{1}, end - first);
      else if (x != y)
        std::copy(x + first, x + end, y + first);
    };
    for (std::int64_t h = 0; h < a.rotated_heads; ++h) {
      const std::int64_t first = h * a.head_size;
      if (a.accumulate)
        rotate<T, true>(x + first, y + first, cosine, sine, half, sign);
      else
        rotate<T, false>(x + first, y + first, cosine, sine, half, sign);
      if (a.turning < a.head_size) keep(first + a.turning, first + a.head_size);
    }
    keep(a.rotated_heads * a.head_size, a.cols);
  });
}

#define TFM_INSTANTIATE(T)                                                           \
  template void embedding(cpu::Stream&, const EmbeddingArgs<T>&);                    \
  template void embedding_backward(cpu::Stream&, const EmbeddingBackwardArgs<T>&);   \
  template void add_position(cpu::Stream&, const PositionArgs<T>&);                  \
  template void add_position_backward(cpu::Stream&, const PositionBackwardArgs<T>&); \
  template void rotary(cpu::Stream&, const RotaryArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
