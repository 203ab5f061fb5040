// Attention of a group of heads by the processor's bf16 products: scores, weights and sums are held
// in float, factors of products in bf16.
#include "kernels/cpu/attention_group.h"
#include "kernels/cpu/attention_scores.h"
#include "kernels/cpu/dot_product.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/cpu/softmax_bf16.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kTilePairs = kTileQueries / 2;

// Operands of dot products: words of two bf16 terms.
struct TermPairs {
  std::uint32_t* data;
  std::int64_t stride;
  operator DotColumns() const { return {data, stride}; }
};
template <class Use>
TermPairs words(std::int64_t pairs, std::int64_t columns) {
  const std::int64_t stride = padded(columns);
  return {scratch<std::uint32_t, Use>(pairs * stride), stride};
}

// Scratch memory of a task: one group of heads of one sequence.
struct GroupTiles {
  const AttentionArgs<bf16>& a;
  AttentionArgs<float> options;
  std::int64_t real, size, tiles, stride, width;
  const bf16 *q, *k, *v;
  float *scores, *factors, *rows, *slopes;
  bf16* halves;

  explicit GroupTiles(const Group<bf16>& g)
      : a(g.a),
        options(g.options()),
        real(real_keys(options, 0)),
        size(g.a.head_size),
        tiles(ceil_div(g.a.queries, kTileQueries)),
        stride(padded(g.a.keys)),
        width(round_up(size, kDotWords)),
        q(g.a.q + g.q_at()),
        k(g.a.k + g.kv_at()),
        v(g.a.v + g.kv_at()),
        scores(scratch<float, struct Scores>(kTileQueries * stride)),
        factors(scratch<float, struct Factors>(g.a.keys + kFactorSlack)),
        rows(scratch<float, struct Rows>(kTileQueries * width)),
        slopes(g.a.softcap > 0 ? scratch<float, struct Slopes>(g.a.keys) : nullptr),
        halves(scratch<bf16, struct Halves>(kTileQueries * stride)) {}

  AttentionTile<float> tile(std::int64_t head, std::int64_t number) const {
    return {options, 0, head, number, real};
  }
  const bf16* queries(const AttentionTile<float>& tile) const {
    return q + tile.first * a.q_stride + tile.h * size;
  }
  // (rows, keys) = rows of the tile, `stride` apart, times the tile's keys; `keys` are all.
  void against_keys(const AttentionTile<float>& tile, const bf16* x, std::int64_t x_stride,
                    const TermPairs& keys, float* to) const {
    for (const KeyRun& run : tile.runs)
      dot_product(tile.rows, run.width, size / 2, {x, x_stride, 2},
                  {keys.data + run.key, keys.stride}, to + run.column, stride, false);
  }
  ProductRow row(const AttentionTile<float>& tile, std::int64_t r) const {
    const auto [visible, added] = tile.row(r);
    float* const products = scores + r * stride;
    if (slopes) cap_products(products, visible, a.scale, a.softcap, slopes);
    return {products,
            visible,
            round_up(tile.width, kDotWords),
            slopes ? 1 : a.scale,
            added,
            a.dropout.p > 0 ? tile.factors(r, visible, factors) : nullptr,
            slopes};
  }
  // (rows, size) = the tile's `halves` times its keys or values; `columns` are those of all.
  void over_keys(const AttentionTile<float>& tile, const TermPairs& columns) const {
    for (const KeyRun& run : tile.runs)
      dot_product(tile.rows, size, ceil_div(run.width, 2), {halves + run.column, stride, 2},
                  {columns.data + run.key / 2 * columns.stride, columns.stride}, rows, width,
                  run.column > 0);
  }
};

void store_scaled(const float* from, float factor, bf16* to, std::int64_t n) {
  each<float>(
      n, [&](std::int64_t i, auto m) TFM_INLINE { store(to + i, load(from + i, m) * factor, m); });
}

void forward(const GroupTiles& g, const AttentionTile<float>& tile, const TermPairs& keys,
             const TermPairs& values, bf16* out) {
  if (tile.width == 0) {
    zero_rows(out, tile.rows, g.size, g.a.out_stride);
    for (std::int64_t r = 0; r < tile.rows; ++r)
      tile.lse(r) = -std::numeric_limits<float>::infinity();
    return;
  }
  g.against_keys(tile, g.queries(tile), g.a.q_stride, keys, g.scores);
  float inverse[kTileQueries];
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const ProductRow row = g.row(tile, r);
    const float sum = softmax_row(row, g.halves + r * g.stride, tile.lse(r));
    inverse[r] = row.visible ? 1 / sum : 0;
  }
  g.over_keys(tile, values);
  for (std::int64_t r = 0; r < tile.rows; ++r)
    store_scaled(g.rows + r * g.width, inverse[r], out + r * g.a.out_stride, g.size);
}

