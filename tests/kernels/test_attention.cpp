// Tiled attention, forward and backward, against the plain definition.
#include <array>

#include "support/attention_cpu.h"

namespace tfm::test {
namespace {

template <class T>
class Attention : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Attention, Types);

constexpr Visibility kVisible[] = {{}, Visibility::causal(), {2, 0}, {1, 3}};

// Every combination of options on shapes of one tile.
std::vector<reference::Attention> small_cases() {
  std::vector<reference::Attention> all;
  for (const auto& [queries, keys, first, total] :
       {std::array{9, 9, 0, 9}, {6, 11, 0, 6}, {11, 8, 0, 11}, {4, 13, 5, 13}})
    for (const Visibility& visible : kVisible)
      for (Mask mask : {Mask::none, Mask::right_padding, Mask::scattered_padding, Mask::documents})
        for (int options = 0; options < 16; ++options) {
          all.push_back(reaching(
              part_of(shape(2, 2, options & 1 ? 1 : 2, queries, keys, 3, false), first, total),
              visible.left, visible.right));
          // Of more keys some, whose first one is no multiple of four.
          if (first == 0)
            all.push_back(keys_of(part_of(all.back(), 4, total + 9), 3 + options % 8, keys + 12));
          for (std::size_t i = all.size() - (first == 0 ? 2 : 1); i < all.size(); ++i) {
            set_mask(all[i], mask);
            if (options & 2) set_bias(all[i]);
            if (options & 4) set_dropout(all[i]);
            if (options & 8) all[i] = capped(all[i]);
          }
        }
  return all;
}

// Rows [first, end) of every sequence of keys or values.
Values part_of_rows(const Values& all, const reference::Attention& r, std::int64_t first,
                    std::int64_t end) {
  const std::int64_t width = r.kv_heads * r.size;
  Values part;
  for (std::int64_t b = 0; b < r.batch; ++b)
    part.insert(part.end(), all.begin() + (b * r.keys + first) * width,
                all.begin() + (b * r.keys + end) * width);
  return part;
}

// Several tiles, single elements, odd scales.
std::vector<reference::Attention> large_cases() {
  std::vector<reference::Attention> all;
  for (bool causal : {false, true}) {
    all.push_back(shape(1, 1, 1, 1, 1, 1, causal));
    all.push_back(shape(2, 3, 3, 5, 5, 7, causal));
    all.push_back(shape(2, 2, 2, 130, 130, 16, causal));
    all.push_back(shape(1, 1, 1, 20, 20, 4, causal));
    all.back().scale = -0.7;
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::scattered_padding, Mask::documents})
      for (bool bias : {false, true}) {
        all.push_back(shape(1, 4, 2, 70, 133, 9, causal));  // more keys than queries, grouped
        all.push_back(shape(3, 4, 1, 133, 70, 8, causal));  // fewer: causal rows that see nothing
        if (bias) set_dropout(all.back());
        // A part, of which several tiles see a part of the keys.
        all.push_back(part_of(shape(2, 2, 2, 80, 320, 4, causal), 80, 320));
        for (auto* r : {&all.back(), &all.back() - 1, &all.back() - 2}) {
          set_mask(*r, mask);
          if (bias) set_bias(*r);
        }
      }
    all.push_back(
        shape(2, 2, 1, 67, 66, 5,
              causal));  // tiles without any visible key, and keys seen by one row of a tile
    all.back().k_segments.assign(2 * 66, -1);
    all.back().k_segments[65] = 0;
    set_bias(all.back());
  }
  return all;
}

// Narrower than the distance between some tiles, which are left out.
std::vector<reference::Attention> windows() {
  std::vector<reference::Attention> all;
  for (const Visibility& visible : {Visibility{20, 0}, {90, 0}, {17, 40}, {0, 0}})
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::documents})
      for (bool options : {false, true}) {
        const std::size_t first = all.size();
        all.push_back(shape(2, 4, 2, 270, 270, 6, false));
        all.push_back(part_of(shape(1, 2, 2, 80, 320, 4, false), 150, 320));
        all.push_back(keys_of(part_of(shape(1, 2, 1, 80, 100, 4, false), 150, 320), 37, 320));
        all.push_back(shape(1, 2, 1, 70, 133, 9, false));
        for (std::size_t i = first; i < all.size(); ++i) {
          all[i] = reaching(all[i], visible.left, visible.right);
          set_mask(all[i], mask);
          if (options) set_bias(all[i]), set_dropout(all[i]), all[i] = capped(all[i]);
        }
      }
  return all;
}

