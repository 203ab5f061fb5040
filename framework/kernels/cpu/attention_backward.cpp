#include "kernels/cpu/attention_scores.h"

namespace tfm::kernels {
namespace {

// Gradients of one (sequence, key head): its query heads one after the other, so that their parts
// of dk and dv add in a fixed order.
template <class T>
class GroupBackward {
 public:
  GroupBackward(const AttentionBackwardArgs<T>& args, std::int64_t b, std::int64_t group)
      : g_(args), a_(args.forward), b_(b), group_(group), real_(real_keys(args.forward, b)) {
    stride_ = AttentionTile<T>::scratch_stride(a_.keys);
    weights_ = scratch<T, struct Weights>(kTileQueries * stride_);
    gradients_ = scratch<T, struct Gradients>(kTileQueries * stride_);
    factors_ = scratch<T, struct Factors>(a_.keys + kFactorSlack);
    if (a_.softcap > 0) slopes_ = scratch<T, struct Slopes>(a_.keys);
  }

  void run() {
    const std::int64_t heads = a_.heads / a_.kv_heads, tiles = ceil_div(a_.queries, kTileQueries);
    const std::int64_t distances = a_.queries + a_.keys - 1;
    if (g_.dbias)
      std::fill_n(g_.dbias + (b_ * a_.heads + group_ * heads) * distances, heads * distances, T{0});
    if (a_.visible.beyond.any()) begin_keys({0, a_.keys}), zero_keys(0, a_.keys);
    // From the last tile, which sees the most keys under a causal mask.
    for (std::int64_t h = group_ * heads; h < (group_ + 1) * heads; ++h)
      for (std::int64_t t = tiles - 1; t >= 0; --t) {
        const AttentionTile<T> tile(a_, b_, h, t, real_);
        if (tile.width == 0) {
          zero_rows(g_.dq + tile.q_offset(), tile.rows, a_.head_size, a_.q_stride);
          continue;
        }
        const KeyRun &first = tile.runs.front(), &last = tile.runs.back();
        run_tile(tile, begin_keys({first.key, last.key + last.width}));
      }
    zero_keys(0, assigned_.begin);
    zero_keys(assigned_.end, a_.keys);
  }

 private:
  void zero_keys(std::int64_t begin, std::int64_t end) {
    const std::int64_t at = (b_ * a_.keys + begin) * a_.kv_stride + group_ * a_.head_size;
    zero_rows(g_.dk + at, end - begin, a_.head_size, a_.kv_stride);
    zero_rows(g_.dv + at, end - begin, a_.head_size, a_.kv_stride);
  }
  // What a tile multiplies its rows of dk and dv by before it adds to them: the first one assigns
  // them, for others those that no tile before had are zeros.
  T begin_keys(Span<std::int64_t> keys) {
    if (assigned_.size() == 0) {
      assigned_ = keys;
      return 0;
    }
    zero_keys(keys.begin, assigned_.begin);
    zero_keys(assigned_.end, keys.end);
    assigned_ = {std::min(keys.begin, assigned_.begin), std::max(keys.end, assigned_.end)};
    return 1;
  }
  void run_tile(const AttentionTile<T>& tile, T beta) {
    const std::int64_t rows = tile.rows, size = a_.head_size;
    const T *q = a_.q + tile.q_offset(), *dout = g_.dout + tile.out_offset();
    for (const KeyRun& run : tile.runs) {
      const std::int64_t n = run.width, keys = tile.kv_offset(run);
      tile_product<T>(false, true, rows, n, size, q, a_.q_stride, a_.k + keys, a_.kv_stride, T{0},
                      weights_ + run.column, stride_, a_.scale);
      tile_product<T>(false, true, rows, n, size, dout, a_.out_stride, a_.v + keys, a_.kv_stride,
                      T{0}, gradients_ + run.column, stride_);
    }
    for (std::int64_t r = 0; r < rows; ++r)
      tile.added() ? softmax_row<true>(tile, r) : softmax_row<false>(tile, r);
    for (const KeyRun& run : tile.runs) {
      const std::int64_t n = run.width, keys = tile.kv_offset(run);
      const T *weights = weights_ + run.column, *gradients = gradients_ + run.column;
      tile_product<T>(true, false, n, size, rows, weights, stride_, dout, a_.out_stride, beta,
                      g_.dv + keys, a_.kv_stride);
      tile_product<T>(false, false, rows, size, n, gradients, stride_, a_.k + keys, a_.kv_stride,
                      T(run.column > 0), g_.dq + tile.q_offset(), a_.q_stride, a_.scale);
      tile_product<T>(true, false, n, size, rows, gradients, stride_, q, a_.q_stride, beta,
                      g_.dk + keys, a_.kv_stride, a_.scale);
    }
  }

