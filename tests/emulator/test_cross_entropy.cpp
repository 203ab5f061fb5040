// Cross-entropy on the emulator.
#include "kernel_runs.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceLoss : public testing::Test {};
TYPED_TEST_SUITE(DeviceLoss, Floats);

template <class D>
typename D::template Array<std::int32_t> integers(const char* name,
                                                  const std::vector<std::int32_t>& v) {
  return typename D::template Array<std::int32_t>(name, Values(v.begin(), v.end()));
}

struct LossCase {
  std::int64_t rows, cols, padded, stride, vocab_begin, vocab_size;
  double smoothing;
  bool ties = false, whole = false;  // whole: statistics and gradient by one call
  double softcap = 0;                // that the logits have
  bool weighted = false;             // by class

  std::vector<std::int32_t> labels() const {
    std::vector<std::int32_t> l(rows);
    for (std::int64_t r = 0; r < rows; ++r)
      l[r] = r % 5 == 3 ? -100 : static_cast<std::int32_t>(r * 7 % vocab_size);
    return l;
  }
  Values given = {};  // or random logits
  Values logits() const {
    if (!given.empty()) return given;
    Values v = random_values(rows * stride, 1, 5);
    if (ties)
      for (double& x : v) x = std::round(x);
    if (softcap > 0)
      for (double& x : v) x = softcap * std::tanh(x / softcap);
    return v;
  }
  Values of_labelled(Values v) const {
    const auto l = labels();
    for (std::size_t i = 0; i < v.size(); ++i)
      if (l[i % l.size()] < 0) v[i] = 0;
    return v;
  }
  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    typename D::template Array<T> x("logits", rows * stride);
    typename D::template Array<W> max("max", rows), sums("sums", 3 * rows);
    typename D::template Array<double> loss("loss", rows), total("total", 1), correct("correct", 1),
        factor("factor", Values{0.25}), weights("weights", random_values(vocab_size, 4, 2));
    auto label = integers<D>("labels", labels());
    x.assign(rounded<T>(logits()));
    total.assign({3}), correct.assign({2});
    kernels::CrossEntropyArgs<T> a{
        .rows = rows,
        .cols = cols,
        .stride = stride,
        .padded_cols = padded,
        .vocab_begin = vocab_begin,
        .vocab_size = vocab_size,
        .logits = x,
        .labels = label,
        .max = max,
        .sums = sums,
        .class_weights = weighted ? static_cast<double*>(weights) : nullptr,
        .smoothing = static_cast<W>(smoothing),
        .softcap = static_cast<W>(softcap),
        .gradient_scale = factor,
        .loss = loss,
        .total = total,
        .correct = ties ? static_cast<double*>(correct) : nullptr};
    auto& s = D::stream();
    if (whole)
      kernels::cross_entropy_statistics_and_gradient(s, a);
    else
      kernels::cross_entropy_statistics(s, a);
    Values found = sums.values();
    if (smoothing == 0 && !ties) found.resize(2 * rows);  // sums of logits are not needed
    Results r{{"sums", of_labelled(found), rounding<W>(5.0 * static_cast<double>(cols) + 1)},
              {"max", of_labelled(max.values()), 0}};
    if (cols == 0) max.assign(Values(rows, 0)), sums.assign(Values(3 * rows, 1));  // other ranks'
    kernels::cross_entropy_loss(s, a);
    if (!whole) kernels::cross_entropy_gradient(s, a);
    r.insert(r.end(), {{"loss", loss.values(), rounding<W>(20)},
                       {"total", total.values(), rounding<W>(20.0 * rows)},
                       {"correct", correct.values(), 0},
                       {"gradient", x.values(), rounding<T>(0.5)}});
    return r;
  }
};