std::vector<reference::Attention> beyond_windows() {
  std::vector<reference::Attention> all;
  for (const std::int64_t block : {3, 20})
    for (const Visibility& visible : landmarks(block))
      for (Mask mask : {Mask::none, Mask::right_padding, Mask::documents})
        for (auto r : {shape(1, 4, 2, block == 3 ? 31 : 203, block == 3 ? 31 : 203, 6, false),
                       keys_of(part_of(shape(1, 2, 1, 80, 100, 4, false), 150, 320), 37, 320)}) {
          all.push_back(beyond_window(r, visible));
          set_mask(all.back(), mask);
          if (mask == Mask::none) continue;
          set_bias(all.back()), set_dropout(all.back()), all.back() = capped(all.back());
        }
  return all;
}

std::vector<reference::Attention> prefixes() {
  std::vector<reference::Attention> all = prefixed_cases(6);
  for (std::size_t i = 0; i < all.size(); i += 2)
    set_mask(all[i], Mask::documents), set_bias(all[i]), set_dropout(all[i]);
  auto part = keys_of(part_of(shape(2, 2, 1, 80, 100, 4, true), 150, 320), 37, 320);
  all.push_back(prefixed(part, Visibility::kUnlimited, {200, 90}));
  return all;
}

std::vector<reference::Attention> cases() {
  auto all = small_cases();
  for (const auto& more : {large_cases(), windows(), beyond_windows(), prefixes()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Keys 226 to 329 are seen.
TYPED_TEST(Attention, TilesThatNothingIsSeenOfAreNotRead) {
  const auto r = reaching(part_of(shape(1, 2, 1, 64, 512, 8, false), 256, 512), 30, 10);
  EXPECT_TRUE(run_attention(with_unreadable_keys<TypeParam>(r, 224, 330), 1).finite());
  EXPECT_FALSE(run_attention(with_unreadable_keys<TypeParam>(r, 227, 330), 1).finite());
}

// Nor are they between keys that are seen: the global ones and those of the window.
TYPED_TEST(Attention, TilesBetweenKeysThatAreSeenAreNotRead) {
  auto r = part_of(shape(1, 2, 1, 64, 512, 8, false), 256, 512);
  r.by_position = {30, 10, {.first = 2}};
  for (const bool seen : {false, true}) {
    Data<TypeParam> d = rounded_data<TypeParam>(r, 8);
    for (Values* rows : {&d.k, &d.v})
      for (std::int64_t i = 0; i < std::ssize(*rows); ++i)
        if (const std::int64_t s = i / d.kv_width(); s >= 16 && s < (seen ? 227 : 224))
          (*rows)[i] = NAN;
    EXPECT_NE(run_attention(d, 1).finite(), seen);
  }
}

// Attention to each of three parts of the keys, joined, is that to all of them.
TYPED_TEST(Attention, PartsOfTheKeysAreMerged) {
  using T = TypeParam;
  for (const auto& r : small_cases()) {
    if (r.keys_total > 0 || !r.bias.empty()) continue;
    SCOPED_TRACE(describe(r));
    const Data<T> d(r);
    const AttentionResult whole = run_attention(d, 1);
    std::vector<T> out(d.q.size(), T(NAN)), part_out;
    std::vector<Accum<T>> lse(whole.lse.size(), T(NAN)), part_lse;
    for (const auto& [first, end] :
         {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 4}, {4, r.keys}}) {
      reference::Attention some = keys_of(r, first, r.keys);
      some.keys = end - first;
      Data<T> part(some);
      part.q = d.q, part.k = part_of_rows(d.k, r, first, end),
      part.v = part_of_rows(d.v, r, first, end);
      const AttentionResult got = run_attention(part, 1);
      part_out.assign(got.out.begin(), got.out.end());
      part_lse.assign(got.lse.begin(), got.lse.end());
      cpu::Stream s{1};
      kernels::attention_merge(s, kernels::AttentionMergeArgs<T>{.batch = r.batch,
                                                                 .heads = r.heads,
                                                                 .queries = r.queries,
                                                                 .head_size = r.size,
                                                                 .part = part_out.data(),
                                                                 .part_lse = part_lse.data(),
                                                                 .out = out.data(),
                                                                 .lse = lse.data(),
                                                                 .first = first == 0});
    }
    expect_close(Values(out.begin(), out.end()), whole.out, tolerance<T>(16), "out");
    expect_close(Values(lse.begin(), lse.end()), whole.lse, tolerance<T>(16), "lse");
  }
}

TYPED_TEST(Attention, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  for (const auto& r : cases()) {
    SCOPED_TRACE(describe(r));
    const Data<T> d(r);
    const AttentionResult got = run_attention(d, 1);
    Values out, lse;
    r(d.q, d.k, d.v, out, lse);
    expect_close(got.out, out, r.p > 0 && sizeof(T) == 8 ? 1e-6 : tolerance<T>(8),
                 "out");  // the scale of dropout is a float
    expect_close(got.lse, lse, tolerance<T>(16), "lse");
  }
}

// sum(out * dout) as a function of queries, keys, values and bias.
double loss(reference::Attention r, const Data<double>& d, const Values& q, const Values& k,
            const Values& v, const Values& bias) {
  Values out, lse;
  r.bias = bias;
  r(q, k, v, out, lse);
  return dot(out, d.dout);
}

TEST(AttentionGradient, AgreesWithCentralDifferences) {
  const auto all = small_cases();
  for (std::size_t i = 0; i < all.size(); i += 3) {
    const auto& r = all[i];
    SCOPED_TRACE(describe(r));
    const Data<double> d(r);
    const AttentionResult got = run_attention(d, 1);
    const double bound = r.p > 0 ? 2e-6 : 2e-8;
    expect_close(got.dq,
                 differences(d.q, [&](const Values& q) { return loss(r, d, q, d.k, d.v, r.bias); }),
                 bound, "dq");
    expect_close(got.dk,
                 differences(d.k, [&](const Values& k) { return loss(r, d, d.q, k, d.v, r.bias); }),
                 bound, "dk");
    expect_close(got.dv,
                 differences(d.v, [&](const Values& v) { return loss(r, d, d.q, d.k, v, r.bias); }),
                 bound, "dv");
    expect_close(got.dbias,
                 differences(r.bias, [&](const Values& b) { return loss(r, d, d.q, d.k, d.v, b); }),
                 bound, "dbias");
  }
}

TEST(AttentionGradient, AgreesWithDifferencesAlongRandomDirections) {
  for (const auto& r : cases()) {
    SCOPED_TRACE(describe(r));
    const Data<double> d(r);
    const AttentionResult got = run_attention(d, 1);
    for (std::uint32_t direction = 20; direction < (r.queries < 12 ? 30 : 40); direction += 10) {
      const Values q = random_values(d.q.size(), direction),
                   k = random_values(d.k.size(), direction + 1),
                   v = random_values(d.v.size(), direction + 2),
                   bias = random_values(r.bias.size(), direction + 3);
      const Values along = differences({0}, [&](const Values& x) {
        return loss(r, d, plus(d.q, q, x[0]), plus(d.k, k, x[0]), plus(d.v, v, x[0]),
                    plus(r.bias, bias, x[0]));
      });
      expect_close({dot(got.dq, q) + dot(got.dk, k) + dot(got.dv, v) + dot(got.dbias, bias)}, along,
                   (r.p > 0 ? 1e-5 : 2e-8) * std::max(1.0, std::abs(along[0])), "derivative");
    }
  }
}

TEST(AttentionGradient, FloatFollowsDouble) {
  for (const auto& r : cases()) {
    SCOPED_TRACE(describe(r));
    const AttentionResult want = run_attention(Data<double>(r), 1),
                          got = run_attention(Data<float>(r), 1);
    expect_close(got.dq, want.dq, 3e-5, "dq");
    expect_close(got.dk, want.dk, 3e-5, "dk");
    expect_close(got.dv, want.dv, 3e-5, "dv");
    expect_close(got.dbias, want.dbias, 3e-5, "dbias");
  }
}

// Weights of a row add up to 1 however large its scores are, forward and backward: values that are
// all 1 give 1, and gradients of values add up to those of the outputs.
TYPED_TEST(Attention, WeightsAddUpToOneWithLargeScores) {
  for (const double largest : {1.0, 1e3, 1e5, 1e7, 1e10})
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << largest << ", " << bias);
      auto r = shape(2, 2, 1, 70, 75, 8, false);
      r.scale = largest * 0.37;  // no power of two
      if (bias) set_bias(r);
      Data<TypeParam> d(r);
      std::fill(d.v.begin(), d.v.end(), 1);
      const AttentionResult got = run_attention(d, 1);
      expect_close(got.out, Values(got.out.size(), 1), 1e-5, "out");
      Values sums(8);
      for (std::size_t i = 0; i < got.dv.size(); ++i) sums[i % 8] += got.dv[i];
      for (std::size_t i = 0; i < d.dout.size(); ++i) sums[i % 8] -= d.dout[i];
      expect_close(sums, Values(8), 1e-3, "dv");
    }
}

