// The emulator itself: instructions against their published layouts, and each kind of mistake
// found.
#include "device_case.h"
#include "micro_kernels.h"

namespace tfm::test {
namespace {

using emulator::Options;

template <class T>
class Fragments : public testing::Test {};
using Halves = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(Fragments, Halves);

Values product(const Values& a, const Values& b) {
  return reference::gemm(false, true, 16, 8, 16, a, 16, b, 16);
}

TYPED_TEST(Fragments, LdmatrixAndMmaMultiply) {
  using T = TypeParam;
  const Values a = rounded<T>(random_values(256, 1)), b = rounded<T>(random_values(128, 2)),
               c = random_values(128, 3);
  for (emulator::Sum sum : {emulator::Sum::chain, emulator::Sum::once_rounded,
                            emulator::Sum::reversed, emulator::Sum::truncated_halves}) {
    Buffer<T> da("a", a), db("b", b);
    Buffer<float> dc("c", 128);
    dc.assign(c);
    Options o;
    o.sum = sum;
    ASSERT_EQ(kind_of_failure(o, [&] { micro_mma<T>(device_stream(), dc, da, db); }), "");
    expect_close(dc.values(), plus(c, product(a, b)), 1e-5, "c");
  }
}

// The layouts as CuTe's MMA_Traits of SM80_16x8x16 state them: (lane, value) to a column-major
// coordinate by strides.
TYPED_TEST(Fragments, MmaHasThePublishedLayout) {
  using T = TypeParam;
  const Values a = rounded<T>(random_values(256, 1)), b = rounded<T>(random_values(128, 2)),
               c = product(a, b);
  Buffer<std::uint32_t> fa("a", 128), fb("b", 64);
  Buffer<float> fc("c", 128);
  fc.assign(Values(128, 0.0));
  const auto bits = [](double x) { return std::uint32_t{T(static_cast<float>(x)).bits}; };
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < 8; v += 2) {
      const int x = lane % 4 * 32 + lane / 4 + v / 2 % 2 * 8 + v / 4 * 128;
      fa[lane * 4 + v / 2] =
          bits(a[x % 16 * 16 + x / 16]) | bits(a[(x + 16) % 16 * 16 + (x + 16) / 16]) << 16;
      if (v >= 4) continue;
      const int y = lane % 4 * 16 + lane / 4 + v / 2 * 64;
      fb[lane * 2 + v / 2] = bits(b[y % 8 * 16 + y / 8]) | bits(b[(y + 8) % 8 * 16 + (y + 8) / 8])
                                                               << 16;
    }
  micro_mma_fragments<T>(device_stream(), fc, fa, fb);
  Values want(128);
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < 4; ++v) {
      const int x = lane % 4 * 32 + lane / 4 + v % 2 * 16 + v / 2 * 8;
      want[lane * 4 + v] = c[x % 16 * 8 + x / 16];
    }
  expect_close(fc.values(), want, 1e-5, "c");
}

TEST(Emulator, LdmatrixHasThePublishedLayout) {
  Buffer<std::uint16_t> in("in", 256);
  for (int i = 0; i < 256; ++i) in[i] = static_cast<std::uint16_t>(i);
  for (int matrices : {1, 2, 4})
    for (bool transposed : {false, true}) {
      Buffer<std::uint32_t> out("out", 32 * matrices);
      micro_ldmatrix(device_stream(), matrices, transposed, out, in);
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < matrices; ++i) {
          const unsigned first =
              64 * i + (transposed ? lane % 4 * 2 * 8 + lane / 4 : lane / 4 * 8 + lane % 4 * 2);
          EXPECT_EQ(out[lane * matrices + i], first | (first + (transposed ? 8 : 1)) << 16);
        }
    }
}

struct MicroCase {
  Micro which;
  const char* kind;  // of the failure; empty: none
  bool needs_hooks;
};
class MicroKernels : public testing::TestWithParam<MicroCase> {};

