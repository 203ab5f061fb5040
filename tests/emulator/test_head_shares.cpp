// Exchanges of positions for heads, before and after they travel, on the emulator.
#include "kernel_runs.h"
#include "kernels/head_shares.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceHeadShares : public testing::Test {};
TYPED_TEST_SUITE(DeviceHeadShares, Floats);

template <class T>
void expect_shares_as_cpu(const Rows& rows, const kernels::HeadSections& sections) {
  const std::int64_t elements = rows.tokens() * sections.cols();
  for (const bool heads : {false, true})
    for (const bool exchanged : {false, true})
      for (const bool accumulate : {false, true})
        expect_as_cpu([&]<class D>() -> Results {
          typename D::template Array<T> from("from", rounded<T>(random_values(elements, 1))),
              to("to", elements);
          if (accumulate) to.assign(rounded<T>(random_values(elements, 2)));
          auto& s = D::stream();
          kernels::head_shares(s, kernels::HeadSharesArgs<T>{rows, sections, heads, exchanged, from,
                                                             to, accumulate});
          return {{"to", to.values(), 0}};
        });
}

TYPED_TEST(DeviceHeadShares, AsTheCpus) {
  expect_shares_as_cpu<TypeParam>({2, 12, {3, 1}}, {{3, 6, 9}});
  expect_shares_as_cpu<TypeParam>({1, 8, {2, 0}}, {{64, 32, 64}});
  expect_shares_as_cpu<TypeParam>({3, 4, {2, 1}}, {{10}});
}
TYPED_TEST(DeviceHeadShares, DISABLED_AtRealShapes) {
  expect_shares_as_cpu<TypeParam>({2, 4096, {4, 3}}, {{1024, 1024, 2048}});
}

// What is sent by every rank and taken by its place is the whole, in order.
TEST(HeadShares, GiveEachRankAllPositionsOfItsHeads) {
  constexpr int kRanks = 3;
  const kernels::HeadSections sections{{3, 6, 9}};
  const std::int64_t cols = sections.cols(), own = cols / kRanks;
  const Rows first{2, 12, {kRanks, 0}};
  const std::int64_t tokens = first.tokens();
  cpu::Stream s{2};
  std::vector<std::vector<float>> sent;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Rows rows{2, 12, {kRanks, rank}};
    std::vector<float> x(static_cast<std::size_t>(tokens * cols)), out(x.size());
    for (std::int64_t b = 0; b < 2; ++b)
      each_row(rows, b, 0, 12, [&](std::int64_t row, std::int64_t t) {
        for (std::int64_t c = 0; c < cols; ++c)
          x[static_cast<std::size_t>(row * cols + c)] = static_cast<float>((b * 12 + t) * cols + c);
      });
    kernels::head_shares(
        s, kernels::HeadSharesArgs<float>{rows, sections, false, true, x.data(), out.data()});
    sent.push_back(out);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> taken, y(sent[0].size());
    for (const auto& from : sent)
      taken.insert(taken.end(), from.begin() + rank * tokens * own,
                   from.begin() + (rank + 1) * tokens * own);
    kernels::head_shares(
        s, kernels::HeadSharesArgs<float>{
               {2, 12, {kRanks, rank}}, sections, true, false, taken.data(), y.data()});
    for (std::int64_t row = 0; row < 24; ++row)
      for (std::int64_t c = 0; c < own; ++c)
        ASSERT_EQ(y[static_cast<std::size_t>(row * own + c)],
                  static_cast<float>(row * cols + sections.column(kRanks, rank, c)));
  }
}

}  // namespace
}  // namespace tfm::test
