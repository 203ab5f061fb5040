#pragma once
// Cases of attention that the tests of all devices share: shapes, masks and the layout of their
// rows.
#include "kernels/attention.h"
#include "support/kernel_case.h"

namespace tfm::test {

inline reference::Attention shape(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                                  std::int64_t queries, std::int64_t keys, std::int64_t size,
                                  bool causal) {
  return {batch,
          heads,
          kv_heads,
          queries,
          keys,
          size,
          1 / std::sqrt(double(size)),
          causal ? Visibility::causal() : Visibility{},
          {},
          {},
          {},
          0,
          {},
          0,
          0,
          heads};
}

// Queries see so many keys before and behind their own position.
inline reference::Attention reaching(reference::Attention r, std::int64_t left,
                                     std::int64_t right) {
  r.by_position = {left, right};
  return r;
}

// Landmarks of all kinds, with windows or blocks, both ways and causal.
inline std::vector<Visibility> landmarks(std::int64_t block) {
  using Landmarks = BasicLandmarks<std::int64_t>;
  std::vector<Visibility> all{
      {2, 3, {.first = 1}}, {5, 0, {.causal = true, .first = 3}}, {2, 3, {.from = 2, .first = 2}}};
  all.emplace_back().beyond.to = 201;
  all.push_back({2, 3, {.step = block}});
  all.push_back({1, 0, {.causal = true, .step = 3, .steps = 9}});
  all.push_back({2, 0, {.causal = true, .first = 1, .step = 70}});
  for (const Landmarks& l : {Landmarks{.random = 2}, Landmarks{.causal = true, .random = 1},
                             Landmarks{.random = 2, .repeats = true}}) {
    all.push_back({1, l.causal ? 0 : 1, l});
    all.back().beyond.first = all.back().beyond.block = block;
    all.back().beyond.key = {17, Purpose::init, 4};
  }
  return all;
}
inline reference::Attention beyond_window(reference::Attention r, const Visibility& visible) {
  r.by_position = visible.of_length(r.all_keys());
  return r;
}

inline reference::Attention prefixed(reference::Attention r, std::int64_t left,
                                     const std::vector<std::int32_t>& prefixes) {
  r.by_position = {left, 0}, r.prefixes = prefixes;
  return r;
}
// Prefixes of both sequences: nothing, a part, more than there is.
inline std::vector<reference::Attention> prefixed_cases(std::int64_t size) {
  std::vector<reference::Attention> all;
  for (const std::int64_t left : {std::int64_t{20}, Visibility::kUnlimited})
    for (const std::vector<std::int32_t>& prefixes : {std::vector{0, 1}, {97, 400}, {150, 30}})
      all.push_back(prefixed(shape(2, 2, 1, 130, 130, size, true), left, prefixes));
  return all;
}

// The same number of queries, as a part of more.
inline reference::Attention part_of(reference::Attention r, std::int64_t first,
                                    std::int64_t total) {
  r.query_offset = first, r.queries_total = total;
  return r;
}

// The same number of keys, as a part of more.
inline reference::Attention keys_of(reference::Attention r, std::int64_t first,
                                    std::int64_t total) {
  r.key_offset = first, r.keys_total = total;
  return r;
}

enum class Mask { none, right_padding, scattered_padding, documents };

// Sequence 0 is never empty, the last one is nothing but padding where keys are padded.
inline void set_mask(reference::Attention& r, Mask mask) {
  if (mask == Mask::none) return;
  for (std::int64_t b = 0; b < r.batch; ++b)
    for (std::int64_t s = 0; s < r.all_keys(); ++s) {
      const bool last = b > 0 && b + 1 == r.batch;
      const bool padding = mask == Mask::right_padding ? last || s >= r.all_keys() - 2 - b
                           : mask == Mask::scattered_padding
                               ? last || s < 2 || s % 5 == 3 || s >= r.all_keys() - 1
                               : s % 11 == 7;
      r.k_segments.push_back(padding                   ? -1
                             : mask == Mask::documents ? static_cast<std::int32_t>(s / 4)
                                                       : 0);
    }
  if (mask != Mask::documents) return;
  for (std::int64_t i = 0; i < r.batch * r.all_queries();
       ++i) {  // some of documents without keys, some of none
    const std::int64_t t = i % r.all_queries();
    r.q_segments.push_back(t % 6 == 4 ? 1000 : t % 7 == 5 ? -1 : static_cast<std::int32_t>(t / 4));
  }
}

inline void set_bias(reference::Attention& r) {
  r.bias = random_values(r.heads * (r.queries + r.keys - 1), 9);
}
inline void set_dropout(reference::Attention& r) {
  r.p = 0.3f;
  r.key = {99, Purpose::dropout, 5, 3};
  r.sequence_offset = 3, r.head_offset = 4, r.heads_total = 12;
}

// In the middle of the scores.
inline reference::Attention capped(reference::Attention r) {
  r.softcap = 0.8;
  return r;
}

inline std::string describe(const reference::Attention& r) {
  return (testing::Message()
          << "B " << r.batch << " H " << r.heads << "/" << r.kv_heads << " T " << r.queries
          << " from " << r.query_offset << " S " << r.keys << " from " << r.key_offset << " D "
          << r.size << " sees " << r.by_position.left << " to " << r.by_position.right << ", first "
          << r.by_position.beyond.first << " blocks of " << r.by_position.beyond.block << " random "
          << r.by_position.beyond.random << (r.prefixes.empty() ? "" : " prefixes")
          << (r.k_segments.empty() ? "" : " keys' segments")
          << (r.q_segments.empty() ? "" : " queries' segments") << (r.bias.empty() ? "" : " bias")
          << (r.p > 0 ? " dropout" : "") << (r.softcap > 0 ? " capped" : ""))
      .GetString();
}

// Rows of `width` values into rows of `stride`, starting at column `at` of `to`; and back.
inline Values spread(const Values& from, std::int64_t width, std::int64_t stride,
                     double fill = 777) {
  Values to(from.size() / width * stride, fill);
  for (std::size_t i = 0; i < from.size(); ++i) to[i / width * stride + i % width] = from[i];
  return to;
}
inline Values gather(const Values& from, std::int64_t width, std::int64_t stride,
                     std::int64_t at = 0) {
  Values to(from.size() / stride * width);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i / width * stride + at + i % width];
  return to;
}

