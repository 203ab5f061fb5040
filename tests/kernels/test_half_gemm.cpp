// Products of 16-bit matrices, by the processor's instructions and by conversion, against float64.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "kernels/cpu/amx_gemm.h"
#include "kernels/cpu/dot_gemm.h"
#include "kernels/cpu/dot_product.h"
#include "kernels/cpu/float_gemm.h"
#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/row_gemm.h"
#include "support/gemm_case.h"
#ifdef __x86_64__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tfm::test {
namespace {

std::vector<Product> products() {
  std::vector<Product> all;
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (auto [m, n, k] : {std::array{1, 1, 1},
                             {7, 13, 5},
                             {33, 17, 64},
                             {130, 50, 600},
                             {5, 100, 1},
                             {6, 1, 40},
                             {1, 6, 40},
                             {96, 128, 64}})
        for (auto [alpha, beta, bias] : {std::tuple{1.0, 0.0, false},
                                         {1.0, 0.0, true},
                                         {1.0, 1.0, false},
                                         {0.5, 0.0, true},
                                         {0.5, -0.25, false}})
          all.push_back({ta, tb, m, n, k, alpha, beta, bias, std::ssize(all) % 2});
  all.push_back({false, true, 6, 8201, 40, 1, 0, true, 7});  // several panels of columns
  all.push_back({false, false, 3, 8200, 33, 1, 1, false, 0});
  all.push_back({false, false, 5, 24, 8200, 1, 0, false, 0});  // several depths of k
  all.push_back({true, true, 3, 1030, 4102, 0.5, -0.25, false, 3});
  // Several bands, strips and depths of k. AMX keeps the right factor of the last two.
  all.push_back({false, true, 700, 70, 1030, 1, 0, true, 0});
  all.push_back({true, false, 40, 1100, 1300, 1, 1, false, 3});
  all.push_back({true, true, 1100, 40, 1300, 0.5, 1, false, 0});
  all.push_back({false, true, 1100, 40, 70, 1, 0, true, 3});
  all.push_back({true, false, 1900, 40, 2050, 1, 1, false, 0});
  return all;
}

// Twice the error of the exact result rounded to C, and that of sums in float.
template <class C, class T>
double allowed(const GemmCase<T>& c) {
  double rounding = 0;
  for (std::int64_t i = 0; i < c.p.m; ++i)
    for (std::int64_t j = 0; j < c.p.n; ++j) {
      const double want = c.want[i * c.ldc + j];
      rounding = std::max(rounding, std::abs(want - round_to<C>(want)));
    }
  return 2 * rounding + c.template bound<float>();
}

const auto gemm = [](cpu::Stream& s, const auto& args) { kernels::gemm(s, args); };

template <class T, class C>
void expect_products() {
  const auto converting = [](cpu::Stream& s, const auto& args) {
    kernels::half_gemm_by_conversion(s, args);
  };
  for (const Product& p : products()) {
    if (sizeof(C) == 4 && p.bias) continue;
    const GemmCase<T> c(p);
    const double bound = allowed<C>(c);
    for (int threads : {1, 2})
      EXPECT_TRUE(same_bits(c.template multiply<C>(threads, bound, gemm),
                            c.template multiply<C>(threads, bound, gemm)));
    c.template multiply<C>(1, bound, converting);
  }
}

TEST(HalfGemm, BrainFloatMatchesStraightLoops) { expect_products<bf16, bf16>(); }
TEST(HalfGemm, BrainFloatToFloatMatchesStraightLoops) { expect_products<bf16, float>(); }
TEST(HalfGemm, HalfMatchesStraightLoops) { expect_products<f16, f16>(); }
TEST(HalfGemm, HalfToFloatMatchesStraightLoops) { expect_products<f16, float>(); }

TEST(HalfGemm, TakesLittleMemoryOfManyThreads) { expect_little_memory<bf16>(8000, 500, 4096); }

TEST(HalfGemm, LeavesTheTeamSizeAndRunsInsideARegion) {
  const GemmCase<bf16> c({false, true, 40, 30, 20, 1, 0, true, 0});
  const double bound = allowed<bf16>(c);
  expect_team_size_kept([&](int threads) { return c.multiply<bf16>(threads, bound, gemm); });
}

float element(std::int64_t i) { return static_cast<float>(i * 7919 % 201 - 100) / 64; }

template <class T>
std::vector<T> elements(std::int64_t n) {
  std::vector<T> x(n);
  for (std::int64_t i = 0; i < n; ++i) x[i] = T(element(i));
  return x;
}

// Rows of C that start at cache lines are written past the caches by AMX.
template <class C, class F>
void expect_bits_of_any_place_and_team(std::int64_t m, std::int64_t n, std::int64_t k, F&& gemm) {
  const std::vector<bf16> a = elements<bf16>(m * k), b = elements<bf16>(k * n);
  constexpr std::int64_t kLine = 64 / sizeof(C);
  std::vector<C> room(m * n + 2 * kLine), first;
  for (int threads : {1, 2, 3})
    for (std::int64_t offset : {0, 1}) {
      C* c = room.data();
      while (reinterpret_cast<std::uintptr_t>(c) % 64) ++c;
      c += offset;
      cpu::Stream stream{threads};
      gemm(stream, kernels::GemmArgs<bf16, C>{.m = m,
                                              .n = n,
                                              .k = k,
                                              .a = a.data(),
                                              .lda = k,
                                              .b = b.data(),
                                              .ldb = n,
                                              .c = c,
                                              .ldc = n});
      const std::vector<C> now(c, c + m * n);
      if (first.empty()) first = now;
      EXPECT_TRUE(same_bits(first, now)) << threads << " threads, offset " << offset;
    }
}

TEST(HalfGemm, AmxGivesTheSameBitsToAnyTeamAndPlace) {
  if (!kernels::has_amx()) GTEST_SKIP() << "this processor has no AMX";
  const auto gemm = [](cpu::Stream& s, const auto& args) { kernels::amx_gemm(s, args); };
  expect_bits_of_any_place_and_team<float>(200, 320, 1500, gemm);
  expect_bits_of_any_place_and_team<float>(70, 4000, 100, gemm);
  expect_bits_of_any_place_and_team<bf16>(1030, 8192, 40, gemm);
}

template <class T, class C, class F>
void expect_bits_of_any_team(const std::vector<Product>& products, F&& gemm) {
  for (const Product& p : products) {
    if (sizeof(T) < sizeof(C) && p.bias) continue;
    const GemmCase<T> c(p);
    const double bound = allowed<C>(c);
    const std::vector<C> one = c.template multiply<C>(1, bound, gemm);
    for (int threads : {2, 3, 4})
      EXPECT_TRUE(same_bits(one, c.template multiply<C>(threads, bound, gemm)));
  }
}

// Beside the others several strips of columns and slabs of terms, and rows whose sums are kept.
TEST(ConvertingGemm, MatchesStraightLoopsWithTheSameBitsForAnyTeam) {
  if (!kernels::has_float_gemm())
    GTEST_SKIP() << "libraries for processors without AVX-512 have none";
  const auto float_gemm = [](cpu::Stream& s, const auto& args) { kernels::float_gemm(s, args); };
  std::vector<Product> all = products();
  all.push_back({false, true, 3, 2150, 1030, 1, 0, false, 0});
  all.push_back({false, false, 2060, 3, 1030, 1, 0, true, 0});
  all.push_back({true, true, 2060, 3, 1030, 0.5, -0.25, false, 3});
  all.push_back({true, false, 40, 70, 1300, 1, 1, false, 0});
  all.push_back({false, true, 40, 70, 1300, 0.5, -0.25, false, 3});
  expect_bits_of_any_team<bf16, bf16>(all, float_gemm);
  std::erase_if(all, [](const Product& p) { return p.m * p.n * p.k > 1 << 22; });
  expect_bits_of_any_team<f16, float>(all, float_gemm);
}

TEST(RowGemm, MatchesStraightLoopsWithTheSameBitsForAnyTeam) {
  const auto row_gemm = [](cpu::Stream& s, const auto& args) { kernels::row_gemm(s, args); };
  std::vector<Product> all;
  for (const Product& p : products())
    if (!p.ta && p.tb) all.push_back(p);
  expect_bits_of_any_team<float, float>(all, row_gemm);
  expect_bits_of_any_team<bf16, bf16>(all, row_gemm);
  expect_bits_of_any_team<bf16, float>(all, row_gemm);
  expect_bits_of_any_team<f16, f16>(all, row_gemm);
  expect_bits_of_any_team<f16, float>(all, row_gemm);
}

// In fp32 oneDNN gives a row other bits with others than alone; with smaller weights so does
// gemm().
TEST(RowGemm, RowsHaveTheSameBitsWithOthersAndAlone) {
  constexpr std::int64_t m = 11, n = 2711, k = 203;
  std::vector<float> a(m * k), b(n * k), together(m * n), alone(m * n);
  for (std::int64_t i = 0; i < m * k; ++i) a[i] = std::sin(static_cast<float>(i));
  for (std::int64_t i = 0; i < n * k; ++i) b[i] = std::cos(static_cast<float>(i));
  cpu::Stream stream{2};
  kernels::GemmArgs<float> args{.transpose_b = true,
                                .m = m,
                                .n = n,
                                .k = k,
                                .a = a.data(),
                                .lda = k,
                                .b = b.data(),
                                .ldb = k,
                                .c = together.data(),
                                .ldc = n};
  kernels::gemm(stream, args);
  args.m = 1;
  for (std::int64_t r = 0; r < m; ++r) {
    args.a = a.data() + r * k, args.c = alone.data() + r * n;
    kernels::gemm(stream, args);
  }
  EXPECT_TRUE(same_bits(together, alone));
}

const auto dot_gemm = [](cpu::Stream& s, const auto& args) { kernels::dot_gemm(s, args); };

// By AMX the bits of a row depend on how many rows its thread has. The run of this suite without
// AMX, below, has these tests.
bool uses_dot_gemm() { return kernels::multiplies_natively<bf16>() && !kernels::has_amx(); }
constexpr const char* kNoDotGemm = "this processor has AMX or converts bf16";

template <class C>
void expect_dot_products() {
  std::vector<Product> all;
  for (const Product& p : products())
    if (p.k % 2 == 0) all.push_back(p);
  all.push_back({false, true, 20, 4300, 520, 1, 0, false, 0});   // several strips of columns
  all.push_back({true, false, 9, 530, 4200, 0.5, 1, false, 1});  // several slabs of terms
  expect_bits_of_any_team<bf16, C>(all, dot_gemm);
}
TEST(DotGemm, MatchesStraightLoopsWithTheSameBitsForAnyTeam) {
  if (!uses_dot_gemm()) GTEST_SKIP() << kNoDotGemm;
  expect_dot_products<bf16>();
  expect_dot_products<float>();
}
TEST(DotGemm, GivesTheSameBitsToAnyTeamAndPlace) {
  if (!uses_dot_gemm()) GTEST_SKIP() << kNoDotGemm;
  expect_bits_of_any_place_and_team<bf16>(600, 540, 512, dot_gemm);
  expect_bits_of_any_place_and_team<float>(70, 560, 4100, dot_gemm);
}

TEST(DotProduct, MatchesStraightLoopsInBothLayouts) {
  if (!kernels::multiplies_natively<bf16>()) GTEST_SKIP() << "this processor converts bf16";
  for (auto [m, n, pairs] :
       {std::array{64, 64, 32}, {37, 45, 16}, {15, 16, 16}, {48, 80, 5}, {33, 7, 48}, {16, 96, 17}})
    for (bool along : {true, false})
      for (bool accumulate : {false, true}) {
        const std::int64_t width = round_up(n, 16), lda = along ? 2 * pairs + 2 : 2 * (m + 3);
        const std::vector<bf16> a = elements<bf16>(along ? m * lda : pairs * lda),
                                b = elements<bf16>(pairs * width * 2);
        std::vector<float> c(m * width, 0.25f);
        const auto at = [&](std::int64_t i, std::int64_t p) {
          return along ? i * lda + 2 * p : p * lda + 2 * i;
        };
        kernels::dot_product(m, n, pairs, {a.data(), along ? lda : 2, along ? 2 : lda},
                             {reinterpret_cast<const std::uint32_t*>(b.data()), width}, c.data(),
                             width, accumulate);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            double want = accumulate ? 0.25 : 0;
            for (std::int64_t p = 0; p < pairs; ++p)
              for (std::int64_t h = 0; h < 2; ++h)
                want += double{a[at(i, p) + h]} * double{b[(p * width + j) * 2 + h]};
            ASSERT_NEAR(c[i * width + j], want, 1e-4)
                << m << " x " << n << " x " << pairs << ", " << i << ", " << j;
          }
      }
}

