#include "launch/bench/rates.h"

#include <tuple>
#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace tfm::launch {
namespace {

// Memory of the device, filled with numbers between -1 and 1.
class Operand {
 public:
  Operand(device::Device& device, DType type, std::int64_t elements) {
    const std::int64_t bytes = elements * static_cast<std::int64_t>(size_of(type));
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

}  // namespace

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

MeasuredRates measure_rates(device::Device& device, DType type) {
  MeasuredRates rates;
  rates.product = product_rate(device, type, device.is_cpu() ? 1024 : 8192,
                               [&](const auto& work) { return best_seconds(device, work); });
  const std::int64_t batch = device.is_cpu() ? 4 : 64, length = device.is_cpu() ? 256 : 1024,
                     heads = 12, D = 64;
  const std::int64_t rows = batch * length, width = heads * D,
                     copied = std::int64_t{device.is_cpu() ? 64 : 1024} << 20;
  with_float(type, [&]<class T>() {
    const Operand qkv(device, type, rows * 3 * width), out(device, type, rows * width),
        lse(device, accum_type(type), rows * heads);
    const Operand from(device, type, copied / static_cast<std::int64_t>(sizeof(T))),
        to(device, type, copied / static_cast<std::int64_t>(sizeof(T)));
    device::on(device.stream(), [&](auto& s) {
      const kernels::AttentionArgs<T> attention{.batch = batch,
                                                .heads = heads,
                                                .kv_heads = heads,
                                                .queries = length,
                                                .keys = length,
                                                .head_size = D,
                                                .q = qkv.ptr<T>(),
                                                .k = qkv.ptr<T>() + width,
                                                .v = qkv.ptr<T>() + 2 * width,
                                                .q_stride = 3 * width,
                                                .kv_stride = 3 * width,
                                                .out = out.ptr<T>(),
                                                .out_stride = width,
                                                .lse = lse.ptr<Accum<T>>(),
                                                .scale = Accum<T>(0.125),
                                                .causal = true,
                                                .heads_total = heads};
      rates.attention = 2.0 * static_cast<double>(rows * length * width) /
                        best_seconds(device, [&] { kernels::attention(s, attention); });
      const kernels::CopyArgs<T> copy{
          .n = copied / static_cast<std::int64_t>(sizeof(T)), .x = from.ptr<T>(), .y = to.ptr<T>()};
      rates.bandwidth =
          2.0 * static_cast<double>(copied) / best_seconds(device, [&] { kernels::copy(s, copy); });
    });
  });
  return rates;
}

plan::CoreRates measure_core(int cores, config::Precision precision) {
  device::Device device = device::Device::cpu(cores);
  const auto rates = [&](DType t) {
    const MeasuredRates m = measure_rates(device, t);
    return std::pair{
        plan::DeviceModel::Rates{m.product / cores, m.product / cores, m.attention / cores},
        m.bandwidth / cores};
  };
  plan::CoreRates core;
  std::tie(core.wide, core.bandwidth) = rates(DType::f32);
  if (precision != config::Precision::fp32)
    core.half = rates(precision == config::Precision::bf16 ? DType::bf16 : DType::f16).first;
  return core;
}

}  // namespace tfm::launch
