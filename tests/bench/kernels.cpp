// Times the CPU kernels on the shapes of GPT-2 124M with 1024 tokens, beside the multiply-add peak of the core.
// usage: kernels [threads...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cpu/simd.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t N = 1024, C = 768, F = 3072, V = 50257, VP = 50304;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Best of several timed repetitions of f, each at least 20 ms long.
template <class F>
double best(F&& f) {
  f();
  double t0 = seconds();
  f();
  const int repeat = std::max(1, static_cast<int>(0.02 / std::max(1e-7, seconds() - t0)));
  double least = 1e9;
  for (int i = 0; i < 7; ++i) {
    t0 = seconds();
    for (int r = 0; r < repeat; ++r) f();
    least = std::min(least, (seconds() - t0) / repeat);
  }
  return least;
}

double peak_gflops() {  // independent multiply-adds in registers, one core
  constexpr int chains = 10, count = 1'000'000;
  Vec<float> a[chains];
  for (int i = 0; i < chains; ++i) a[i] = iota<float>() + static_cast<float>(i);
  const Vec<float> b = splat(0.999f), c = splat(1e-3f);
  const double t = best([&] {
    for (int i = 0; i < count; ++i)
#pragma GCC unroll 10
      for (int j = 0; j < chains; ++j) a[j] = a[j] * b + c;
  });
  Vec<float> sum{};
  for (const auto& v : a) sum += v;
  volatile float keep = sum_of<float>(sum);
  (void)keep;
  return 1e-9 * 2 * chains * kLanes<float> * count / t;
}

class Bench {
 public:
  explicit Bench(int threads) : stream_{threads}, peak_(peak_gflops() * threads) {
    std::printf("%d threads, peak %.1f GFLOP/s\n", threads, peak_);
  }

  void run() {
    gemms();
    attention_both();
    pointwise();
    loss();
    update();
  }

 private:
  static std::vector<float> values(std::int64_t n) {
    std::vector<float> v(static_cast<std::size_t>(n));
    std::uint32_t state = 1;
    for (float& x : v) x = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;
    return v;
  }
  void flops(const std::string& name, double count, double t) const {
    std::printf("  %-34s %8.3f ms %8.1f GFLOP/s %5.1f %%\n", name.c_str(), t * 1e3, count / t * 1e-9, count / t * 1e-7 / peak_);
  }
  void bytes(const std::string& name, double count, double t) const {
    std::printf("  %-34s %8.3f ms %8.1f GB/s\n", name.c_str(), t * 1e3, count / t * 1e-9);
  }

