// Cross-entropy over a split vocabulary.
#include <array>

#include "kernels/cross_entropy.h"
#include "kernels/packed_rows.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class Loss : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Loss, Types);

struct LossCase {
  std::int64_t rows, cols, parts;
  double smoothing, softcap = 0;
  Values logits = random_values(rows * cols, 1, 5);  // what a cap has made, where there is one
  std::vector<std::int32_t> labels = [this] {
    std::vector<std::int32_t> l(rows);
    const RandomKey key{3, Purpose::data, 0, 0};
    for (std::int64_t r = 0; r < rows; ++r)
      l[r] = r % 5 == 3 ? -100 : static_cast<std::int32_t>(key.word(r) % cols);
    return l;
  }();
  Values class_weights = {};
};

template <class T>
struct LossResult {
  std::vector<double> loss;
  Values gradient;
};

// The vocabulary in `parts` pieces of one padded width.
template <class T>
LossResult<T> run(const LossCase& c, int threads, double scale) {
  const std::int64_t width = (c.cols + c.parts - 1) / c.parts + 2, stride = width + 3;
  std::vector<Guarded<T>> logits, max, sums;
  std::vector<kernels::CrossEntropyArgs<T>> args(c.parts);
  cpu::Stream s{threads};
  double total = 0;
  LossResult<T> result{std::vector<double>(c.rows, 777), Values(c.rows * c.cols)};
  for (std::int64_t p = 0; p < c.parts; ++p) {
    const std::int64_t begin = std::min(p * width, c.cols), cols = std::min(width, c.cols - begin);
    logits.emplace_back(c.rows * stride, T{55}), max.emplace_back(c.rows),
        sums.emplace_back(3 * c.rows);
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t i = 0; i < cols; ++i)
        logits[p].data()[r * stride + i] = static_cast<T>(c.logits[r * c.cols + begin + i]);
    args[p] = {.rows = c.rows,
               .cols = cols,
               .stride = stride,
               .padded_cols = width,
               .vocab_begin = begin,
               .vocab_size = c.cols,
               .labels = c.labels.data(),
               .class_weights = c.class_weights.empty() ? nullptr : c.class_weights.data(),
               .smoothing = static_cast<T>(c.smoothing),
               .softcap = static_cast<T>(c.softcap),
               .gradient_scale = &scale,
               .loss = result.loss.data(),
               .total = &total};
  }
  std::vector<T> gathered;
  for (std::int64_t p = 0; p < c.parts; ++p) {  // the vectors above do not move any more
    args[p].logits = logits[p], args[p].max = max[p], args[p].sums = sums[p];
    kernels::cross_entropy_statistics(s, args[p]);
    gathered.insert(gathered.end(), args[p].max, args[p].max + c.rows);
    gathered.insert(gathered.end(), args[p].sums, args[p].sums + 3 * c.rows);
  }
  if (c.parts > 1)
    for (const auto& a : args)
      kernels::cross_entropy_combine(s, kernels::CombineArgs<T>{.ranks = c.parts,
                                                                .rows = c.rows,
                                                                .stride = 4 * c.rows,
                                                                .parts = gathered.data(),
                                                                .max = a.max,
                                                                .sums = a.sums});
  for (std::int64_t p = 0; p < c.parts; ++p) {
    kernels::cross_entropy_loss(s, args[p]);
    kernels::cross_entropy_gradient(s, args[p]);
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t i = 0; i < stride; ++i) {
        const T g = logits[p].data()[r * stride + i];
        if (i < args[p].cols) {
          result.gradient[r * c.cols + args[p].vocab_begin + i] = g;
        } else {
          EXPECT_EQ(g, i < width ? T{0} : T{55}) << "padding";
        }
      }
  }
  return result;
}

TYPED_TEST(Loss, LossAndGradientOverASplitVocabulary) {
  using T = TypeParam;
  for (double smoothing : {0.0, 0.1})
    for (auto [rows, cols, parts] :
         {std::array{1, 2, 1}, {7, 33, 1}, {7, 33, 3}, {40, 5003, 2}, {6, 5, 4}}) {
      const LossCase c{rows, cols, parts, smoothing};
      const auto got = run<T>(c, 1, 0.25);
      Values loss(rows), gradient(rows * cols);
      for (std::int64_t r = 0; r < rows; ++r) {
        loss[r] =
            reference::cross_entropy(c.logits.data() + r * cols, cols, c.labels[r], smoothing);
        if (c.labels[r] < 0) continue;
        double sum = 0;
        for (std::int64_t i = 0; i < cols; ++i) sum += std::exp(c.logits[r * cols + i]);
        for (std::int64_t i = 0; i < cols; ++i)
          gradient[r * cols + i] = 0.25 * (std::exp(c.logits[r * cols + i]) / sum -
                                           (1 - smoothing) * (i == c.labels[r]) - smoothing / cols);
      }
      expect_close(got.loss, loss, tolerance<T>(10), "loss");
      expect_close(got.gradient, gradient, tolerance<T>(1), "gradient");
      const auto team = run<T>(c, 3, 0.25);
      EXPECT_TRUE(same_bits(got.loss, team.loss) && same_bits(got.gradient, team.gradient));
    }
}