// Queries, keys and values side by side in one row, as a fused projection leaves them; keys and
// values in rows of their own stride.
template <class T>
struct Data {
  const reference::Attention& r;
  Values q, k, v, dout;
  std::int64_t q_stride, kv_stride, out_stride;
  // `gap` sets how far rows are apart; multiples of 8 keep what is aligned to 16 bytes so.
  explicit Data(const reference::Attention& ref, std::int64_t gap = 1)
      : r(ref),
        q(random_values(r.batch * r.queries * r.heads * r.size, 1, 2)),
        k(random_values(r.batch * r.keys * r.kv_heads * r.size, 2, 2)),
        v(random_values(k.size(), 3)),
        dout(random_values(q.size(), 4)),
        q_stride(r.heads * r.size + 5 * gap),
        kv_stride(2 * r.kv_heads * r.size + 3 * gap),
        out_stride(r.heads * r.size + 2 * gap) {}
  std::int64_t q_width() const { return r.heads * r.size; }
  std::int64_t kv_width() const { return r.kv_heads * r.size; }
  Values query_rows() const { return spread(q, q_width(), q_stride); }
  Values dout_rows() const { return spread(dout, q_width(), out_stride); }
  Values key_value_rows() const {
    Values rows = spread(k, kv_width(), kv_stride);
    for (std::int64_t i = 0; i < std::ssize(v); ++i)
      rows[i / kv_width() * kv_stride + kv_width() + i % kv_width()] = v[i];
    return rows;
  }
};
// As above, of values that T holds exactly.
template <class T>
Data<T> rounded_data(const reference::Attention& r, std::int64_t gap = 1) {
  Data<T> d(r, gap);
  for (Values* v : {&d.q, &d.k, &d.v, &d.dout}) *v = rounded<T>(*v);
  return d;
}

// All but the addresses.
template <class T>
kernels::AttentionArgs<T> attention_args(const Data<T>& d) {
  const auto& r = d.r;
  return {.batch = r.batch,
          .heads = r.heads,
          .kv_heads = r.kv_heads,
          .queries = r.queries,
          .keys = r.keys,
          .head_size = r.size,
          .q_stride = d.q_stride,
          .kv_stride = d.kv_stride,
          .out_stride = d.out_stride,
          .scale = static_cast<Accum<T>>(r.scale),
          .softcap = static_cast<Accum<T>>(r.softcap),
          .visible = r.by_position,
          .dropout = {r.p, r.key},
          .sequence_offset = r.sequence_offset,
          .head_offset = r.head_offset,
          .heads_total = r.heads_total,
          .query_offset = r.query_offset,
          .queries_total = r.queries_total,
          .key_offset = r.key_offset,
          .keys_total = r.keys_total};
}

// Data of one sequence whose keys and values outside of [begin, end) are NaN.
template <class T>
Data<T> with_unreadable_keys(const reference::Attention& r, std::int64_t begin, std::int64_t end) {
  Data<T> d = rounded_data<T>(r, 8);
  for (Values* rows : {&d.k, &d.v})
    for (std::int64_t i = 0; i < std::ssize(*rows); ++i)
      if (const std::int64_t s = i / d.kv_width(); s < begin || s >= end) (*rows)[i] = NAN;
  return d;
}

struct AttentionResult {
  Values out, lse, dq, dk, dv, dbias;  // dbias summed over the sequences
  bool finite() const {
    for (const Values* all : {&out, &lse, &dq, &dk, &dv, &dbias})
      for (const double x : *all)
        if (!std::isfinite(x)) return false;
    return true;
  }
};

inline Values sum_of_sequences(const Values& all, std::int64_t batch) {
  Values sum(all.size() / batch);
  for (std::size_t i = 0; i < all.size(); ++i) sum[i % sum.size()] += all[i];
  return sum;
}

// From rows that were NaN before: what lies between them must still be.
template <class T>
AttentionResult attention_result(const Data<T>& d, const Values& out, Values lse, const Values& dq,
                                 const Values& dkv, const Values& dbias) {
  const auto expect_untouched = [](const Values& rows, std::int64_t width, std::int64_t stride) {
    for (std::int64_t i = 0; i < std::ssize(rows); ++i)
      EXPECT_TRUE(i % stride < width || std::isnan(rows[i])) << "written between rows, at " << i;
  };
  expect_untouched(out, d.q_width(), d.out_stride);
  expect_untouched(dq, d.q_width(), d.q_stride);
  expect_untouched(dkv, 2 * d.kv_width(), d.kv_stride);
  return {gather(out, d.q_width(), d.out_stride),
          std::move(lse),
          gather(dq, d.q_width(), d.q_stride),
          gather(dkv, d.kv_width(), d.kv_stride),
          gather(dkv, d.kv_width(), d.kv_stride, d.kv_width()),
          d.r.bias.empty() ? Values() : sum_of_sequences(dbias, d.r.batch)};
}

}  // namespace tfm::test