TYPED_TEST(Attention, BitsDoNotDependOnTheTeam) {
  for (const auto& r : cases()) {
    const Data<TypeParam> d(r);
    const AttentionResult one = run_attention(d, 1);
    for (int threads : {2, 3}) {
      const AttentionResult more = run_attention(d, threads);
      EXPECT_TRUE(same_bits(one.out, more.out) && same_bits(one.lse, more.lse) &&
                  same_bits(one.dq, more.dq) && same_bits(one.dk, more.dk) &&
                  same_bits(one.dv, more.dv) && same_bits(one.dbias, more.dbias));
    }
  }
}

TEST(AttentionHeads, PartOfTheHeadsEqualsTheWhole) {  // dropout masks follow the global head
  auto whole = shape(2, 4, 4, 30, 30, 8, true);
  whole.p = 0.4f, whole.key = {5, Purpose::dropout, 1, 2};
  const Data<float> d(whole);
  const AttentionResult all = run_attention(d, 1);
  for (std::int64_t head = 0; head < 4; ++head) {
    auto one = whole;
    one.heads = one.kv_heads = 1, one.head_offset = head;
    Data<float> part(one);
    part.q = gather(d.q, 8, 32, head * 8), part.k = gather(d.k, 8, 32, head * 8),
    part.v = gather(d.v, 8, 32, head * 8);
    part.dout = gather(d.dout, 8, 32, head * 8);
    const AttentionResult got = run_attention(part, 1);
    expect_close(got.out, gather(all.out, 8, 32, head * 8), 1e-6, "out");
    expect_close(got.dk, gather(all.dk, 8, 32, head * 8), 1e-6, "dk");
  }
}

