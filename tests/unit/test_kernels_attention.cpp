// Tiled attention, forward and backward, against the plain definition.
#include "../kernel_case.h"
#include "kernels/attention.h"

namespace tfm::test {
namespace {

template <class T>
class Attention : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Attention, Types);

reference::Attention shape(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t queries, std::int64_t keys,
                           std::int64_t size, bool causal) {
  return {batch, heads, kv_heads, queries, keys, size, 1 / std::sqrt(double(size)), causal, {}, {}, 0, {}, 0, 0, heads};
}

std::vector<reference::Attention> cases() {
  std::vector<reference::Attention> all;
  for (bool causal : {false, true}) {
    all.push_back(shape(1, 1, 1, 1, 1, 1, causal));
    all.push_back(shape(2, 3, 3, 5, 5, 7, causal));
    all.push_back(shape(2, 2, 2, 130, 130, 16, causal));
    all.push_back(shape(1, 4, 2, 70, 133, 9, causal));  // more keys than queries, grouped
    all.push_back(shape(2, 4, 1, 133, 70, 8, causal));  // fewer: causal rows that see nothing
    all.push_back(shape(3, 2, 2, 66, 67, 5, causal));
    all.back().lengths = {0, 1, 65};
    all.push_back(shape(2, 4, 2, 67, 67, 8, causal));
    all.back().slopes = {0.5, 0.25, 0.125, 0.0625};
    all.back().lengths = {67, 20};
    all.push_back(shape(2, 4, 2, 65, 71, 6, causal));
    all.back().slopes = {0.5, 0.25, 0.125, 0.0625};
    all.back().p = 0.3f;
    all.back().key = {99, Purpose::dropout, 5, 3};
    all.back().sequence_offset = 3, all.back().head_offset = 4, all.back().heads_total = 12;
    all.push_back(shape(1, 1, 1, 20, 20, 4, causal));
    all.back().scale = -0.7;
  }
  return all;
}

// Queries, keys and values side by side in one row, as a fused projection leaves them; keys and values in rows of their own
// stride.
template <class T>
struct Data {
  const reference::Attention& r;
  Values q, k, v, dout;
  std::int64_t q_stride, kv_stride, out_stride;
  explicit Data(const reference::Attention& ref)
      : r(ref),
        q(random_values(r.batch * r.queries * r.heads * r.size, 1, 2)),
        k(random_values(r.batch * r.keys * r.kv_heads * r.size, 2, 2)),
        v(random_values(k.size(), 3)),
        dout(random_values(q.size(), 4)),
        q_stride(r.heads * r.size + 5),
        kv_stride(2 * r.kv_heads * r.size + 3),
        out_stride(r.heads * r.size + 2) {}
};

// Rows of `width` values into rows of `stride`, starting at column `at` of `to`; and back.
Values spread(const Values& from, std::int64_t width, std::int64_t stride, double fill = 777) {
  Values to(from.size() / width * stride, fill);
  for (std::size_t i = 0; i < from.size(); ++i) to[i / width * stride + i % width] = from[i];
  return to;
}
Values gather(const Values& from, std::int64_t width, std::int64_t stride, std::int64_t at = 0) {
  Values to(from.size() / stride * width);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i / width * stride + at + i % width];
  return to;
}

struct Result {
  Values out, lse, dq, dk, dv;
};

template <class T>
Result run(const Data<T>& d, int threads) {
  const auto& r = d.r;
  const std::int64_t q_width = r.heads * r.size, kv_width = r.kv_heads * r.size;
  Values kv = spread(d.k, kv_width, d.kv_stride);
  for (std::size_t i = 0; i < d.v.size(); ++i) kv[i / kv_width * d.kv_stride + kv_width + i % kv_width] = d.v[i];
  Guarded<T> q(spread(d.q, q_width, d.q_stride)), keys(kv), out(Values(r.batch * r.queries * d.out_stride, 777)),
      lse(r.batch * r.heads * r.queries);
  Guarded<T> slopes(r.slopes), dout(spread(d.dout, q_width, d.out_stride));
  const T nan = std::numeric_limits<T>::quiet_NaN();
  Guarded<T> dq(r.batch * r.queries * d.q_stride, nan), dkv(kv.size(), nan);
  kernels::AttentionArgs<T> a{r.batch,
                              r.heads,
                              r.kv_heads,
                              r.queries,
                              r.keys,
                              r.size,
                              q,
                              keys,
                              keys + kv_width,
                              d.q_stride,
                              d.kv_stride,
                              out,
                              d.out_stride,
                              lse,
                              static_cast<T>(r.scale),
                              r.causal,
                              r.slopes.empty() ? nullptr : slopes.data(),
                              r.lengths.empty() ? nullptr : r.lengths.data(),
                              {r.p, r.key},
                              r.sequence_offset,
                              r.head_offset,
                              r.heads_total};
  cpu::Stream s{threads};
  kernels::attention(s, a);
  kernels::attention_backward(s, kernels::AttentionBackwardArgs<T>{a, dout, dq, dkv, dkv + kv_width});
  for (std::int64_t i = 0; i < r.batch * r.queries; ++i) {  // what lies between the rows is not touched
    EXPECT_EQ(out.data()[i * d.out_stride + q_width], T{777});
    EXPECT_TRUE(std::isnan(dq.data()[i * d.q_stride + q_width]));
  }
  for (std::int64_t i = 0; i < r.batch * r.keys; ++i) EXPECT_TRUE(std::isnan(dkv.data()[i * d.kv_stride + 2 * kv_width]));
  return {gather(out.values(), q_width, d.out_stride), lse.values(), gather(dq.values(), q_width, d.q_stride),
          gather(dkv.values(), kv_width, d.kv_stride), gather(dkv.values(), kv_width, d.kv_stride, kv_width)};
}