TYPED_TEST(DeviceLoss, AsTheCpus) {
  using T = TypeParam;
  for (const LossCase& c : {LossCase{1, 1, 1, 1, 0, 1, 0},
                            {9, 37, 40, 40, 0, 37, 0.1},
                            {7, 2500, 2500, 2503, 0, 2500, 0},
                            {6, 64, 80, 83, 64, 200, 0.2},
                            {40, 64, 80, 83, 64, 200, 0, true},
                            {4, 0, 8, 8, 100, 100, 0},
                            {300, 9, 16, 16, 0, 9, 0, true},
                            {11, 3000, 3000, 3001, 0, 3000, 0, true},
                            {4, 1, 1, 8, 0, 1, 0, false, true},
                            {6, 61, 70, 72, 0, 61, 0.1, false, true},
                            {5, 2501, 2504, 2512, 0, 2501, 0, true, true},
                            {2, 20003, 20003, 20008, 0, 20003, 0.1, false, true},
                            {2, 84003, 84006, 84008, 0, 84003, 0.1, false, true},
                            {2, 98304, 98304, 98304, 0, 98304, 0, true, true},
                            {3, 300, 300, 301, 0, 300, 0, false, true},
                            {9, 37, 40, 40, 0, 37, 0.1, false, false, 3},
                            {9, 37, 40, 40, 0, 37, 0.1, false, false, 0, true},
                            {6, 61, 70, 72, 0, 61, 0.1, false, true, 3, true},
                            {6, 61, 70, 72, 0, 61, 0.1, false, true, 3},
                            {2, 84003, 84006, 84008, 0, 84003, 0, false, true, 3}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols << (c.whole ? ", at once" : ""));
    expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
  }
}
TYPED_TEST(DeviceLoss, DISABLED_AtRealShapes) {
  for (const LossCase& c : {LossCase{64, 50257, 50257, 50272, 0, 50257, 0, true, true},
                            {64, 32000, 32000, 32000, 0, 32000, 0.1, false, true},
                            {16, 128256, 128256, 128256, 0, 128256, 0, true, true},
                            {32, 32064, 32064, 32064, 64128, 128256, 0, true}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols << (c.whole ? ", at once" : ""));
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
  }
}
// Statistics of ranks, the last of which has no columns.
TYPED_TEST(DeviceLoss, CombinesRanksAsTheCpu) {
  using T = TypeParam;
  using W = Accum<T>;
  constexpr std::int64_t ranks = 3, rows = 300, stride = 4 * rows + 5;
  for (const bool ties : {false, true})
    expect_as_cpu([&]<class D>() {
      typename D::template Array<W> parts("parts", ranks * stride), max("max", rows),
          sums("sums", 3 * rows);
      Values v = random_values(ranks * stride, 1, 8);
      for (std::int64_t r = 0; r < ranks; ++r)
        for (std::int64_t i = 0; i < rows; ++i) {
          if (ties) v[r * stride + i] = std::round(v[r * stride + i]);
          v[r * stride + rows + i] = r + 1 == ranks ? 0 : std::abs(v[r * stride + rows + i]) + 0.5;
          if (r + 1 == ranks) v[r * stride + i] = -std::numeric_limits<double>::infinity();
        }
      parts.assign(v);
      kernels::cross_entropy_combine(D::stream(), kernels::CombineArgs<T>{.ranks = ranks,
                                                                          .rows = rows,
                                                                          .stride = stride,
                                                                          .parts = parts,
                                                                          .max = max,
                                                                          .sums = sums,
                                                                          .ties = ties});
      return Results{{"max", max.values(), 0}, {"sums", sums.values(), rounding<W>(20)}};
    });
}
TYPED_TEST(DeviceLoss, MatchesTheDefinition) {
  using T = TypeParam;
  const LossCase c{9, 300, 300, 300, 0, 300, 0.1};
  const Values got = c.run<OnDevice, T>()[2].values, x = rounded<T>(c.logits());
  for (std::int64_t r = 0; r < 9; ++r)
    EXPECT_NEAR(got[r], reference::cross_entropy(x.data() + r * 300, 300, c.labels()[r], 0.1),
                rounding<Accum<T>>(20));
}
TEST(DeviceLossCases, NeedTheirBarriers) {
  for (const bool whole : {false, true})
    expect_needs_barriers([&]<class D>() {
      return LossCase{5, 3000, 3000, 3000, 0, 3000, 0, true, whole}.run<D, float>();
    });
}
// Each logit is loaded from global memory once where the row fits in shared memory.
template <class T>
long copies_of(const LossCase& c) {
  emulator::counts = {};
  c.run<OnDevice, T>();
  return emulator::counts.copies;
}
TEST(DeviceLossCases, HoldRowsThatFit) {
  if (!emulator::emulated()) GTEST_SKIP() << "the emulator counts copies";
  constexpr std::int64_t longest = (160 << 10) / sizeof(float);
  EXPECT_EQ(copies_of<float>({1, longest, longest, longest, 0, longest, 0, false, true}),
            longest / 4);
  EXPECT_EQ(
      copies_of<float>({1, longest + 8, longest + 8, longest + 8, 0, longest + 8, 0, false, true}),
      0);
  EXPECT_EQ(copies_of<float>({1, 64, 64, 65, 0, 64, 0, false, true}), 0);
}
// Logits that rise along a row, and a row whose first logits are -inf: sums move to larger maxima.
TYPED_TEST(DeviceLoss, MovesSumsToLargerMaxima) {
  using T = TypeParam;
  constexpr std::int64_t cols = 5000;
  for (const bool whole : {false, true}) {
    LossCase c{2, cols, cols, cols, 0, cols, 0, false, whole};
    c.given = Values(2 * cols, -std::numeric_limits<double>::infinity());
    for (std::int64_t i = 0; i < cols; ++i) {
      c.given[i] = static_cast<double>(i) / 50;
      if (i > 4000) c.given[cols + i] = std::sin(static_cast<double>(i));
    }
    c.given[cols + 7] = 1;  // the label's
    expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
  }
}

struct BucketCase {
  std::int64_t batch, heads, distances, buckets;
  bool accumulate;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    std::vector<std::int32_t> bucket(distances);
    for (std::int64_t i = 0; i < distances; ++i)
      bucket[i] = static_cast<std::int32_t>(i * i % buckets);
    auto ids = integers<D>("bucket", bucket);
    typename D::template Array<T> table("table", rounded<T>(random_values(heads * buckets, 1)));
    typename D::template Array<W> bias("bias", heads * distances),
        dbias("dbias", rounded<W>(random_values(batch * heads * distances, 2))),
        dtable("dtable", heads * buckets);
    dtable.assign(Values(heads * buckets, 0.5));
    kernels::bucket_bias(D::stream(),
                         kernels::BucketBiasArgs<T>{heads, distances, buckets, ids, table, bias});
    kernels::bucket_bias_backward(
        D::stream(), kernels::BucketBiasBackwardArgs<T>{batch, heads, distances, buckets, ids,
                                                        dbias, dtable, accumulate});
    return {{"bias", bias.values(), 0}, {"dtable", dtable.values(), rounding<W>(4)}};
  }
};
TYPED_TEST(DeviceLoss, BucketBiasAsTheCpus) {
  for (const BucketCase& c :
       {BucketCase{1, 1, 1, 1, false}, {3, 2, 41, 7, true}, {2, 3, 600, 32, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

TEST(DeviceBucketBias, NeedsItsBarriers) {
  expect_needs_barriers([&]<class D>() { return BucketCase{2, 2, 600, 7, false}.run<D, float>(); });
}

}  // namespace
}  // namespace tfm::test