  // From products to dropped weights, from gradients of those to gradients of the scaled products.
  template <bool Added>
  void softmax_row(const AttentionTile<T>& tile, std::int64_t r) {
    T *w = weights_ + r * stride_, *d = gradients_ + r * stride_;
    const auto [visible, added] = tile.row(r);
    if (slopes_) cap_products(w, visible, T{1}, a_.softcap, slopes_);
    const Score<T, Added> score{added};
    const T lse = tile.lse(r), delta = out_dot_gradient(tile, r);
    // At most 1, although lse is rounded and scores may be large.
    const auto weight = [&](std::int64_t i, auto m) TFM_INLINE {
      const Vec<T> x = score(load(w + i, m), i, m) - lse;
      return exp(x > Vec<T>{} ? Vec<T>{} : x);  // keeps a NaN
    };
    if (a_.dropout.p > 0) {
      const T* factor = tile.factors(r, visible, factors_);
      each<T>(visible, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> p = weight(i, m), f = load(factor + i, m);
        store(d + i, p * (load(d + i, m) * f - delta), m);
        store(w + i, p * f, m);
      });
    } else {
      each<T>(visible, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> p = weight(i, m);
        store(d + i, p * (load(d + i, m) - delta), m);
        store(w + i, p, m);
      });
    }
    std::fill(w + visible, w + tile.width, T{0});
    std::fill(d + visible, d + tile.width, T{0});
    for (const KeyRun& run : tile.runs)
      if (g_.dbias && visible > run.column)
        add_bias_gradient(
            g_.dbias + b_ * a_.heads * (a_.queries + a_.keys - 1) + tile.bias_offset(r, run.key),
            d + run.column, std::min(run.width, visible - run.column));
    if (slopes_) multiply(d, slopes_, visible);
  }

  static void add_bias_gradient(T* to, const T* d, std::int64_t n) {
    each<T>(n, [&](std::int64_t i, auto m)
                   TFM_INLINE { store(to + i, load(to + i, m) + load(d + i, m), m); });
  }

  T out_dot_gradient(const AttentionTile<T>& tile, std::int64_t r) const {
    const std::int64_t at = tile.out_offset() + r * a_.out_stride;
    Vec<T> sum{};
    each<T>(a_.head_size, [&](std::int64_t i, auto m) TFM_INLINE {
      sum += load(a_.out + at + i, m) * load(g_.dout + at + i, m);
    });
    return sum_of<T>(sum);
  }

  const AttentionBackwardArgs<T>& g_;
  const AttentionArgs<T>& a_;
  std::int64_t b_, group_, real_, stride_;
  Span<std::int64_t> assigned_;  // keys whose dk and dv are
  T *weights_, *gradients_, *factors_, *slopes_ = nullptr;
};

}  // namespace

template <class T>
void attention_backward(cpu::Stream& stream, const AttentionBackwardArgs<T>& g) {
  const AttentionArgs<T>& a = g.forward;
  check(a);
  parallel_tasks(stream, a.batch * a.kv_heads, [&](std::int64_t task) {
    GroupBackward<T>(g, task / a.kv_heads, task % a.kv_heads).run();
  });
}

template void attention_backward(cpu::Stream&, const AttentionBackwardArgs<float>&);
template void attention_backward(cpu::Stream&, const AttentionBackwardArgs<double>&);

}  // namespace tfm::kernels
