#include "launch/bench/rates.h"

#include <barrier>
#include <future>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "plan/step_plan.h"

namespace tfm::launch {
namespace {

constexpr std::int64_t kSmallProduct = 512, kLargeProduct = 2048;  // on CPUs

// Memory of the device, filled with numbers between -1 and 1.
class Operand {
 public:
  Operand(device::Device& device, DType type, std::int64_t elements) {
    const std::int64_t bytes = elements * size_of(type);
    memory_ = device.allocate(bytes);
    std::vector<std::byte> values(static_cast<std::size_t>(bytes));
    with_float(type, [&]<class T>() {
      T* v = reinterpret_cast<T*>(values.data());
      std::uint32_t state = 1;
      for (std::int64_t i = 0; i < elements; ++i)
        v[i] = static_cast<T>(
            static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    });
    device::upload(device.stream(), memory_.get(), values.data(), bytes);
  }
  template <class T>
  T* ptr() const {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  std::shared_ptr<std::byte> memory_;
};

// Causal self-attention of 12 heads, forward and backward.
class AttentionBench {
 public:
  AttentionBench(device::Device& device, DType type, std::int64_t head_size, std::int64_t rows)
      : device_(device),
        type_(type),
        head_size_(head_size),
        rows_(rows),
        qkv_(device, type, rows * 3 * width()),
        dqkv_(device, type, rows * 3 * width()),
        out_(device, type, rows * width()),
        dout_(device, type, rows * width()),
        lse_(device, accum_type(type), rows * kHeads) {}

  plan::AttentionRates measure() {
    const auto [forward, backward] = rates(rows_ / 8);
    const auto [long_forward, long_backward] = rates(rows_ / 2);
    const Growth f = growth(rows_ / 8, forward, rows_ / 2, long_forward),
                 b = growth(rows_ / 8, backward, rows_ / 2, long_backward);
    return {{f.rate, f.half}, {b.rate, b.half}};
  }

 private:
  static constexpr std::int64_t kHeads = 12;
  std::int64_t width() const { return kHeads * head_size_; }

  // FLOP/s of sequences of `length`.
  std::pair<double, double> rates(std::int64_t length) {
    std::pair<double, double> found;
    const double flops = 2.0 * static_cast<double>(rows_ * length * width());
    with_float(type_, [&]<class T>() {
      const kernels::AttentionArgs<T> a{.batch = rows_ / length,
                                        .heads = kHeads,
                                        .kv_heads = kHeads,
                                        .queries = length,
                                        .keys = length,
                                        .head_size = head_size_,
                                        .q = qkv_.ptr<T>(),
                                        .k = qkv_.ptr<T>() + width(),
                                        .v = qkv_.ptr<T>() + 2 * width(),
                                        .q_stride = 3 * width(),
                                        .kv_stride = 3 * width(),
                                        .out = out_.ptr<T>(),
                                        .out_stride = width(),
                                        .lse = lse_.ptr<Accum<T>>(),
                                        .scale = Accum<T>(0.125),
                                        .visible = Visibility::causal(),
                                        .heads_total = kHeads};
      const kernels::AttentionBackwardArgs<T> b{.forward = a,
                                                .dout = dout_.ptr<T>(),
                                                .dq = dqkv_.ptr<T>(),
                                                .dk = dqkv_.ptr<T>() + width(),
                                                .dv = dqkv_.ptr<T>() + 2 * width()};
      device::on(device_.stream(), [&](auto& s) {
        found.first = flops / best_seconds(
                                  device_, [&] { kernels::attention(s, a); }, 3);
        found.second = 2.5 * flops /
                       best_seconds(
                           device_, [&] { kernels::attention_backward(s, b); }, 3);
      });
    });
    return found;
  }

  device::Device& device_;
  DType type_;
  std::int64_t head_size_, rows_;
  Operand qkv_, dqkv_, out_, dout_, lse_;
};

}  // namespace

Growth growth(std::int64_t small, double slow, std::int64_t large, double fast) {
  const double slope =
      (1 / slow - 1 / fast) / (1.0 / static_cast<double>(small) - 1.0 / static_cast<double>(large));
  if (slope <= 0) return {std::max(slow, fast), 0};
  const double full = 1 / fast - slope / static_cast<double>(large);
  return full > 0 ? Growth{1 / full, slope / full} : Growth{fast, 0};
}

double product_rate(device::Device& device, DType type, std::int64_t n, const SecondsOf& seconds) {
  double found = 0;
  with_float(type, [&]<class T>() {
    const Operand a(device, type, n * n), b(device, type, n * n), c(device, type, n * n);
    device::on(device.stream(), [&](auto& s) {
      const kernels::GemmArgs<T> product{.transpose_b = true,
                                         .m = n,
                                         .n = n,
                                         .k = n,
                                         .a = a.ptr<T>(),
                                         .lda = n,
                                         .b = b.ptr<T>(),
                                         .ldb = n,
                                         .c = c.ptr<T>(),
                                         .ldc = n};
      found = seconds([&] { kernels::gemm(s, product); });
    });
  });
  return 2.0 * static_cast<double>(n * n * n) / found;
}

double product_rate(device::Device& device, DType type, std::int64_t n) {
  return product_rate(device, type, n,
                      [&](const auto& work) { return best_seconds(device, work, 3); });
}

// Operands of large ones are beyond a core's own caches, as those of layers are.
double product_rate(device::Device& device, DType type) {
  return product_rate(device, type, device.is_cpu() ? kLargeProduct : 8192);
}

plan::DeviceModel::Rates measure_rates(device::Device& device, DType type) {
  const std::int64_t rows = device.is_cpu() ? 1024 : 16384;
  const double large = product_rate(device, type);
  Growth product{large, 0};
  if (device.is_cpu()) {
    const double small = product_rate(device, type, kSmallProduct);
    product = growth(kSmallProduct, std::min(small, large), kLargeProduct, large);
  }
  return {.peak = large,
          .product = product.rate,
          .product_half_size = product.half,
          .head_64 = AttentionBench(device, type, 64, rows).measure(),
          .head_128 = AttentionBench(device, type, 128, rows).measure()};
}

double measure_bandwidth(device::Device& device) {
  const std::int64_t bytes = std::int64_t{device.is_cpu() ? 64 : 1024} << 20,
                     elements = bytes / static_cast<std::int64_t>(sizeof(float));
  const Operand from(device, DType::f32, elements), to(device, DType::f32, elements);
  double seconds = 0;
  device::on(device.stream(), [&](auto& s) {
    const kernels::CopyArgs<float> copy{
        .n = elements, .x = from.ptr<float>(), .y = to.ptr<float>()};
    seconds = best_seconds(device, [&] { kernels::copy(s, copy); });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

plan::DeviceModel measure_gpu(device::Device& device, const plan::DeviceModel& known) {
  plan::DeviceModel gpu = known;
  for (const auto& [type, rates] : {std::pair{DType::f32, &gpu.wide}, {DType::bf16, &gpu.half}}) {
    const double peak = rates->peak;
    *rates = measure_rates(device, type);
    if (peak > 0) rates->peak = peak;
  }
  gpu.bandwidth = measure_bandwidth(device);
  return gpu;
}

namespace {

// Under load a core reaches the clock that it keeps only after some tenths of a second.
void load_cores(device::Device& device) {
  product_rate(device, DType::f32, 1024, [&](const auto& product) {
    double seconds = 0;
    while (seconds < 0.3) device::timed(device.stream(), &seconds, product);
    return seconds;
  });
}

// A core of a team of `threads`, which measures while others do.
plan::DeviceModel measure_team(int threads, DType type, std::barrier<>& together) try {
  device::Device device = device::Device::cpu(threads);
  plan::DeviceModel core = plan::reference_core();
  load_cores(device);
  const auto measure = [&](DType t, plan::DeviceModel::Rates& r) {
    r = measure_rates(device, t);
    r.peak /= threads, r.product /= threads;
    for (plan::AttentionRates* a : {&r.head_64, &r.head_128})
      a->forward.rate /= threads, a->backward.rate /= threads;
  };
  measure(DType::f32, core.wide);
  if (type != DType::f32) measure(type, core.half);
  together.arrive_and_wait();
  core.bandwidth = measure_bandwidth(device) / threads;
  return core;
} catch (...) {
  together.arrive_and_drop();
  throw;
}

}  // namespace

plan::DeviceModel measure_core(int cores, int ranks, int threads, config::Precision precision) {
  threads = std::min(threads, cores);
  const int teams = std::min(ranks, cores / threads);
  const DType type = plan::dtype_of(precision);
  std::barrier<> together(teams);
  std::vector<std::future<plan::DeviceModel>> others;
  const auto team = [&] { return measure_team(threads, type, together); };
  for (int i = 1; i < teams; ++i) others.push_back(std::async(std::launch::async, team));
  plan::DeviceModel slowest = team();
  for (auto& other : others) {
    plan::DeviceModel core = other.get();
    const double bandwidth = std::min(core.bandwidth, slowest.bandwidth);
    if (core.rates(type).peak < slowest.rates(type).peak) slowest = std::move(core);
    slowest.bandwidth = bandwidth;
  }
  slowest.name = "measured";
  slowest.rates_from = "measured on this machine; links assumed";
  return slowest;
}

}  // namespace tfm::launch
