// Attention's kernels: every option against float64, under every schedule, and with each barrier
// left out.
#include <array>

#include "attention_run.h"
#include "kernels/cuda/attention_padding.h"
#include "kernels/cuda/attention_warpgroup.h"

namespace tfm::test {
namespace {

using emulator::Options;
using emulator::Order;

template <class T>
class DeviceAttention : public testing::Test {};
template <class T>
class TensorAttention : public testing::Test {};
using Types = testing::Types<float, double, bf16, f16>;
using Halves = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(DeviceAttention, Types);
TYPED_TEST_SUITE(TensorAttention, Halves);

reference::Attention with(reference::Attention r, Mask mask, bool bias = false,
                          bool dropout = false) {
  set_mask(r, mask);
  if (bias) set_bias(r);
  if (dropout) set_dropout(r);
  return r;
}

// Documents longer than a tile.
reference::Attention with_long_documents(reference::Attention r) {
  for (std::int64_t i = 0; i < r.batch * r.keys; ++i)
    r.k_segments.push_back(i % r.keys < 3 ? -1 : static_cast<std::int32_t>(i % r.keys / 71));
  for (std::int64_t i = 0; i < r.batch * r.queries; ++i)
    r.q_segments.push_back(static_cast<std::int32_t>(i % r.queries / 71));
  return r;
}

// Every combination of options: more tiles than a kernel has buffers, or few rows. `first`: of the
// queries, of as many as there are keys; below 0: all of them.
using Lengths = std::array<std::pair<int, int>, 4>;
std::vector<reference::Attention> combinations(std::int64_t size, const Lengths& lengths,
                                               std::int64_t first = -1) {
  std::vector<reference::Attention> all;
  int i = 0;
  for (bool causal : {false, true})
    for (Mask mask : {Mask::none, Mask::right_padding, Mask::scattered_padding, Mask::documents})
      for (int options = 0; options < 4; ++options) {
        const auto [queries, keys] = lengths[i++ % 4];
        const auto whole =
            shape(options & 1 ? 1 : 2, options & 1 ? 4 : 2, 2, queries, keys, size, causal);
        all.push_back(
            with(first < 0 ? whole : part_of(whole, first, keys), mask, options & 1, options & 2));
      }
  return all;
}

constexpr Lengths kShort{{{70, 33}, {33, 70}, {65, 65}, {9, 97}}};

// Options of a device without and, where they are used, with products of warpgroups.
std::vector<Options> devices(std::int64_t size, bool landmarks = false) {
  std::vector<Options> all(1);
  const std::int64_t width = round_up(size, 32);
  if (emulator::emulated() && !landmarks && (width == 64 || width == 128))
    all.push_back({.warpgroups = true});
  return all;
}

template <class T>
void expect_right(const reference::Attention& r, std::int64_t gap = 8) {
  SCOPED_TRACE(describe(r));
  const Data<T> d = device_data<T>(r, gap);
  for (const Options& device : devices(r.size, r.by_position.beyond.any() || !r.prefixes.empty())) {
    emulator::counts = {};
    std::string text, complaints;
    EXPECT_EQ(kind_of_failure(
                  device, [&] { complaints = complaint(d, run_attention(d)); }, &text),
              "")
        << text;
    EXPECT_EQ(complaints, "");
    EXPECT_EQ(emulator::counts.unwaited_copies, 0);
    EXPECT_EQ(emulator::counts.bank_conflicts, 0);
    if (gap == 8 && r.queries * r.keys > 0) {
      const bool few = std::max(r.queries, r.keys) <= 32 && r.bias.empty();
      EXPECT_EQ(emulator::counts.warpgroup_mma > 0, device.warpgroups && !few);
    }
  }
}

TEST(PlainAttention, AgreesWithReferenceAndCpu) {
  for (const auto& r : combinations(8, kShort)) {
    SCOPED_TRACE(describe(r));
    const Data<double> d(r);
    const AttentionResult got =
        plain_attention(r, d.q, d.k, d.v, d.dout, [](double x) { return x; });
    Values out, lse;
    r(d.q, d.k, d.v, out, lse);
    expect_close(got.out, out, 1e-13, "out");
    expect_close(got.lse, lse, 1e-13, "lse");
  }
}

TYPED_TEST(TensorAttention, EveryCombinationOfOptions) {
  for (const auto& r : combinations(64, {{{193, 70}, {70, 193}, {97, 97}, {9, 130}}}))
    expect_right<TypeParam>(r);
}

// All gradients come from one kernel, in tiles of 32 and of 64.
TYPED_TEST(TensorAttention, ShortSequences) {
  constexpr std::int64_t kSizes[] = {64, 40, 128, 96};
  int i = 0;
  for (const auto& [queries, keys] : {std::pair{32, 32}, {64, 64}, {27, 19}, {33, 61}})
    for (bool causal : {false, true})
      for (Mask mask : {Mask::none, Mask::right_padding, Mask::scattered_padding, Mask::documents})
        for (bool dropout : {false, true}) {
          const auto r = shape(2, 3, i % 3 > 0 ? 1 : 3, queries, keys, kSizes[i / 3 % 4], causal);
          expect_right<TypeParam>(with(r, mask, false, dropout));
          ++i;
        }
  for (const auto& [queries, keys] : {std::pair{9, 32}, {1, 17}, {30, 41}, {50, 64}})
    expect_right<TypeParam>(
        with(part_of(shape(1, 3, 1, queries, keys, 64, true), 7, keys), Mask::none, false, true));
  for (const auto& [queries, keys] : {std::pair{0, 9}, {9, 0}, {64, 1}, {1, 64}})
    expect_right<TypeParam>(shape(1, 2, 1, queries, keys, 64, false));
}

TYPED_TEST(TensorAttention, QueriesThatAreAPart) {
  for (const auto& r : combinations(32, {{{9, 70}, {33, 97}, {70, 110}, {65, 130}}}, 37))
    expect_right<TypeParam>(r);
}

// Keys that are a part, from one on that is no multiple of four.
TYPED_TEST(TensorAttention, KeysThatAreAPart) {
  for (auto& r : combinations(32, {{{9, 70}, {70, 33}, {33, 110}, {65, 65}}})) {
    const std::int64_t total = r.keys + 50;
    reference::Attention part =
        keys_of(part_of(r, 21, r.queries + 40), 11 + 4 * (r.heads > 2), total);
    part.k_segments.clear(), part.q_segments.clear();
    if (!r.k_segments.empty())
      set_mask(part, r.q_segments.empty() ? Mask::scattered_padding : Mask::documents);
    expect_right<TypeParam>(part);
  }
}

// Masks and biases come behind the cap; short sequences have a kernel of their own.
TYPED_TEST(TensorAttention, ScoresAreCapped) {
  const auto all = combinations(64, {{{97, 70}, {70, 97}, {65, 65}, {9, 130}}});
  for (std::size_t i = 0; i < all.size(); i += 3) expect_right<TypeParam>(capped(all[i]));
  for (const std::int64_t size : {32, 128, 256})
    expect_right<TypeParam>(capped(with(shape(1, 4, 2, 70, 70, size, true), Mask::none, true)));
  for (const auto& [queries, keys] : {std::pair{32, 32}, {61, 64}})
    for (bool dropout : {false, true})
      expect_right<TypeParam>(capped(
          with(shape(2, 6, 2, queries, keys, 64, true), Mask::right_padding, false, dropout)));
  expect_right<TypeParam>(capped(reaching(shape(1, 2, 1, 130, 130, 64, false), 20, 0)));
  expect_right<TypeParam>(
      capped(with(shape(2, 2, 1, 21, 37, 12, true), Mask::scattered_padding, true, true)), 1);
}

// Tiles that nothing is seen of come before and behind the others.
TYPED_TEST(TensorAttention, QueriesThatSeeAWindow) {
  for (const auto& [left, right] : {std::pair{20, 0}, {100, 0}, {17, 40}})
    for (bool added : {false, true})
      for (const auto& r :
           {shape(1, 2, 1, 270, 270, 64, false), shape(1, 2, 1, 60, 60, 64, false),
            keys_of(part_of(shape(1, 2, 1, 80, 100, 32, false), 150, 320), 37, 320)})
        expect_right<TypeParam>(
            with(reaching(r, left, right), added ? Mask::documents : Mask::none, added, added));
}

TYPED_TEST(TensorAttention, QueriesThatSeeBeyondAWindow) {
  for (const Visibility& visible : landmarks(25))
    for (bool added : {false, true})
      for (const auto& r :
           {shape(1, 2, 1, 270, 270, 64, false), shape(1, 2, 1, 60, 60, 64, false),
            keys_of(part_of(shape(1, 2, 1, 80, 100, 32, false), 150, 320), 37, 320)})
        expect_right<TypeParam>(
            with(beyond_window(r, visible), added ? Mask::documents : Mask::none, added, added));
  for (const Visibility& visible : landmarks(64))  // blocks that are tiles
    if (visible.beyond.block > 0 && !visible.beyond.repeats)
      expect_right<TypeParam>(capped(beyond_window(shape(1, 1, 1, 640, 640, 64, false), visible)));
}

TYPED_TEST(TensorAttention, PrefixesThatSeeThemselves) {
  for (auto r : prefixed_cases(64)) {
    expect_right<TypeParam>(r);
    r = with(r, Mask::documents, true, true);
    if (r.by_position.left < 30) expect_right<TypeParam>(capped(r));
  }
  expect_right<TypeParam>(prefixed(shape(2, 2, 1, 60, 60, 64, true), 9, {33, 0}));
}

// Nor are those between the keys that are seen: 0, 1, and 226 to 329.
TYPED_TEST(DeviceAttention, TilesBetweenKeysThatAreSeenAreNotRead) {
  auto r = part_of(shape(1, 2, 1, 64, 512, 64, false), 256, 512);
  r.by_position = {30, 10, {.first = 2}};
  Data<TypeParam> d = rounded_data<TypeParam>(r, 8);
  for (Values* rows : {&d.k, &d.v})
    for (std::int64_t i = 0; i < std::ssize(*rows); ++i)
      if (const std::int64_t s = i / d.kv_width(); (s >= 64 && s < 192) || s >= 384)
        (*rows)[i] = NAN;
  EXPECT_TRUE(run_attention(d).finite());
}

// Keys 226 to 329 are seen, and 192 to 383 their tiles.
TYPED_TEST(DeviceAttention, TilesThatNothingIsSeenOfAreNotRead) {
  const auto r = reaching(part_of(shape(1, 2, 1, 64, 512, 64, false), 256, 512), 30, 10);
  EXPECT_TRUE(run_attention(with_unreadable_keys<TypeParam>(r, 192, 384)).finite());
  EXPECT_FALSE(run_attention(with_unreadable_keys<TypeParam>(r, 227, 384)).finite());
}

TYPED_TEST(TensorAttention, EveryHeadSize) {
  for (const auto& [size, length] : {std::pair{8, 70},
                                     {32, 193},
                                     {40, 97},
                                     {80, 97},
                                     {96, 130},
                                     {128, 193},
                                     {160, 70},
                                     {256, 97}}) {
    const auto r = shape(1, 2, 1, length, length, size, true);
    expect_right<TypeParam>(r);
    expect_right<TypeParam>(with(r, Mask::scattered_padding, true, true));
  }
}

TYPED_TEST(TensorAttention, LongSequencesAndFewRows) {
  expect_right<TypeParam>(shape(1, 2, 2, 256, 256, 64, true));
  expect_right<TypeParam>(shape(1, 4, 1, 1, 97, 64, true));
  expect_right<TypeParam>(shape(1, 2, 2, 65, 1, 64, false));
  expect_right<TypeParam>(with_long_documents(shape(2, 2, 2, 200, 200, 64, true)));
  expect_right<TypeParam>(with_long_documents(shape(1, 2, 2, 200, 140, 32, false)));
  auto r = shape(1, 1, 1, 130, 130, 32, true);
  r.scale = -0.7;
  expect_right<TypeParam>(r);
}

// One sequence of few heads: the reference takes long.
TYPED_TEST(TensorAttention, DISABLED_AtRealShapes) {
  expect_right<TypeParam>(shape(1, 2, 2, 1024, 1024, 64, true));
  expect_right<TypeParam>(with(shape(1, 2, 1, 1024, 1024, 64, false), Mask::right_padding));
  expect_right<TypeParam>(with(shape(1, 2, 1, 512, 1024, 64, false), Mask::none, true, true));
  expect_right<TypeParam>(with_long_documents(shape(1, 2, 1, 2048, 2048, 128, true)));
  expect_right<TypeParam>(shape(1, 1, 1, 4096, 4096, 128, true));
}

// Sizes and rows that no tensor core takes.
TYPED_TEST(TensorAttention, OddSizesAndMisalignedRows) {
  expect_right<TypeParam>(
      with(shape(2, 2, 1, 21, 37, 12, true), Mask::scattered_padding, true, true), 1);
  expect_right<TypeParam>(shape(1, 2, 2, 33, 33, 64, true), 1);
  expect_right<TypeParam>(shape(1, 2, 2, 33, 33, 3, false), 8);
}

template <class T>
void expect_exact(const reference::Attention& r) {
  SCOPED_TRACE(describe(r));
  const Data<T> d(r);
  const AttentionResult got = run_attention(d), want = plain_attention(r, d.q, d.k, d.v, d.dout,
                                                                       [](double x) { return x; });
  const double slack = r.p > 0 && sizeof(T) == 8 ? 1e-6 : 0;  // the scale of dropout is a float
  expect_close(got.out, want.out, tolerance<T>(8) + slack, "out");
  expect_close(got.lse, want.lse, tolerance<T>(16) + slack, "lse");
  expect_close(got.dq, want.dq, tolerance<T>(50) + slack, "dq");
  expect_close(got.dk, want.dk, tolerance<T>(50) + slack, "dk");
  expect_close(got.dv, want.dv, tolerance<T>(50) + slack, "dv");
  expect_close(got.dbias, want.dbias, tolerance<T>(50) + slack, "dbias");
}

TEST(WideAttention, EveryCombinationOfOptions) {
  for (const auto& r : combinations(7, kShort)) expect_exact<float>(r), expect_exact<double>(r);
  for (const auto& r : combinations(7, {{{5, 33}, {9, 50}, {17, 65}, {30, 97}}}, 11))
    expect_exact<float>(r), expect_exact<double>(r);
  for (const int first : {6, 7}) {
    const auto r = with(keys_of(part_of(shape(2, 4, 2, 20, 33, 7, true), 22, 60), first, 60),
                        Mask::documents, true, true);
    expect_exact<float>(r), expect_exact<double>(r);
  }
}
TEST(WideAttention, ScoresAreCapped) {
  for (const auto& r : combinations(7, {{{40, 33}, {33, 40}, {35, 35}, {9, 50}}}))
    expect_exact<float>(capped(r)), expect_exact<double>(capped(r));
}
TEST(WideAttention, QueriesThatSeeAWindow) {
  for (const auto& [left, right] : {std::pair{20, 0}, {70, 0}, {17, 40}})
    for (bool added : {false, true})
      for (const auto& r :
           {shape(1, 2, 1, 130, 130, 7, false),
            keys_of(part_of(shape(1, 2, 1, 30, 70, 7, false), 150, 320), 77, 320)}) {
        const auto windowed =
            with(reaching(r, left, right), added ? Mask::documents : Mask::none, added, added);
        expect_exact<float>(windowed), expect_exact<double>(windowed);
      }
}
TEST(WideAttention, QueriesThatSeeBeyondAWindow) {
  for (const Visibility& visible : landmarks(10))
    for (bool added : {false, true})
      for (const auto& r :
           {shape(1, 2, 1, 130, 130, 7, false),
            keys_of(part_of(shape(1, 2, 1, 30, 70, 7, false), 150, 320), 77, 320)}) {
        const auto more =
            with(beyond_window(r, visible), added ? Mask::documents : Mask::none, added, added);
        expect_exact<float>(more), expect_exact<double>(more);
      }
}
TEST(WideAttention, PrefixesThatSeeThemselves) {
  for (const auto& r : prefixed_cases(7)) expect_exact<float>(r), expect_exact<double>(r);
}
TEST(WideAttention, EveryHeadSize) {
  for (int size : {1, 16, 33, 128, 256}) {
    expect_exact<float>(with(shape(1, 2, 1, 40, 70, size, true), Mask::none, true));
    expect_exact<double>(
        with(shape(1, 2, 1, 20, 37, size, true), Mask::scattered_padding, true, true));
  }
}

// Rows of which both parts see keys, one of them, or none.
TYPED_TEST(DeviceAttention, PartsAreMerged) {
  using T = TypeParam;
  constexpr std::int64_t batch = 2, heads = 3, queries = 7;
  for (const std::int64_t size : {5, 16}) {
    const std::int64_t n = batch * queries * heads * size, rows = batch * heads * queries;
    const Values first = rounded<T>(random_values(n, 1)), second = rounded<T>(random_values(n, 2));
    Values before = random_values(rows, 3), part = random_values(rows, 4);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (r % 4 == 1 || r % 4 == 3) before[r] = -INFINITY;
      if (r % 4 == 2 || r % 4 == 3) part[r] = -INFINITY;
    }
    Buffer<T> x("first", first), y("second", second);
    Buffer<Accum<T>> x_lse("lse of first", before), y_lse("lse of second", part), out("out", n),
        lse("lse", rows);
    kernels::AttentionMergeArgs<T> a{batch, heads, queries, size, x, x_lse, out, lse, true};
    kernels::attention_merge(device_stream(), a);
    EXPECT_EQ(out.values(), first);
    EXPECT_EQ(lse.values(), x_lse.values());
    a.part = y, a.part_lse = y_lse, a.first = false;
    kernels::attention_merge(device_stream(), a);
    Values want(n), want_lse(rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t b = r / heads / queries, h = r / queries % heads, t = r % queries;
      const double of_first = std::exp(before[r]), of_second = std::exp(part[r]),
                   sum = of_first + of_second;
      want_lse[r] = std::log(sum);
      for (std::int64_t d = 0; d < size; ++d) {
        const std::int64_t at = ((b * queries + t) * heads + h) * size + d;
        want[at] = sum > 0 ? (of_first * first[at] + of_second * second[at]) / sum : first[at];
      }
    }
    expect_close(out.values(), want, tolerance<Accum<T>>(8), "out");
    expect_close(lse.values(), want_lse, tolerance<Accum<T>>(8), "lse");
  }
}

TYPED_TEST(DeviceAttention, NothingVisibleGivesZerosEverywhere) {
  auto r = shape(2, 2, 1, 70, 70, 32, true);
  set_bias(r);
  r.q_segments.assign(140, 1), r.k_segments.assign(140, 2);
  const AttentionResult got = run_attention(device_data<TypeParam>(r));
  for (const Values* v : {&got.out, &got.dq, &got.dk, &got.dv, &got.dbias})
    EXPECT_EQ(*v, Values(v->size(), 0.0));
  EXPECT_EQ(got.lse, Values(got.lse.size(), -INFINITY));
}

// With queries of zero all visible weights are equal, and with one-hot values each output is one
// weight: exactly the mask.
TYPED_TEST(DeviceAttention, MasksAndDropoutElementByElement) {
  for (Mask mask : {Mask::none, Mask::scattered_padding, Mask::documents})
    for (bool causal : {false, true}) {
      auto r = with(shape(1, 2, 2, 70, 61, 64, causal), mask, false, true);
      SCOPED_TRACE(describe(r));
      Data<TypeParam> d = device_data<TypeParam>(r);
      d.q.assign(d.q.size(), 0);
      for (std::size_t i = 0; i < d.v.size(); ++i) d.v[i] = i / 128 == i % 64;
      const AttentionResult got = run_attention(d),
                            want = plain_attention(r, d.q, d.k, d.v, d.dout,
                                                   [](double x) { return x; });
      for (std::size_t i = 0; i < got.out.size(); ++i) {
        EXPECT_EQ(got.out[i] == 0, want.out[i] == 0) << i;
        EXPECT_NEAR(got.out[i], want.out[i], (sizeof(TypeParam) == 2 ? 4e-3 : 1e-6) * want.out[i])
            << i;
      }
    }
}

template <class T>
void expect_same_bits_in_every_schedule(const reference::Attention& r) {
  SCOPED_TRACE(describe(r));
  const Data<T> d = device_data<T>(r);
  AttentionResult first;
  for (const Options& device : devices(r.size)) {
    ASSERT_EQ(kind_of_failure(device, [&] { first = run_attention(d); }), "");
    for (Order order : {Order::ascending, Order::descending, Order::random})
      for (emulator::Copies copies :
           {emulator::Copies::at_wait, emulator::Copies::at_issue, emulator::Copies::either}) {
        Options o = device;
        o.warps = o.blocks = order, o.copies = copies, o.seed = 3;
        AttentionResult got;
        ASSERT_EQ(kind_of_failure(o, [&] { got = run_attention(d); }), "");
        EXPECT_TRUE(same(got, first));
      }
  }
}

TYPED_TEST(DeviceAttention, BitsDoNotDependOnTheSchedule) {
  const bool tensor = sizeof(TypeParam) == 2;
  const auto r = shape(1, 2, 1, tensor ? 193 : 70, tensor ? 193 : 70, tensor ? 64 : 5, true);
  expect_same_bits_in_every_schedule<TypeParam>(with(r, Mask::scattered_padding, true, true));
  if (tensor)
    expect_same_bits_in_every_schedule<TypeParam>(
        with(shape(1, 4, 2, 64, 53, 64, true), Mask::scattered_padding, false, true));
}

TYPED_TEST(TensorAttention, ToleratesOtherOrdersOfSummation) {
  const auto r = shape(1, 2, 1, 130, 130, 64, true);
  const Data<TypeParam> d = device_data<TypeParam>(r);
  for (emulator::Sum sum :
       {emulator::Sum::once_rounded, emulator::Sum::reversed, emulator::Sum::truncated_halves}) {
    Options o;
    o.sum = sum, o.exp2_noise = 4;
    AttentionResult got;
    ASSERT_EQ(kind_of_failure(o, [&] { got = run_attention(d); }), "");
    EXPECT_EQ(complaint(d, got), "");
  }
}

// Each barrier and wait is needed: without it some check of some case fails.
template <class T>
void leave_out_each(const std::vector<reference::Attention>& cases, const Options& device = {}) {
  emulator::synchronisations.clear();
  for (const auto& r : cases)
    EXPECT_EQ(kind_of_failure(device, [&] { run_attention(device_data<T>(r)); }), "");
  for (const auto& s : std::vector(emulator::synchronisations)) {
    bool found = false;
    for (const auto& r : cases) {
      const Data<T> d = device_data<T>(r);
      AttentionResult right;
      kind_of_failure(device, [&] { right = run_attention(d); });
      for (Order order : {Order::ascending, Order::descending, Order::random}) {
        if (found) continue;
        Options o = device;
        o.suppressed = s.at, o.warps = order;
        AttentionResult got;
        found = !kind_of_failure(o, [&] { got = run_attention(d); }).empty() || !same(got, right);
      }
    }
    EXPECT_TRUE(found) << s.name << " at " << s.at.file_name() << ":" << s.at.line()
                       << " can be left out";
  }
}

TEST(AttentionBarriers, AreAllNeeded) {
  const auto added = [](const reference::Attention& r) {
    return with(r, Mask::scattered_padding, true);
  };
  leave_out_each<bf16>(
      {shape(1, 2, 1, 193, 193, 32, false), added(shape(1, 1, 1, 193, 193, 32, true))});
  leave_out_each<bf16>(
      {shape(1, 2, 1, 193, 193, 64, false), added(shape(1, 1, 1, 193, 193, 64, true))},
      {.warpgroups = true});
  leave_out_each<bf16>({shape(1, 4, 2, 64, 64, 64, true)});
  leave_out_each<float>(
      {shape(1, 2, 1, 20, 100, 5, false), added(shape(1, 2, 1, 20, 100, 5, true))});
}

TEST(WarpgroupProducts, AreTriedBeforeTheyAreUsed) {
  if (!emulator::emulated()) {
    cudaDeviceProp device;
    cuda::check(cudaGetDeviceProperties(&device, 0));
    EXPECT_EQ(kernels::gpu::multiplies_by_warpgroups(device_stream()), device.major == 9);
    return;
  }
  const auto found = [](const Options& o) {
    cuda::Stream stream(0);
    bool use = false;
    testing::internal::CaptureStderr();
    EXPECT_EQ(kind_of_failure(o, [&] { use = kernels::gpu::multiplies_by_warpgroups(stream); }),
              "");
    return std::pair(use, testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(found({.warpgroups = true}), std::pair(true, std::string()));
  EXPECT_EQ(found({}), std::pair(false, std::string()));
  const auto [use, text] = found({.warpgroups = true, .wrong_warpgroups = true});
  EXPECT_FALSE(use);
  EXPECT_NE(text.find("attention uses those of single warps"), std::string::npos) << text;
}

// Keys and values of a cache: fewer rows are read than there are.
TYPED_TEST(DeviceAttention, RowsOfACache) {
  using T = TypeParam;
  const std::int64_t width = 2 * 32, rows = 50, keys = 41;
  const Values q = rounded<T>(random_values(2 * 3 * width, 1)),
               k = rounded<T>(random_values(2 * rows * width, 2)),
               v = rounded<T>(random_values(2 * rows * width, 3));
  const auto first_rows = [&](const Values& x) {
    Values y;
    for (std::int64_t b = 0; b < 2; ++b)
      y.insert(y.end(), x.begin() + b * rows * width, x.begin() + (b * rows + keys) * width);
    return y;
  };
  const auto r = shape(2, 2, 2, 3, keys, 32, true);
  Values want, want_lse;
  r(q, first_rows(k), first_rows(v), want, want_lse);
  Buffer<T> dq("q", q), dk("k", k), dv("v", v), out("out", std::ssize(q));
  Buffer<Accum<T>> lse("lse", 2 * 2 * 3);
  kernels::attention(device_stream(),
                     kernels::AttentionArgs<T>{.batch = 2,
                                               .heads = 2,
                                               .kv_heads = 2,
                                               .queries = 3,
                                               .keys = keys,
                                               .head_size = 32,
                                               .q = dq,
                                               .k = dk,
                                               .v = dv,
                                               .q_stride = width,
                                               .kv_stride = width,
                                               .out = out,
                                               .out_stride = width,
                                               .lse = lse,
                                               .scale = static_cast<Accum<T>>(r.scale),
                                               .visible = Visibility::causal(),
                                               .kv_length = rows});
  expect_close(out.values(), want, sizeof(T) == 2 ? 4e-3 : tolerance<T>(8), "out");
  expect_close(lse.values(), want_lse, sizeof(T) == 2 ? 1e-4 : tolerance<T>(16), "lse");
}

// Arguments with segments; rows of keys are a part of those of their sequence.
template <class T>
kernels::AttentionArgs<T> padded_args(const std::int32_t* segments) {
  return {.batch = 4,
          .heads = 3,
          .kv_heads = 1,
          .queries = 5,
          .keys = 6,
          .head_size = 7,
          .q_stride = 23,
          .kv_stride = 15,
          .out_stride = 22,
          .k_segments = segments,
          .key_offset = 2,
          .keys_total = 200};
}
Values padded_segments() {
  Values segments(4 * 200, 0);
  const auto pad = [&](int sequence, int from) {
    std::fill_n(segments.begin() + sequence * 200 + from, 200 - from, -1);
  };
  pad(0, 5), pad(1, 2), pad(3, 0);
  return segments;
}

TYPED_TEST(DeviceAttention, RealKeysAreCounted) {
  Buffer<std::int32_t> segments("segments", padded_segments()), keys("keys", 4),
      queries("queries", 4), read("keys read", 4);
  auto a = padded_args<TypeParam>(segments);
  kernels::count_real(device_stream(), a, keys);
  EXPECT_EQ(keys.values(), (Values{3, 0, 6, 0}));
  kernels::count_real(device_stream(), a, queries, read);
  EXPECT_EQ(queries.values(), (Values{5, 5, 5, 5}));
  EXPECT_EQ(read.values(), (Values{3, 1, 6, 1}));
  a.key_offset = 0, a.keys = 200;
  kernels::count_real(device_stream(), a, keys);
  EXPECT_EQ(keys.values(), (Values{5, 2, 200, 0}));
}

// What a library may leave undefined: cleared, and nothing else.
TYPED_TEST(DeviceAttention, PaddingIsCleared) {
  using T = TypeParam;
  const Values numbers = padded_segments();
  Buffer<std::int32_t> segments("segments", numbers);
  kernels::AttentionBackwardArgs<T> g{padded_args<T>(segments)};
  kernels::AttentionArgs<T>& a = g.forward;
  const std::int64_t rows = 4 * 5, keys = 4 * 6;
  Buffer<T> out("out", rows * a.out_stride), dq("dq", rows * a.q_stride),
      dkv("dk and dv", keys * a.kv_stride);
  Buffer<Accum<T>> lse("lse", rows * a.heads);
  const Values sevens(2000, 7);
  out.assign(sevens), dq.assign(sevens), dkv.assign(sevens), lse.assign(sevens);
  a.out = out, a.lse = lse, g.dq = dq, g.dk = dkv, g.dv = dkv + 8;
  kernels::clear_padding(device_stream(), a);
  kernels::clear_padding(device_stream(), g);
  const auto is_padding = [&](std::int64_t b, std::int64_t s) {
    return numbers[b * 200 + 2 + s] < 0;
  };
  const auto expect = [](const Values& got, std::int64_t stride, auto&& cleared, double to) {
    for (std::int64_t i = 0; i < std::ssize(got); ++i)
      ASSERT_EQ(got[i], cleared(i / stride, i % stride) ? to : 7) << i;
  };
  const auto none = [&](std::int64_t row, std::int64_t column) {
    return is_padding(row / 5, 0) && column < 3 * 7;
  };
  expect(out.values(), a.out_stride, none, 0);
  expect(dq.values(), a.q_stride, none, 0);
  expect(
      dkv.values(), a.kv_stride,
      [&](std::int64_t row, std::int64_t column) {
        return is_padding(row / 6, row % 6) && column != 7;
      },
      0);
  expect(
      lse.values(), 5 * 3, [&](std::int64_t b, std::int64_t) { return is_padding(b, 0); },
      -INFINITY);
}

// Sequences of which a lane of a warp has a row, and of which it has several.
TYPED_TEST(DeviceAttention, PaddingOfLongSequencesIsCleared) {
  using T = TypeParam;
  for (const auto& [queries, keys] : {std::pair{40, 600}, {700, 33}}) {
    SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys");
    constexpr std::int64_t kBatch = 3, kSize = 5, kReal[kBatch] = {1000, 29, 0};
    Values numbers;
    for (std::int64_t i = 0; i < kBatch * keys; ++i)
      numbers.push_back(i % keys < kReal[i / keys] ? 0 : -1);
    Buffer<std::int32_t> segments("segments", numbers);
    Buffer<T> out("out", kBatch * queries * kSize), dq("dq", kBatch * queries * kSize),
        dk("dk", kBatch * keys * kSize), dv("dv", kBatch * keys * kSize);
    Buffer<Accum<T>> lse("lse", kBatch * queries);
    const Values sevens(out.values().size() + dk.values().size(), 7);
    out.assign(sevens), dq.assign(sevens), dk.assign(sevens), dv.assign(sevens), lse.assign(sevens);
    kernels::AttentionBackwardArgs<T> g{.forward = {.batch = kBatch,
                                                    .heads = 1,
                                                    .kv_heads = 1,
                                                    .queries = queries,
                                                    .keys = keys,
                                                    .head_size = kSize,
                                                    .q_stride = kSize,
                                                    .kv_stride = kSize,
                                                    .out = out,
                                                    .out_stride = kSize,
                                                    .lse = lse,
                                                    .k_segments = segments},
                                        .dq = dq,
                                        .dk = dk,
                                        .dv = dv};
    kernels::clear_padding(device_stream(), g.forward);
    kernels::clear_padding(device_stream(), g);
    const auto expect = [&](const Values& got, std::int64_t row_of_size, std::int64_t rows,
                            bool of_keys, double to) {
      for (std::int64_t i = 0; i < std::ssize(got); ++i) {
        const std::int64_t row = i / row_of_size, real = kReal[row / rows];
        ASSERT_EQ(got[i], (of_keys ? row % rows >= real : real == 0) ? to : 7) << i;
      }
    };
    expect(out.values(), kSize, queries, false, 0), expect(dq.values(), kSize, queries, false, 0);
    expect(dk.values(), kSize, keys, true, 0), expect(dv.values(), kSize, keys, true, 0);
    expect(lse.values(), 1, queries, false, -INFINITY);
  }
}

TEST(AttentionRefusals, NameWhatIsWrong) {
  kernels::AttentionArgs<float> a{
      .batch = 1, .heads = 3, .kv_heads = 2, .queries = 1, .keys = 1, .head_size = 1};
  EXPECT_THROW(kernels::attention(device_stream(), a), Error);
  EXPECT_THROW(
      kernels::attention_backward(device_stream(), kernels::AttentionBackwardArgs<float>{a}),
      Error);
  a.kv_heads = 3, a.head_size = 257;
  try {
    kernels::attention(device_stream(), a);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    EXPECT_NE(std::string(e.what()).find("at most 256 elements, found 257"), std::string::npos)
        << e.what();
  }
}

TYPED_TEST(DeviceAttention, EmptySequences) {
  for (auto r : {shape(1, 2, 2, 0, 9, 32, false), shape(1, 2, 2, 9, 0, 32, false),
                 shape(0, 2, 2, 9, 9, 32, false)}) {
    const AttentionResult got = run_attention(device_data<TypeParam>(r));
    for (const Values* v : {&got.out, &got.dq, &got.dk, &got.dv})
      EXPECT_EQ(*v, Values(v->size(), 0.0));
  }
}

}  // namespace
}  // namespace tfm::test