TYPED_TEST(Attention, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  for (const auto& r : cases()) {
    SCOPED_TRACE(testing::Message() << "T " << r.queries << " S " << r.keys << " D " << r.size << " causal " << r.causal);
    const Data<T> d(r);
    const Result got = run(d, 1);
    Values out, lse;
    r(d.q, d.k, d.v, out, lse);
    expect_close(got.out, out, r.p > 0 && sizeof(T) == 8 ? 1e-6 : tolerance<T>(8), "out");  // the scale of dropout is a float
    expect_close(got.lse, lse, tolerance<T>(16), "lse");
  }
}

TEST(AttentionGradient, AgreesWithCentralDifferences) {
  for (auto r : cases()) {
    if (r.queries > 70) {  // as odd, but small enough to differentiate every input
      r.queries = r.queries * 17 / 70, r.keys = r.keys * 17 / 70;
      if (r.causal) r.keys = r.queries + (r.keys > r.queries ? 7 : r.keys < r.queries ? -7 : 0);
    } else if (r.queries > 20) {
      r.queries = 13, r.keys = 15;
      if (!r.lengths.empty()) r.lengths = r.batch == 3 ? std::vector<std::int32_t>{0, 1, 11} : std::vector<std::int32_t>{15, 6};
    }
    SCOPED_TRACE(testing::Message() << "T " << r.queries << " S " << r.keys << " D " << r.size << " causal " << r.causal);
    const Data<double> d(r);
    const Result got = run(d, 1);
    auto loss = [&](const Values& q, const Values& k, const Values& v) {
      Values out, lse;
      r(q, k, v, out, lse);
      return dot(out, d.dout);
    };
    const double bound = r.p > 0 ? 2e-6 : 2e-8;
    expect_close(got.dq, differences(d.q, [&](const Values& q) { return loss(q, d.k, d.v); }), bound, "dq");
    expect_close(got.dk, differences(d.k, [&](const Values& k) { return loss(d.q, k, d.v); }), bound, "dk");
    expect_close(got.dv, differences(d.v, [&](const Values& v) { return loss(d.q, d.k, v); }), bound, "dv");
  }
}

TEST(AttentionGradient, FloatFollowsDouble) {
  for (const auto& r : cases()) {
    SCOPED_TRACE(testing::Message() << "T " << r.queries << " S " << r.keys << " D " << r.size << " causal " << r.causal);
    const Result want = run(Data<double>(r), 1), got = run(Data<float>(r), 1);
    expect_close(got.dq, want.dq, 3e-5, "dq");
    expect_close(got.dk, want.dk, 3e-5, "dk");
    expect_close(got.dv, want.dv, 3e-5, "dv");
  }
}

TYPED_TEST(Attention, BitsDoNotDependOnTheTeam) {
  for (const auto& r : cases()) {
    const Data<TypeParam> d(r);
    const Result one = run(d, 1);
    for (int threads : {2, 3}) {
      const Result more = run(d, threads);
      EXPECT_TRUE(same_bits(one.out, more.out) && same_bits(one.lse, more.lse) && same_bits(one.dq, more.dq) &&
                  same_bits(one.dk, more.dk) && same_bits(one.dv, more.dv));
    }
  }
}

TEST(AttentionHeads, PartOfTheHeadsEqualsTheWhole) {  // masks and slopes follow the global head
  auto whole = shape(2, 4, 4, 30, 30, 8, true);
  whole.p = 0.4f, whole.key = {5, Purpose::dropout, 1, 2};
  const Data<float> d(whole);
  const Result all = run(d, 1);
  for (std::int64_t head = 0; head < 4; ++head) {
    auto one = whole;
    one.heads = one.kv_heads = 1, one.head_offset = head;
    Data<float> part(one);
    part.q = gather(d.q, 8, 32, head * 8), part.k = gather(d.k, 8, 32, head * 8), part.v = gather(d.v, 8, 32, head * 8);
    part.dout = gather(d.dout, 8, 32, head * 8);
    const Result got = run(part, 1);
    expect_close(got.out, gather(all.out, 8, 32, head * 8), 1e-6, "out");
    expect_close(got.dk, gather(all.dk, 8, 32, head * 8), 1e-6, "dk");
  }
}

TEST(AttentionHeads, UnevenGroupsAreRefused) {
  cpu::Stream s{1};
  kernels::AttentionArgs<float> a{.batch = 1, .heads = 3, .kv_heads = 2, .queries = 1, .keys = 1, .head_size = 1};
  EXPECT_THROW(kernels::attention(s, a), Error);
}

}  // namespace
}  // namespace tfm::test
