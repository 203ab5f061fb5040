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

// Sizes are multiples of a sixteenth of the rows, itself one of 16; what saves less than an eighth
// of them is not packed.
TEST(PackedRows, HaveFewSizes) {
  for (const auto& [rows, labelled, packed] :
       std::vector<std::array<std::int64_t, 3>>{{65536, 9830, 12288},
                                                {65536, 0, 4096},
                                                {65536, 4096, 4096},
                                                {65536, 4097, 8192},
                                                {65536, 57344, 57344},
                                                {65536, 57345, 65536},
                                                {256, 1, 16},
                                                {256, 224, 224},
                                                {256, 225, 256},
                                                {257, 1, 32},
                                                {32, 16, 16},
                                                {32, 17, 32},
                                                {16, 1, 16}})
    EXPECT_EQ(kernels::packed_rows(rows, labelled), packed) << labelled << " of " << rows;
}

TYPED_TEST(Loss, PackedGradientsGoToTheirRows) {
  using T = TypeParam;
  constexpr std::int64_t cols = 67;
  const std::vector<std::int32_t> places{3, -1, 0};
  const Values x = random_values(3 * cols, 1), before = random_values(4 * cols, 2);
  Guarded<T> from(x);
  cpu::Stream s{2};
  for (const bool accumulate : {false, true}) {
    Guarded<T> to(before);
    const Values old = to.values(), given = from.values();
    kernels::scatter_rows(
        s, kernels::ScatterRowsArgs<T>{3, cols, places.data(), from, to, accumulate});
    const Values now = to.values();
    for (std::int64_t c = 0; c < 4 * cols; ++c) {
      const std::int64_t r = c / cols, k = c % cols;
      const double added = r == 3 ? given[k] : r == 0 ? given[2 * cols + k] : 0;
      EXPECT_EQ(now[c], r == 1 || r == 2 ? old[c]
                        : accumulate
                            ? static_cast<double>(T(static_cast<Accum<T>>(
                                  static_cast<Accum<T>>(old[c]) + static_cast<Accum<T>>(added))))
                            : added)
          << c;
    }
  }
}

// A row is right where its label is the first of the columns with the largest logit, also in a
// later piece of a long row, and in none that has no label.
TYPED_TEST(Loss, RightRowsHaveTheFirstOfTheLargestLogits) {
  using T = TypeParam;
  constexpr std::int64_t rows = 5, cols = 1100;
  Values logits(rows * cols, -1);
  const auto set = [&](std::int64_t row, std::int64_t col, double value) {
    logits[row * cols + col] = value;
  };
  set(0, 0, 2), set(0, 1099, 2);     // the label is the first of two
  set(1, 1024, 2), set(1, 1050, 2);  // the second of two
  set(2, 1099, 2);                   // the only one
  set(3, 5, 2), set(3, 6, 3);        // not the largest
  set(4, 7, 2);                      // no label
  const std::vector<std::int32_t> labels{0, 1050, 1099, 5, -1};
  Guarded<T> x(logits);
  Guarded<Accum<T>> max(rows), sums(3 * rows);
  std::vector<double> loss(rows);
  double total = 1, correct = 10;
  const kernels::CrossEntropyArgs<T> a{.rows = rows,
                                       .cols = cols,
                                       .stride = cols,
                                       .padded_cols = cols,
                                       .vocab_size = cols,
                                       .logits = x,
                                       .labels = labels.data(),
                                       .max = max,
                                       .sums = sums,
                                       .loss = loss.data(),
                                       .total = &total,
                                       .correct = &correct};
  cpu::Stream s{2};
  kernels::cross_entropy_statistics(s, a);
  kernels::cross_entropy_loss(s, a);
  EXPECT_EQ(correct, 10 + 2) << "rows are added";
  const double e3 = std::exp(-3.), e4 = std::exp(-4.);
  const double expected[] = {std::log(2 + 1098 * e3), std::log(2 + 1098 * e3),
                             std::log(1 + 1099 * e3), 1 + std::log(1 + std::exp(-1.) + 1098 * e4),
                             0};
  double sum = 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    EXPECT_NEAR(loss[r], expected[r], 1e-5) << r;
    sum += loss[r];
  }
  EXPECT_DOUBLE_EQ(total, sum);
}

}  // namespace
}  // namespace tfm::test