  void one_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, bool bias) {
    const auto a = values(m * k), b = values(k * n), shift = values(n);
    std::vector<float> c(static_cast<std::size_t>(m * n));
    const GemmArgs<float> g{.transpose_a = ta,
                            .transpose_b = tb,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = a.data(),
                            .lda = ta ? m : k,
                            .b = b.data(),
                            .ldb = tb ? k : n,
                            .c = c.data(),
                            .ldc = n,
                            .bias = bias ? shift.data() : nullptr};
    char name[80];
    std::snprintf(name, sizeof name, "gemm %c%c %ld x %ld x %ld%s", ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k,
                  bias ? " + bias" : "");
    flops(name, 2.0 * static_cast<double>(m * n * k), best([&] { gemm(stream_, g); }));
  }
  void gemms() {
    for (bool bias : {false, true}) {
      one_gemm(false, true, N, 3 * C, C, bias);
      one_gemm(false, true, N, C, C, bias);
      one_gemm(false, true, N, F, C, bias);
      one_gemm(false, true, N, C, F, bias);
    }
    one_gemm(false, false, N, C, 3 * C, false);
    one_gemm(false, false, N, C, F, false);
    one_gemm(false, false, N, F, C, false);
    one_gemm(true, false, F, C, N, false);
    one_gemm(true, false, C, F, N, false);
    one_gemm(false, true, 256, VP, C, false);
    one_gemm(false, false, 256, C, VP, false);
    one_gemm(true, false, VP, C, 256, false);
  }

  void attention_both() {
    constexpr std::int64_t B = 4, H = 12, T = 256, D = 64;
    const auto qkv = values(B * T * 3 * C), dout = values(B * T * C);
    std::vector<float> out(dout.size()), lse(B * H * T), dqkv(qkv.size());
    for (float p : {0.0f, 0.1f}) {
      AttentionArgs<float> a{.batch = B,
                             .heads = H,
                             .kv_heads = H,
                             .queries = T,
                             .keys = T,
                             .head_size = D,
                             .q = qkv.data(),
                             .k = qkv.data() + C,
                             .v = qkv.data() + 2 * C,
                             .q_stride = 3 * C,
                             .kv_stride = 3 * C,
                             .out = out.data(),
                             .out_stride = C,
                             .lse = lse.data(),
                             .scale = 0.125f,
                             .causal = true,
                             .heads_total = H};
      a.dropout = {p, {1, Purpose::dropout, 2, 3}};
      const double count = 2.0 * B * H * T * (T + 1) * D;  // visible pairs, two products
      const std::string tail = p > 0 ? " dropout" : "";
      flops("attention" + tail, count, best([&] { attention(stream_, a); }));
      const AttentionBackwardArgs<float> g{a, dout.data(), dqkv.data(), dqkv.data() + C, dqkv.data() + 2 * C};
      flops("attention backward" + tail, 2.5 * count, best([&] { attention_backward(stream_, g); }));
    }
  }

  void pointwise() {
    const auto x = values(N * F), w = values(F), dy = values(N * F);
    std::vector<float> y(x.size()), mean(N), rstd(N), dw(F), db(F);
    const double row = 4.0 * N * C, wide = 4.0 * N * F;
    bytes("norm", 2 * row, best([&] {
            norm(stream_, NormArgs<float>{N, C, x.data(), w.data(), w.data(), y.data(), mean.data(), rstd.data()});
          }));
    bytes("norm backward", 4 * row, best([&] {
            norm_backward(stream_, NormBackwardArgs<float>{N, C, dy.data(), x.data(), w.data(), mean.data(), rstd.data(),
                                                           y.data(), true, dw.data(), false, db.data(), false});
          }));
    for (auto [kind, name] :
         {std::pair{Activation::gelu_tanh, "gelu_tanh"}, {Activation::gelu, "gelu"}, {Activation::silu, "silu"}}) {
      bytes(name, 2 * wide, best([&] { activation(stream_, ActivationArgs<float>{N, F, kind, false, x.data(), y.data()}); }));
      bytes(name + std::string(" backward"), 3 * wide, best([&] {
              activation_backward(stream_, ActivationBackwardArgs<float>{N, F, kind, false, x.data(), dy.data(), y.data()});
            }));
    }
    DropoutAddArgs<float> d{N, C, x.data(), dy.data(), y.data()};
    bytes("residual add", 3 * row, best([&] { dropout_add(stream_, d); }));
    d.dropout = {0.1f, {1, Purpose::dropout, 2, 3}};
    d.place.cols_total = C;
    bytes("residual add with dropout", 3 * row, best([&] { dropout_add(stream_, d); }));
    bytes("column sum", wide, best([&] { column_sum(stream_, ColumnSumArgs<float>{N, F, x.data(), dw.data()}); }));
    std::vector<double> frequency(32, 0.01);
    bytes("rotary", 4 * row, best([&] {
            rotary(stream_, RotaryArgs<float>{N, 2 * C, 24, 64, 0, 256, 0, frequency.data(), x.data(), y.data()});
          }));
  }

  void loss() {
    constexpr std::int64_t R = 256;
    const auto source = values(R * VP);
    auto logits = source;
    std::vector<float> max(R), sums(3 * R);
    std::vector<std::int32_t> labels(R, 7);
    const double factor = 1.0 / R;
    const CrossEntropyArgs<float> a{.rows = R,
                                    .cols = V,
                                    .stride = VP,
                                    .padded_cols = VP,
                                    .vocab_size = V,
                                    .logits = logits.data(),
                                    .labels = labels.data(),
                                    .max = max.data(),
                                    .sums = sums.data(),
                                    .gradient_scale = &factor};
    const double size = 4.0 * R * VP;
    bytes("cross-entropy max", size, best([&] { cross_entropy_max(stream_, a); }));
    bytes("cross-entropy sums", size, best([&] { cross_entropy_sums(stream_, a); }));
    bytes("cross-entropy gradient", 2 * size, best([&] { cross_entropy_gradient(stream_, a); }));
  }

  void update() {
    constexpr std::int64_t n = 32 << 20;
    auto p = values(n), m = p, v = std::vector<float>(p.size(), 0.1f);
    const auto g = p;
    bytes("adamw, 32 Mi parameters", 7.0 * 4 * n, best([&] {
            const UpdateRange<float> range{n, true, p.data(), g.data(), m.data(), v.data()};
            adam(stream_, AdamArgs<float>{.ranges = {&range, 1}, .lr = 1e-4, .decay = 0.1});
          }));
    bytes("square sum, 32 Mi", 4.0 * n, best([&] {
            const Range all{0, n};
            SquareSumArgs<float> s{g.data(), {&all, 1}};
            square_sum(stream_, s);
          }));
  }

  cpu::Stream stream_;
  double peak_;
};

}  // namespace
}  // namespace tfm::kernels

int main(int argc, char** argv) {
  if (argc < 2) tfm::kernels::Bench(1).run();
  for (int i = 1; i < argc; ++i) tfm::kernels::Bench(std::max(1, std::atoi(argv[i]))).run();
}
