// 16-bit attention on CPUs against float64: not farther from it than twice (gradients: three times)
// the plain computation rounded to 16 bits.
#include <array>
#include <limits>

#include "kernels/attention.h"
#include "support/attention_plain.h"

namespace tfm::test {
namespace {

template <class T>
class HalfAttention : public testing::Test {};
using Types = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(HalfAttention, Types);

template <class T>
Values to_values(const std::vector<T>& v) {
  return Values(v.begin(), v.end());
}
template <class T>
std::vector<T> of_values(const Values& v) {
  return std::vector<T>(v.begin(), v.end());
}

template <class T>
Data<T> data(const reference::Attention& r) {
  Data<T> d(r);
  for (Values* v : {&d.q, &d.k, &d.v, &d.dout})
    for (double& x : *v) x = round_to<T>(x);
  return d;
}

template <class T>
AttentionResult run(const Data<T>& d, int threads) {
  const auto& r = d.r;
  const std::int64_t q_width = r.heads * r.size, kv_width = r.kv_heads * r.size;
  Values kv = spread(d.k, kv_width, d.kv_stride);
  for (std::size_t i = 0; i < d.v.size(); ++i)
    kv[i / kv_width * d.kv_stride + kv_width + i % kv_width] = d.v[i];
  const T nan(std::numeric_limits<float>::quiet_NaN());
  std::vector<T> q = of_values<T>(spread(d.q, q_width, d.q_stride)), keys = of_values<T>(kv),
                 dout = of_values<T>(spread(d.dout, q_width, d.out_stride));
  std::vector<T> out(r.batch * r.queries * d.out_stride, nan),
      dq(r.batch * r.queries * d.q_stride, nan), dkv(kv.size(), nan);
  std::vector<float> lse(r.batch * r.heads * r.queries), bias = of_values<float>(r.bias),
                                                         dbias(r.batch * r.bias.size(), 5);
  const kernels::AttentionArgs<T> a{
      .batch = r.batch,
      .heads = r.heads,
      .kv_heads = r.kv_heads,
      .queries = r.queries,
      .keys = r.keys,
      .head_size = r.size,
      .q = q.data(),
      .k = keys.data(),
      .v = keys.data() + kv_width,
      .q_stride = d.q_stride,
      .kv_stride = d.kv_stride,
      .out = out.data(),
      .out_stride = d.out_stride,
      .lse = lse.data(),
      .scale = static_cast<float>(r.scale),
      .causal = r.causal,
      .k_segments = r.k_segments.empty() ? nullptr : r.k_segments.data(),
      .q_segments = r.q_segments.empty() ? nullptr : r.q_segments.data(),
      .bias = r.bias.empty() ? nullptr : bias.data(),
      .dropout = {r.p, r.key},
      .sequence_offset = r.sequence_offset,
      .head_offset = r.head_offset,
      .heads_total = r.heads_total};
  cpu::Stream s{threads};
  kernels::attention(s, a);
  kernels::attention_backward(s, kernels::AttentionBackwardArgs<T>{
                                     a, dout.data(), dq.data(), dkv.data(), dkv.data() + kv_width,
                                     r.bias.empty() ? nullptr : dbias.data()});
  const auto untouched = [](const std::vector<T>& rows, std::int64_t width, std::int64_t stride) {
    for (std::size_t i = width; i < rows.size(); i += stride)
      EXPECT_TRUE(std::isnan(rows[i])) << "written between rows";
  };
  untouched(out, q_width, d.out_stride), untouched(dq, q_width, d.q_stride);
  untouched(dkv, 2 * kv_width, d.kv_stride);
  return {gather(to_values(out), q_width, d.out_stride),
          to_values(lse),
          gather(to_values(dq), q_width, d.q_stride),
          gather(to_values(dkv), kv_width, d.kv_stride),
          gather(to_values(dkv), kv_width, d.kv_stride, kv_width),
          r.bias.empty() ? Values() : sum_of_sequences(to_values(dbias), r.batch)};
}

template <class T>
void expect_right(const reference::Attention& r) {
  SCOPED_TRACE(describe(r));
  const Data<T> d = data<T>(r);
  const AttentionResult got = run(d, 1);
  EXPECT_EQ(complaint(d, got), "");
  EXPECT_TRUE(same(got, run(d, 3))) << "bits depend on the team";
}

TYPED_TEST(HalfAttention, EveryCombinationOfOptions) {
  const std::array<std::pair<int, int>, 4> lengths{{{193, 70}, {70, 193}, {97, 97}, {9, 130}}};
  int i = 0;
  for (bool causal : {false, true})
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::scattered_padding, Mask::documents})
      for (int options = 0; options < 8; ++options) {
        const auto [queries, keys] = lengths[i++ % 4];
        auto r = shape(2, options & 1 ? 4 : 2, 2, queries, keys, 64, causal);
        set_mask(r, mask);
        if (options & 2) set_bias(r);
        if (options & 4) set_dropout(r);
        expect_right<TypeParam>(r);
      }
}

TYPED_TEST(HalfAttention, EveryHeadSize) {
  for (const auto& [size, length] : {std::pair{1, 20},
                                     {2, 65},
                                     {7, 33},
                                     {8, 70},
                                     {18, 64},
                                     {32, 193},
                                     {40, 97},
                                     {80, 97},
                                     {96, 130},
                                     {128, 131},
                                     {256, 66}}) {
    auto r = shape(1, 2, 1, length, length, size, true);
    expect_right<TypeParam>(r);
    set_mask(r, Mask::scattered_padding), set_bias(r), set_dropout(r);
    expect_right<TypeParam>(r);
  }
}

TYPED_TEST(HalfAttention, FewRowsAndFewKeys) {
  expect_right<TypeParam>(shape(1, 1, 1, 1, 1, 2, true));
  expect_right<TypeParam>(shape(1, 4, 1, 1, 97, 64, true));
  expect_right<TypeParam>(shape(1, 2, 2, 65, 1, 64, false));
  expect_right<TypeParam>(shape(1, 2, 2, 5, 3, 16, true));  // rows that see nothing
  auto r = shape(1, 1, 1, 130, 130, 32, true);
  r.scale = -0.7;
  expect_right<TypeParam>(r);
}

TYPED_TEST(HalfAttention, NothingVisibleGivesZerosEverywhere) {
  auto r = shape(2, 2, 1, 70, 70, 32, true);
  set_bias(r);
  r.q_segments.assign(140, 1), r.k_segments.assign(140, 2);
  const AttentionResult got = run(data<TypeParam>(r), 1);
  for (const Values* v : {&got.out, &got.dq, &got.dk, &got.dv, &got.dbias})
    EXPECT_EQ(*v, Values(v->size(), 0.0));
  EXPECT_EQ(got.lse, Values(got.lse.size(), -std::numeric_limits<double>::infinity()));
}

}  // namespace
}  // namespace tfm::test