// CTest runs this suite again with ONEDNN_MAX_CPU_ISA=AVX512_CORE, and =AVX512_CORE_BF16.
TEST(HalfGemm, UsesWhatTheProcessorHas) {
  const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (most) {
    EXPECT_FALSE(kernels::has_amx()) << most;
  }
  if (most && std::string_view(most) == "AVX512_CORE") {
    EXPECT_FALSE(kernels::multiplies_natively<bf16>());
    EXPECT_FALSE(kernels::multiplies_natively<f16>());
    return;
  }
  std::ostringstream info;
  info << std::ifstream("/proc/cpuinfo").rdbuf();
  if (most) GTEST_SKIP() << "ONEDNN_MAX_CPU_ISA is " << most;
  const auto has = [text = info.str()](const char* flag) { return text.find(flag) != text.npos; };
  EXPECT_EQ(
      kernels::multiplies_natively<bf16>(),
      has(" avx512_bf16") && (kernels::has_amx() || !has("GenuineIntel") || !has(" avx512_fp16")));
#ifdef __x86_64__
  constexpr int kSupportedStates = 0x1021, kTileData = 18;  // ARCH_GET_XCOMP_SUPP
  unsigned long states = 0;
  EXPECT_EQ(kernels::has_amx(), has(" amx_bf16") &&
                                    syscall(SYS_arch_prctl, kSupportedStates, &states) == 0 &&
                                    (states >> kTileData & 1));
#endif
}

}  // namespace
}  // namespace tfm::test