class Backward {
 public:
  Backward(const Group<bf16>& group, const AttentionBackwardArgs<bf16>& args)
      : g_(group),
        out_(args.forward.out + group.out_at()),
        part_(args.forward.keys < args.forward.all_keys()),
        kv_stride_(args.forward.kv_stride),
        keys_(words<struct Keys>(g_.size / 2, g_.real)),
        values_(words<struct Values>(g_.size / 2, g_.real)),
        key_pairs_(words<struct KeyPairs>(ceil_div(g_.real, 2), g_.size)),
        query_pairs_(words<struct QueryPairs>(kTilePairs, g_.size)),
        dout_pairs_(words<struct OutputPairs>(kTilePairs, g_.size)),
        weight_pairs_(words<struct WeightPairs>(kTilePairs, g_.a.keys)),
        score_pairs_(words<struct ScorePairs>(kTilePairs, g_.a.keys)),
        weights_(scratch<bf16, struct Weights>(kTileQueries * g_.stride)),
        gradients_(scratch<float, struct Gradients>(kTileQueries * g_.stride)),
        dk_(scratch<float, struct KeyGradients>(g_.size * g_.stride)),
        dv_(scratch<float, struct ValueGradients>(g_.size * g_.stride)) {
    const std::int64_t heads = group.heads, distances = g_.a.queries + g_.a.keys - 1;
    if (args.dbias) {
      dbias_ = args.dbias + (group.b * g_.a.heads + group.first_head) * distances;
      std::fill_n(dbias_, heads * distances, 0.0f);
    }
    std::fill_n(dk_, g_.size * g_.stride, 0.0f);
    std::fill_n(dv_, g_.size * g_.stride, 0.0f);
    pair_columns(g_.k, kv_stride_, g_.real, g_.size, keys_.data, keys_.stride);
    pair_columns(g_.v, kv_stride_, g_.real, g_.size, values_.data, values_.stride);
    pair_rows(g_.k, kv_stride_, g_.real, g_.size, key_pairs_.data, key_pairs_.stride);
    const bf16* dout = args.dout + group.out_at();
    bf16* dq = args.dq + group.q_at();
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < g_.tiles; ++t) {
        const AttentionTile<float> tile = g_.tile(h, t);
        run(tile, dout + tile.first * g_.a.out_stride + h * g_.size,
            dq + tile.first * g_.a.q_stride + h * g_.size);
      }
    store_transposed(dk_, g_.a.scale, args.dk + group.kv_at());
    store_transposed(dv_, 1, args.dv + group.kv_at());
  }

 private:
  void run(const AttentionTile<float>& tile, const bf16* dout, bf16* dq) {
    if (tile.width == 0) return zero_rows(dq, tile.rows, g_.size, g_.a.q_stride);
    const bf16* q = g_.queries(tile);
    g_.against_keys(tile, q, g_.a.q_stride, keys_, g_.scores);
    g_.against_keys(tile, dout, g_.a.out_stride, values_, gradients_);
    softmax(tile, dout);
    pair_rows(q, g_.a.q_stride, tile.rows, g_.size, query_pairs_.data, query_pairs_.stride);
    pair_rows(dout, g_.a.out_stride, tile.rows, g_.size, dout_pairs_.data, dout_pairs_.stride);
    add_over_queries(tile, dout_pairs_, weight_pairs_, dv_);
    add_over_queries(tile, query_pairs_, score_pairs_, dk_);
    g_.over_keys(tile, key_pairs_);
    for (std::int64_t r = 0; r < tile.rows; ++r)
      store_scaled(g_.rows + r * g_.width, g_.a.scale, dq + r * g_.a.q_stride, g_.size);
  }

  // Weights and gradients of the scores, the latter also by rows.
  void softmax(const AttentionTile<float>& tile, const bf16* dout) {
    const std::int64_t stride = g_.stride, filled = round_up(tile.width, kDotWords);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float delta = part_ ? dot(tile, r, dout) : 0;
      float* const bias = dbias_ ? bias_gradients(tile, r) : nullptr;
      softmax_gradient_row(g_.row(tile, r), tile.lse(r), part_ ? &delta : nullptr,
                           gradients_ + r * stride, weights_ + r * stride, g_.halves + r * stride,
                           bias);
      if (bias && tile.runs.size() > 1) add_bias_gradients(tile, r, bias);
    }
    pair_rows(weights_, stride, tile.rows, filled, weight_pairs_.data, weight_pairs_.stride);
    pair_rows(g_.halves, stride, tile.rows, filled, score_pairs_.data, score_pairs_.stride);
  }

  // A row's gradients of the bias: where those of the tile's one run are, else zeros beside.
  float* bias_gradients(const AttentionTile<float>& tile, std::int64_t r) const {
    if (tile.runs.size() == 1) return dbias_ + tile.bias_offset(r, tile.runs.front().key);
    float* const all = scratch<float, struct BiasGradients>(tile.width + kDotWords);
    std::fill_n(all, tile.width + kDotWords, 0.0f);
    return all;
  }
  void add_bias_gradients(const AttentionTile<float>& tile, std::int64_t r, const float* all) {
    for (const KeyRun& run : tile.runs) {
      float* const to = dbias_ + tile.bias_offset(r, run.key);
      for (std::int64_t i = 0; i < run.width; ++i) to[i] += all[run.column + i];
    }
  }

  // Of row r: sum(out * dout), whose terms are those of all keys.
  float dot(const AttentionTile<float>& tile, std::int64_t r, const bf16* dout) const {
    const bf16* out = out_ + (tile.first + r) * g_.a.out_stride + tile.h * g_.size;
    Vec<float> sum{};
    each<float>(g_.size, [&](std::int64_t i, auto m) TFM_INLINE {
      sum += load(out + i, m) * load(dout + r * g_.a.out_stride + i, m);
    });
    return sum_of<float>(sum);
  }

  // to (size, keys) += the sum over the tile's queries, for its keys.
  void add_over_queries(const AttentionTile<float>& tile, const TermPairs& rows,
                        const TermPairs& weights, float* to) const {
    const auto* data = reinterpret_cast<const bf16*>(rows.data);
    for (const KeyRun& run : tile.runs)
      dot_product(g_.size, run.width, ceil_div(tile.rows, 2), {data, 2, 2 * rows.stride},
                  {weights.data + run.column, weights.stride}, to + run.key, g_.stride, true);
  }
  void store_transposed(const float* from, float factor, bf16* to) const {
    auto* words = scratch<std::uint32_t, struct KeyWords>(g_.a.keys * g_.width);
    pair_columns(reinterpret_cast<const bf16*>(from), 2 * g_.stride, g_.size, 2 * g_.a.keys, words,
                 g_.width);
    const auto* rows = reinterpret_cast<const float*>(words);
    for (std::int64_t s = 0; s < g_.a.keys; ++s)
      store_scaled(rows + s * g_.width, factor, to + s * kv_stride_, g_.size);
  }

  GroupTiles g_;
  const bf16* out_;
  bool part_;  // of the keys
  std::int64_t kv_stride_;
  TermPairs keys_, values_, key_pairs_, query_pairs_, dout_pairs_, weight_pairs_, score_pairs_;
  bf16* weights_;
  float *gradients_, *dk_, *dv_, *dbias_ = nullptr;  // dk, dv: transposed, (size, keys)
};

}  // namespace

void attention_group(const Group<bf16>& group) {
  const GroupTiles g(group);
  const TermPairs keys = words<struct Keys>(g.size / 2, g.real),
                  values = words<struct Values>(ceil_div(g.real, 2), g.size);
  pair_columns(g.k, g.a.kv_stride, g.real, g.size, keys.data, keys.stride);
  pair_rows(g.v, g.a.kv_stride, g.real, g.size, values.data, values.stride);
  bf16* out = g.a.out + group.out_at();
  for (std::int64_t h = 0; h < group.heads; ++h)
    for (std::int64_t t = 0; t < g.tiles; ++t) {
      const AttentionTile<float> tile = g.tile(h, t);
      forward(g, tile, keys, values, out + tile.first * g.a.out_stride + h * g.size);
    }
}

void attention_group_backward(const Group<bf16>& group, const AttentionBackwardArgs<bf16>& args) {
  Backward(group, args);
}

}  // namespace tfm::kernels