TEST_P(MicroKernels, FailAsTheyShould) {
  const MicroCase& c = GetParam();
  if (c.needs_hooks && !emulator::hooked()) GTEST_SKIP() << "kernels were compiled without hooks";
  for (emulator::Order order :
       {emulator::Order::ascending, emulator::Order::descending, emulator::Order::random}) {
    Buffer<float> in("in", random_values(64, 1)), out("out", 64);
    Options o;
    o.warps = o.blocks = order;
    std::string text;
    const std::string kind = kind_of_failure(
        o, [&] { micro(device_stream(), c.which, out, in); }, &text);
    // Reading before the writer ran is a read of what nobody wrote.
    EXPECT_TRUE(kind == c.kind ||
                (std::string(c.kind) == "race" && (kind == "unwritten" || kind == "pending copy")))
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MicroKernels,
                         testing::Values(MicroCase{Micro::half_a_warp, "divergence", false},
                                         MicroCase{Micro::two_shuffles, "divergence", false},
                                         MicroCase{Micro::two_barriers, "divergence", false},
                                         MicroCase{Micro::thread_left, "divergence", false},
                                         MicroCase{Micro::lane_skips, "divergence", false},
                                         MicroCase{Micro::no_barrier, "race", true},
                                         MicroCase{Micro::warp_barrier, "", true},
                                         MicroCase{Micro::warp_barrier_between_warps, "race", true},
                                         MicroCase{Micro::never_written, "unwritten", true},
                                         MicroCase{Micro::past_shared, "bounds", true},
                                         MicroCase{Micro::before_shared, "bounds", true},
                                         MicroCase{Micro::own_copy, "", true},
                                         MicroCase{Micro::copy_without_barrier, "race", true},
                                         MicroCase{Micro::copy_without_wait, "pending copy", true},
                                         MicroCase{Micro::wait_after_barrier, "race", true},
                                         MicroCase{Micro::copy, "", true},
                                         MicroCase{Micro::misaligned_row, "alignment", false},
                                         MicroCase{Micro::misaligned_load, "alignment", false},
                                         MicroCase{Micro::shared_as_global, "address space", false},
                                         MicroCase{Micro::past_global, "bounds", true},
                                         MicroCase{Micro::read_past_global, "bounds", true},
                                         MicroCase{Micro::writes_input, "read-only", true},
                                         MicroCase{Micro::blocks_share_words, "blocks", true},
                                         MicroCase{Micro::mma_poison, "poison", false}));

TEST(Emulator, FindsABlockThatReadsWhatAnotherWrote) {
  if (!emulator::hooked()) GTEST_SKIP();
  Buffer<float> in("in", random_values(64, 1)), out("out", 128);
  EXPECT_EQ(kind_of_failure({}, [&] { micro(device_stream(), Micro::block_reads_block, out, in); }),
            "blocks");
}

TEST(Emulator, ShufflesAndBallots) {
  const Values x = random_values(64, 1);
  Buffer<float> in("in", x), out("out", 64);
  micro(device_stream(), Micro::shuffles, out, in);
  Values want(64), sum(2);
  for (int t = 0; t < 64; ++t) sum[t / 32] += x[t];
  for (int t = 0; t < 64; ++t) {
    const int lane = t % 32;
    want[t] = 2 * sum[t / 32] + std::max(lane - 1, 0) + (lane + 2 < 32 ? lane + 2 : lane) +
              (0x49249249 & 0xFF);
  }
  expect_close(out.values(), want, 1e-4, "out");
}

TEST(Emulator, CopiesFillUpWithZeros) {
  for (emulator::Copies copies :
       {emulator::Copies::at_wait, emulator::Copies::at_issue, emulator::Copies::either}) {
    const Values x = random_values(64, 1);
    Buffer<float> in("in", x), out("out", 64);
    Options o;
    o.copies = copies;
    EXPECT_EQ(kind_of_failure(o, [&] { micro(device_stream(), Micro::zero_fill, out, in); }), "");
    EXPECT_EQ(out[2], static_cast<float>(x[11]));
    EXPECT_EQ(out[3], 0.0f);
  }
}

TEST(Emulator, SuppressesOneBarrier) {
  if (!emulator::hooked()) GTEST_SKIP();
  Buffer<float> in("in", random_values(64, 1)), out("out", 64);
  emulator::synchronisations.clear();
  micro(device_stream(), Micro::copy, out, in);
  ASSERT_EQ(emulator::synchronisations.size(), 2u);
  for (const auto& s : std::vector(emulator::synchronisations)) {
    Options o;
    o.suppressed = s.at;
    EXPECT_NE(kind_of_failure(o, [&] { micro(device_stream(), Micro::copy, out, in); }), "")
        << s.name;
  }
}

}  // namespace
}  // namespace tfm::test