// Lanes beside the last columns are not among the largest, where all logits are far below zero.
TYPED_TEST(Loss, OfLogitsFarBelowZero) {
  using T = TypeParam;
  for (const std::int64_t cols : {1, 5, 33, 67}) {
    LossCase near{6, cols, 1, 0.0}, far = near;
    for (double& x : near.logits) x = std::round(x);
    for (std::size_t i = 0; i < far.logits.size(); ++i) far.logits[i] = near.logits[i] - 1024;
    expect_close(run<T>(far, 1, 1).loss, run<T>(near, 1, 1).loss, tolerance<T>(10), "loss");
    expect_close(run<T>(far, 1, 1).gradient, run<T>(near, 1, 1).gradient, tolerance<T>(1), "d");
  }
}

TEST(LossGradient, IsTimesTheWeightOfTheClass) {
  LossCase c{20, 9, 2, 0.1};
  const auto plain = run<double>(c, 1, 0.25);
  c.class_weights = {0, 1, 0.5, 2, 3, 1.5, 0.25, 4, 1};
  const auto weighted = run<double>(c, 1, 0.25);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const double weight = c.labels[r] < 0 ? 1 : c.class_weights[c.labels[r]];
    EXPECT_DOUBLE_EQ(weighted.loss[r], weight * plain.loss[r]);
    for (std::int64_t i = r * c.cols; i < (r + 1) * c.cols; ++i)
      EXPECT_NEAR(weighted.gradient[i], weight * plain.gradient[i], 1e-15);
  }
}

TEST(LossGradient, AgreesWithCentralDifferences) {
  for (double smoothing : {0.0, 0.2}) {
    const LossCase c{6, 9, 2, smoothing};
    auto total = [&](const Values& logits) {
      double sum = 0;
      for (std::int64_t r = 0; r < c.rows; ++r)
        sum += reference::cross_entropy(logits.data() + r * c.cols, c.cols, c.labels[r], smoothing);
      return sum * 0.5;
    };
    expect_close(run<double>(c, 1, 0.5).gradient, differences(c.logits, total), 1e-9, "gradient");
  }
}

TEST(LossGradient, OfCappedLogitsIsThatBeforeTheCap) {
  constexpr double kCap = 3;
  const Values before = random_values(6 * 9, 1, 5);
  const auto capped = [](const Values& x) {
    Values y = x;
    for (double& v : y) v = kCap * std::tanh(v / kCap);
    return y;
  };
  for (double smoothing : {0.0, 0.2}) {
    LossCase c{6, 9, 2, smoothing, kCap, capped(before)};
    const auto total = [&](const Values& x) {
      const Values logits = capped(x);
      double sum = 0;
      for (std::int64_t r = 0; r < c.rows; ++r)
        sum += reference::cross_entropy(logits.data() + r * c.cols, c.cols, c.labels[r], smoothing);
      return sum * 0.5;
    };
    expect_close(run<double>(c, 1, 0.5).gradient, differences(before, total), 1e-9, "gradient");
    expect_close(run<float>(c, 1, 0.5).gradient, run<double>(c, 1, 0.5).gradient, 1e-6, "float");
  }
}

TYPED_TEST(Loss, LargeLogitsStayFiniteAndBadOnesShow) {
  using T = TypeParam;
  LossCase c{2, 20, 1, 0};
  c.logits[3] = 1e30, c.labels = {3, 3};
  const auto got = run<T>(c, 1, 1);
  EXPECT_EQ(got.loss[0], 0);
  for (double g : got.gradient) EXPECT_TRUE(std::isfinite(g));
  c.logits[27] = std::nan("");
  EXPECT_TRUE(std::isnan(run<T>(c, 1, 1).loss[1]));
}

// Packed rows behind the last one with a label have none, also where no row has one.
TEST(PackedRows, RowsWithoutALabelAreNotCounted) {
  cpu::Stream stream{1};
  for (const std::vector<std::int32_t>& labels :
       {std::vector<std::int32_t>{-1, 5, -1, 0}, {-1, -1, -1, -1}}) {
    std::vector<std::int32_t> places(3, 7), packed(3, 7);
    kernels::pack_rows(stream, {4, labels.data(), 3, places.data(), packed.data()});
    const bool some = labels[1] >= 0;
    EXPECT_EQ(places, some ? (std::vector<std::int32_t>{1, 3, -1}) : std::vector(3, -1));
    EXPECT_EQ(packed, some ? (std::vector<std::int32_t>{5, 0, -1}) : std::vector(3, -1));
  }
}

}  // namespace
}  // namespace tfm::test
