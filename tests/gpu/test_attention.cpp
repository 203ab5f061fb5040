// Attention on a GPU: the own kernels and, on Hopper, cuDNN's, each against float64 and each with
// the other's log-sum-exp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "device/cuda/cudnn.h"
#include "device/cuda/stream.h"
#include "device/memory.h"
#include "device/replay.h"
#include "support/attention_cudnn_cases.h"
#include "support/attention_plain.h"

namespace tfm::test {
namespace {

template <class T>
class Array {
 public:
  Array(cuda::Stream& stream, std::int64_t n)
      : stream_(stream),
        n_(n),
        memory_(device::allocate(stream, n * static_cast<std::int64_t>(sizeof(T)))) {}
  Array(cuda::Stream& stream, const Values& v) : Array(stream, std::ssize(v)) {
    std::vector<T> host;
    for (const double x : v) host.push_back(static_cast<T>(static_cast<Accum<T>>(x)));
    device::upload(stream, memory_.get(), host.data(), n_ * static_cast<std::int64_t>(sizeof(T)));
  }
  T* get() const { return reinterpret_cast<T*>(memory_.get()); }
  Values values() const {
    std::vector<T> host(static_cast<std::size_t>(n_));
    device::download(stream_, host.data(), memory_.get(),
                     n_ * static_cast<std::int64_t>(sizeof(T)));
    Values v;
    for (const T x : host) v.push_back(static_cast<double>(static_cast<Accum<T>>(x)));
    return v;
  }

 private:
  cuda::Stream& stream_;
  std::int64_t n_;
  std::shared_ptr<std::byte> memory_;
};

// Queries, keys and values in one row where there are as many of each, as a fused projection leaves
// them.
template <class T>
struct Tensors {
  Tensors(cuda::Stream& stream, const Data<T>& d)
      : data(d),
        fused(d.r.queries == d.r.keys),
        q_width(d.r.heads * d.r.size),
        kv_width(d.r.kv_heads * d.r.size),
        q_stride(q_width + (fused ? 2 * kv_width : 0)),
        kv_stride((fused ? q_width : 0) + 2 * kv_width),
        q(stream, rows()),
        kv(stream, fused ? Values(1) : keys()),
        out(stream, d.r.batch * d.r.queries * q_width),
        dout(stream, d.dout),
        dq(stream, d.r.batch * d.r.queries * q_stride),
        dkv(stream, fused ? 1 : d.r.batch * d.r.keys * kv_stride),
        lse(stream, d.r.batch * d.r.heads * d.r.queries),
        segments(stream, d.r.k_segments.empty()
                             ? Values(1)
                             : Values(d.r.k_segments.begin(), d.r.k_segments.end())) {}

  kernels::AttentionBackwardArgs<T> args() const {
    const auto& r = data.r;
    T *k = fused ? q.get() + q_width : kv.get(), *dk = fused ? dq.get() + q_width : dkv.get();
    return {{.batch = r.batch,
             .heads = r.heads,
             .kv_heads = r.kv_heads,
             .queries = r.queries,
             .keys = r.keys,
             .head_size = r.size,
             .q = q.get(),
             .k = k,
             .v = k + kv_width,
             .q_stride = q_stride,
             .kv_stride = kv_stride,
             .out = out.get(),
             .out_stride = q_width,
             .lse = lse.get(),
             .scale = static_cast<float>(r.scale),
             .visible = r.by_position,
             .k_segments = r.k_segments.empty() ? nullptr : segments.get(),
             .right_padded = true},
            dout.get(),
            dq.get(),
            dk,
            dk + kv_width};
  }
  AttentionResult result() const {
    const Values dqs = dq.values(), dkvs = fused ? dqs : dkv.values();
    const std::int64_t at = fused ? q_width : 0;
    return {out.values(),
            lse.values(),
            gather(dqs, q_width, q_stride),
            gather(dkvs, kv_width, kv_stride, at),
            gather(dkvs, kv_width, kv_stride, at + kv_width),
            {}};
  }

  const Data<T>& data;
  bool fused;
  std::int64_t q_width, kv_width, q_stride, kv_stride;
  Array<T> q, kv, out, dout, dq, dkv;
  Array<float> lse;
  Array<std::int32_t> segments;