TEST(AttentionMask, NothingVisibleGivesZerosEverywhere) {
  for (bool causal : {false, true}) {
    auto r = shape(2, 2, 1, 70, 70, 4, causal);
    set_bias(r);
    r.q_segments.assign(140, 1), r.k_segments.assign(140, 2);
    const AttentionResult got = run_attention(Data<float>(r), 1);
    for (const Values* v : {&got.out, &got.dq, &got.dk, &got.dv, &got.dbias})
      EXPECT_EQ(*v, Values(v->size(), 0.0));
    EXPECT_EQ(got.lse, Values(got.lse.size(), -std::numeric_limits<double>::infinity()));
  }
}

TEST(AttentionMask,
     PaddingOnTheRightEqualsAShorterSequence) {  // bit by bit: it only narrows the tiles
  auto padded = shape(1, 2, 2, 40, 90, 8, false), shorter = shape(1, 2, 2, 40, 71, 8, false);
  padded.k_segments.assign(90, -1);
  std::fill_n(padded.k_segments.begin(), 71, 0);
  Data<float> all(padded), part(shorter);
  part.k.assign(all.k.begin(), all.k.begin() + part.k.size());
  part.v.assign(all.v.begin(), all.v.begin() + part.v.size());
  AttentionResult got = run_attention(all, 1);
  const AttentionResult want = run_attention(part, 1);
  for (Values* v : {&got.dk, &got.dv}) v->resize(part.k.size());
  EXPECT_TRUE(same_bits(got.out, want.out) && same_bits(got.dq, want.dq) &&
              same_bits(got.dk, want.dk) && same_bits(got.dv, want.dv));
}

