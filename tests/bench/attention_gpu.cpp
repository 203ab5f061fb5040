// Times attention on a GPU, by the own kernels and by cuDNN: milliseconds and TFLOP/s, forward and
// backward.
#include <cstdio>
#include <functional>

#include "device/cuda/measure.h"
#include "device/cuda/stream.h"
#include "device/memory.h"
#include "kernels/cuda/attention_cudnn.h"

namespace tfm::kernels {
namespace {

struct Shape {
  std::int64_t batch, heads, kv_heads, length, size;
  bool causal, padded = false;  // padded: all keys are real, but that is known to the device alone
};

void print(const char* what, const Shape& s, double flops, float ms) {
  std::printf("  %-18s B %2ld H %2ld/%-2ld T %5ld D %3ld %s %8.3f ms %7.1f TFLOP/s\n", what,
              s.batch, s.heads, s.kv_heads, s.length, s.size,
              s.causal   ? "causal"
              : s.padded ? "padded"
                         : "full  ",
              ms, flops / ms * 1e-9);
}

// Products of visible pairs of a query and a key: two in forward, five in backward.
void time(cuda::Stream& stream, const Shape& s) {
  const std::int64_t rows = s.batch * s.length, width = s.heads * s.size,
                     row = width + 2 * s.kv_heads * s.size;
  std::vector<std::shared_ptr<std::byte>> kept;
  const auto memory = [&](std::int64_t n) {
    kept.push_back(device::allocate(stream, 2 * n));
    std::vector<bf16> host(static_cast<std::size_t>(n));
    std::uint32_t state = 1;
    for (bf16& x : host)
      x = bf16(static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f);
    device::upload(stream, kept.back().get(), host.data(), 2 * n);
    return reinterpret_cast<bf16*>(kept.back().get());
  };
  bf16 *qkv = memory(rows * row), *dqkv = memory(rows * row);
  kept.push_back(device::allocate(stream, 4 * rows * s.heads));
  const std::vector<std::int32_t> real(static_cast<std::size_t>(rows));
  kept.push_back(device::allocate(stream, 4 * rows));
  device::upload(stream, kept.back().get(), real.data(), 4 * rows);
  const Visibility visible = s.causal ? Visibility::causal() : Visibility{};
  const AttentionArgs<bf16> a{
      .batch = s.batch,
      .heads = s.heads,
      .kv_heads = s.kv_heads,
      .queries = s.length,
      .keys = s.length,
      .head_size = s.size,
      .q = qkv,
      .k = qkv + width,
      .v = qkv + width + s.kv_heads * s.size,
      .q_stride = row,
      .kv_stride = row,
      .out = memory(rows * width),
      .out_stride = width,
      .lse = reinterpret_cast<float*>(kept[2].get()),
      .scale = 0.125f,
      .visible = visible,
      .k_segments = s.padded ? reinterpret_cast<std::int32_t*>(kept[3].get()) : nullptr,
      .right_padded = true};
  const AttentionBackwardArgs<bf16> g{a, memory(rows * width), dqkv, dqkv + width,
                                      dqkv + width + s.kv_heads * s.size};
  const double pairs = static_cast<double>(s.batch * s.heads *
                                           visible.pairs({0, s.length}, {0, s.length})),
               forward = 4 * pairs * static_cast<double>(s.size);
  const auto milliseconds = [&](auto&& run) {
    return cuda::milliseconds(stream, 1, [&](std::size_t) { return run(); })[0];
  };
  print("own", s, forward, milliseconds([&] { return own_attention(stream, a), true; }));
  print("own backward", s, 2.5 * forward,
        milliseconds([&] { return own_attention(stream, g), true; }));
#ifdef TFM_CUDNN
  print("cuDNN", s, forward, milliseconds([&] { return cudnn_attention(stream, a); }));
  print("cuDNN backward", s, 2.5 * forward,
        milliseconds([&] { return cudnn_attention(stream, g); }));
#endif
}

}  // namespace
}  // namespace tfm::kernels

int main() {
  if (tfm::cuda::usable_devices().empty()) {
    std::puts("there is no GPU here");
    return 4;
  }
  tfm::cuda::Stream stream(0);
  for (const tfm::kernels::Shape& s : {tfm::kernels::Shape{16, 12, 12, 1024, 64, true},
                                       {4, 32, 8, 4096, 128, true},
                                       {2, 32, 8, 8192, 128, true},
                                       {1, 64, 8, 8192, 128, true},
                                       {1, 32, 8, 32768, 128, true},
                                       {64, 16, 16, 512, 64, false},
                                       {64, 16, 16, 512, 64, false, true},
                                       {4, 16, 16, 2048, 256, true}})
    tfm::kernels::time(stream, s);
}
