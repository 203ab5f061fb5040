#include "kernels/attention.h"

#include "kernels/cpu/attention_scores.h"

namespace tfm::kernels {
namespace {

template <class T, bool Added>
void tile_forward(const AttentionTile<T>& tile) {
  const AttentionArgs<T>& a = tile.a;
  T* out = a.out + tile.out_offset();
  if (tile.width == 0) {
    zero_rows(out, tile.rows, a.head_size, a.out_stride);
    for (std::int64_t r = 0; r < tile.rows; ++r) tile.lse(r) = -std::numeric_limits<T>::infinity();
    return;
  }
  const std::int64_t stride = tile.scratch_stride(a.keys);
  T *scores = scratch<T, struct Scores>(kTileQueries * stride),
    *factors = scratch<T, struct Factors>(a.keys + kFactorSlack);
  for (const KeyRun& run : tile.runs)
    tile_product<T>(false, true, tile.rows, run.width, a.head_size, a.q + tile.q_offset(),
                    a.q_stride, a.k + tile.kv_offset(run), a.kv_stride, T{0}, scores + run.column,
                    stride, a.scale);
  T inverse[kTileQueries];
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* row = scores + r * stride;
    const auto [visible, added] = tile.row(r);
    if (a.softcap > 0) cap_products(row, visible, T{1}, a.softcap);
    const RowSum<T> s = exponentials(row, visible, tile.width, Score<T, Added>{added});
    tile.lse(r) = visible ? s.max + std::log(s.sum) : -std::numeric_limits<T>::infinity();
    inverse[r] = visible ? T{1} / s.sum : T{0};
    if (a.dropout.p > 0) multiply(row, tile.factors(r, visible, factors), visible);
  }
  for (const KeyRun& run : tile.runs)
    tile_product<T>(false, false, tile.rows, a.head_size, run.width, scores + run.column, stride,
                    a.v + tile.kv_offset(run), a.kv_stride, T(run.column > 0), out, a.out_stride);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* row = out + r * a.out_stride;
    each<T>(a.head_size, [&](std::int64_t i, auto m)
                             TFM_INLINE { store(row + i, load(row + i, m) * inverse[r], m); });
  }
}

}  // namespace

template <class T>
void attention(cpu::Stream& stream, const AttentionArgs<T>& a) {
  check(a);
  const std::int64_t tiles = ceil_div(a.queries, kTileQueries), heads = a.batch * a.heads;
  parallel_tasks(stream, heads * tiles, [&](std::int64_t task) {
    const std::int64_t head = task / tiles;
    const std::int64_t b = head / a.heads;
    const AttentionTile<T> tile(a, b, head % a.heads, task % tiles, real_keys(a, b));
    tile.added() ? tile_forward<T, true>(tile) : tile_forward<T, false>(tile);
  });
}

template void attention(cpu::Stream&, const AttentionArgs<float>&);
template void attention(cpu::Stream&, const AttentionArgs<double>&);

}  // namespace tfm::kernels