 private:
  void put(Values& to, const Values& from, std::int64_t width, std::int64_t stride,
           std::int64_t at) const {
    for (std::int64_t i = 0; i < std::ssize(from); ++i)
      to[i / width * stride + at + i % width] = from[i];
  }
  Values keys() const {
    Values all(data.r.batch * data.r.keys * kv_stride);
    put(all, data.k, kv_width, kv_stride, 0), put(all, data.v, kv_width, kv_stride, kv_width);
    return all;
  }
  Values rows() const {
    Values all(data.r.batch * data.r.queries * q_stride);
    put(all, data.q, q_width, q_stride, 0);
    if (fused)
      put(all, data.k, kv_width, q_stride, q_width),
          put(all, data.v, kv_width, q_stride, q_width + kv_width);
    return all;
  }
};

enum class By { own, cudnn };
template <class Args>
void run(cuda::Stream& stream, By by, const Args& args) {
  if (by == By::own)
    kernels::own_attention(stream, args);
  else
    ASSERT_TRUE(kernels::cudnn_attention(stream, args));
}

reference::Attention reference_of(const CudnnCase& c) {
  reference::Attention r = shape(c.batch, c.heads, c.kv_heads, c.queries, c.keys, c.size, c.causal);
  if (c.padded) set_mask(r, Mask::right_padding);
  return r;
}

class GpuAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* cache = std::getenv("XDG_CACHE_HOME")) cache_ = cache;
    if (cuda::usable_devices().empty()) GTEST_SKIP() << "no GPU";
    cudaDeviceProp properties;
    cuda::check(cudaGetDeviceProperties(&properties, 0));
    if (properties.major == 9) {
      ASSERT_GE(cuda::cudnn::version(), 91600u)
          << "libcudnn.so.9 is not found or too old; LD_LIBRARY_PATH may name its folder";
      all_.push_back(By::cudnn);
    }
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    stream_ = std::make_unique<cuda::Stream>(0);
  }
  void TearDown() override {
    stream_.reset();
    std::filesystem::remove_all(folder_);
    cache_ ? setenv("XDG_CACHE_HOME", cache_->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
  }

  template <class T>
  void expect_right(const CudnnCase& c) {
    SCOPED_TRACE(testing::Message() << name_of(dtype_of<T>) << " " << describe(c));
    const reference::Attention r = reference_of(c);
    const Data<T> d = rounded_data<T>(r);
    const Wanted<T> wanted(d);
    for (const By forward : all_)
      for (const By backward : all_) {
        SCOPED_TRACE(testing::Message() << "by cuDNN: forward " << (forward == By::cudnn)
                                        << ", backward " << (backward == By::cudnn));
        const Tensors<T> t(*stream_, d);
        run(*stream_, forward, t.args().forward);
        run(*stream_, backward, t.args());
        EXPECT_EQ(complaint(wanted, t.result()), "");
      }
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tfm-attention-" + std::to_string(getpid()));
  std::optional<std::string> cache_;
  std::unique_ptr<cuda::Stream> stream_;
  std::vector<By> all_ = {By::own};
};

class GpuAttentionOf : public GpuAttention, public testing::WithParamInterface<CudnnCase> {};
TEST_P(GpuAttentionOf, AgreesWithFloat64) {
  expect_right<bf16>(GetParam());
  if (GetParam().size == 64 || GetParam().size == 256) expect_right<f16>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuAttentionOf, testing::ValuesIn(cudnn_cases()),
                         [](const auto& info) { return std::to_string(info.index); });

// All but gradients of queries, which cuDNN adds up as blocks end.
bool same_but_for_queries(AttentionResult a, const AttentionResult& b) {
  a.dq = b.dq;
  return same(a, b);
}

TEST_F(GpuAttention, SameBitsInEveryRunAndInAGraph) {
  const reference::Attention r = shape(4, 8, 4, 1000, 1000, 128, true);
  const Data<bf16> d = rounded_data<bf16>(r);
  for (const By by : all_) {
    const Tensors<bf16> t(*stream_, d);
    std::vector<AttentionResult> results;
    device::Replay replay;
    for (int i = 0; i < 6; ++i) {
      replay.run(stream_.get(),
                 [&] { run(*stream_, by, t.args().forward), run(*stream_, by, t.args()); });
      results.push_back(t.result());
      EXPECT_TRUE(same_but_for_queries(results[i], results[0])) << i;
      EXPECT_TRUE(by == By::cudnn || results[i].dq == results[0].dq) << i;
    }
    EXPECT_TRUE(replay.recorded());
  }
}

// cuDNN's goes in parts of 640 MiB.
TEST_F(GpuAttention, LargeBackwardInParts) {
  for (const CudnnCase& c : {CudnnCase{1, 64, 64, 2304, 2304, 64, true},
                             {64, 1, 1, 2304, 2304, 64, true},
                             {1, 8, 2, 8192, 8192, 128, true},
                             {2, 40, 8, 16384, 16384, 64, true}}) {
    SCOPED_TRACE(describe(c));
    const reference::Attention r = reference_of(c);
    const Data<bf16> d = rounded_data<bf16>(r);
    std::vector<AttentionResult> results;
    for (const By by : all_) {
      const Tensors<bf16> t(*stream_, d);
      run(*stream_, by, t.args().forward), run(*stream_, by, t.args());
      results.push_back(t.result());
    }
    const AttentionResult &got = results.back(), &want = results.front();
    for (auto x :
         {&AttentionResult::out, &AttentionResult::dq, &AttentionResult::dk, &AttentionResult::dv})
      EXPECT_LE(largest_difference(got.*x, want.*x),
                0.02 * largest_difference(want.*x, Values((want.*x).size())));
  }
}

// Whichever is faster: the choice is kept, and so are the bits.
TEST_F(GpuAttention, ChoosesOnce) {
  const reference::Attention r = shape(4, 12, 12, 1024, 1024, 64, true);
  const Data<bf16> d = rounded_data<bf16>(r);
  std::vector<AttentionResult> results;
  for (int i = 0; i < 2; ++i) {
    cuda::Stream stream(0);
    const Tensors<bf16> t(stream, d);
    kernels::attention(stream, t.args().forward);
    kernels::attention_backward(stream, t.args());
    results.push_back(t.result());
  }
  EXPECT_TRUE(same_but_for_queries(results[0], results[1]));
  EXPECT_EQ(std::filesystem::exists(folder_ / "tfm"), all_.size() > 1);
}

}  // namespace
}  // namespace tfm::test
