// 16-bit attention on CPUs against float64: not farther from it than twice (gradients: three times)
// the plain computation rounded to 16 bits.
#include <array>
#include <limits>

#include "support/attention_cpu.h"
#include "support/attention_plain.h"

namespace tfm::test {
namespace {

template <class T>
class HalfAttention : public testing::Test {};
using HalfTypes = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(HalfAttention, HalfTypes);

template <class T>
void expect_right(const reference::Attention& r) {
  SCOPED_TRACE(describe(r));
  const Data<T> d = rounded_data<T>(r);
  const AttentionResult got = run_attention(d, 1);
  EXPECT_EQ(complaint(d, got), "");
  EXPECT_TRUE(same(got, run_attention(d, 3))) << "bits depend on the team";
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

TYPED_TEST(HalfAttention, QueriesThatAreAPart) {
  for (bool causal : {false, true})
    for (Mask mask : {Mask::none, Mask::documents}) {
      auto r = part_of(shape(2, 4, 2, 80, 320, 32, causal), 80, 320);
      set_mask(r, mask);
      expect_right<TypeParam>(r);
      set_bias(r), set_dropout(r);
      expect_right<TypeParam>(r);
    }
}

TYPED_TEST(HalfAttention, QueriesThatSeeAWindow) {
  for (const auto& [left, right] : {std::pair{20, 0}, {100, 0}, {17, 40}})
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::documents})
      for (bool options : {false, true})
        for (auto r : {shape(2, 4, 2, 270, 270, 32, false),
                       keys_of(part_of(shape(1, 2, 1, 80, 100, 32, false), 150, 320), 37, 320)}) {
          r = reaching(r, left, right);
          set_mask(r, mask);
          if (options) set_bias(r), set_dropout(r);
          expect_right<TypeParam>(r);
        }
}

TYPED_TEST(HalfAttention, ScoresAreCapped) {
  for (bool causal : {false, true})
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::documents})
      for (bool options : {false, true}) {
        for (auto r : {shape(2, 4, 2, 97, 97, 64, causal), shape(1, 2, 1, 70, 130, 18, causal),
                       keys_of(part_of(shape(1, 2, 1, 80, 100, 32, causal), 150, 320), 37, 320)}) {
          set_mask(r, mask);
          if (options) set_bias(r), set_dropout(r);
          expect_right<TypeParam>(capped(r));
        }
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

TYPED_TEST(HalfAttention, PrefixesThatSeeThemselves) {
  for (const auto& r : prefixed_cases(32)) expect_right<TypeParam>(r);
}

TYPED_TEST(HalfAttention, QueriesThatSeeBeyondAWindow) {
  for (const Visibility& visible : landmarks(20))
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::documents})
      for (auto r : {shape(1, 4, 2, 203, 203, 32, false),
                     keys_of(part_of(shape(1, 2, 1, 80, 100, 32, false), 150, 320), 37, 320)}) {
        r = beyond_window(r, visible);
        set_mask(r, mask);
        if (mask == Mask::documents) set_bias(r), set_dropout(r);
        expect_right<TypeParam>(r);
      }
}

TYPED_TEST(HalfAttention, NothingVisibleGivesZerosEverywhere) {
  auto r = shape(2, 2, 1, 70, 70, 32, true);
  set_bias(r);
  r.q_segments.assign(140, 1), r.k_segments.assign(140, 2);
  const AttentionResult got = run_attention(rounded_data<TypeParam>(r), 1);
  for (const Values* v : {&got.out, &got.dq, &got.dk, &got.dv, &got.dbias})
    EXPECT_EQ(*v, Values(v->size(), 0.0));
  EXPECT_EQ(got.lse, Values(got.lse.size(), -std::numeric_limits<double>::infinity()));
}

}  // namespace
}  // namespace tfm::test