TEST(AttentionMask, DocumentsOfARowDoNotSeeEachOther) {
  auto packed = shape(1, 2, 2, 30, 30, 8, true);
  for (int t = 0; t < 30; ++t) packed.k_segments.push_back(t < 12 ? 4 : 2);
  packed.q_segments = packed.k_segments;
  const Data<double> all(packed);
  const AttentionResult got = run_attention(all, 1);
  for (const auto& [first, length] : {std::pair{0, 12}, {12, 18}}) {
    const auto one = shape(1, 2, 2, length, length, 8, true);
    Data<double> part(one);
    const auto cut = [&, from = first * 16, n = length * 16](const Values& v) {
      return Values(v.begin() + from, v.begin() + from + n);
    };
    part.q = cut(all.q), part.k = cut(all.k), part.v = cut(all.v), part.dout = cut(all.dout);
    const AttentionResult want = run_attention(part, 1);
    expect_close(cut(got.out), want.out, 1e-13, "out");
    expect_close(cut(got.dq), want.dq, 1e-13, "dq");
    expect_close(cut(got.dk), want.dk, 1e-13, "dk");
    expect_close(cut(got.dv), want.dv, 1e-13, "dv");
  }
}

TEST(BucketBias, SpreadsATableAndGathersItsGradient) {
  const std::vector<std::int32_t> bucket{2, 0, 0, 1, 2, 2, 0};  // of four: the last is empty
  const Values table = random_values(2 * 4, 1), dbias = random_values(3 * 2 * 7, 2),
               before = random_values(2 * 4, 3);
  Values want_bias(2 * 7), want(2 * 4);
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < 7; ++i) {
      want_bias[h * 7 + i] = table[h * 4 + bucket[i]];
      for (int b = 0; b < 3; ++b) want[h * 4 + bucket[i]] += dbias[(b * 2 + h) * 7 + i];
    }
  cpu::Stream s{2};
  Guarded<float> t(table), bias(2 * 7), d(dbias), fresh(2 * 4), added(before);
  kernels::bucket_bias(s, kernels::BucketBiasArgs<float>{2, 7, 4, bucket.data(), t, bias});
  EXPECT_EQ(bias.values(), want_bias);
  kernels::bucket_bias_backward(
      s, kernels::BucketBiasBackwardArgs<float>{3, 2, 7, 4, bucket.data(), d, fresh, false});
  kernels::bucket_bias_backward(
      s, kernels::BucketBiasBackwardArgs<float>{3, 2, 7, 4, bucket.data(), d, added, true});
  expect_close(fresh.values(), want, 1e-6, "assigned");
  expect_close(added.values(), plus(before, want), 1e-6, "added");
}

// A cap that no score comes near is none; scores far beyond it are the cap.
TYPED_TEST(Attention, CapsAtTheirEnds) {
  auto r = shape(1, 2, 1, 70, 70, 8, true);
  const AttentionResult none = run_attention(Data<TypeParam>(r), 1);
  r.softcap = 1e4;
  const AttentionResult wide = run_attention(Data<TypeParam>(r), 1);
  expect_close(wide.out, none.out, tolerance<TypeParam>(8) + 1e-6, "out");
  expect_close(wide.dq, none.dq, tolerance<TypeParam>(50) + 1e-6, "dq");
  r.softcap = 1e-3;
  r.scale = 1e3;
  const AttentionResult flat = run_attention(Data<TypeParam>(r), 1);
  EXPECT_TRUE(flat.finite());
  for (std::int64_t t = 0; t < 70; ++t) EXPECT_NEAR(flat.lse[t], std::log(t + 1.0), 2e-3);
  expect_close(flat.dk, Values(flat.dk.size()), 1e-3, "dk");
}

TEST(AttentionHeads, UnevenGroupsAreRefused) {
  cpu::Stream s{1};
  kernels::AttentionArgs<float> a{
      .batch = 1, .heads = 3, .kv_heads = 2, .queries = 1, .keys = 1, .head_size = 1};
  EXPECT_THROW(kernels::attention(s, a), Error);
}

}  // namespace
}  // namespace tfm::test
