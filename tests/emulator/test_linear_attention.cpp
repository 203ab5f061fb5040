// Linear attention on the emulator.
#include "kernel_runs.h"
#include "kernels/linear_attention.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceLinearAttention : public testing::Test {};
TYPED_TEST_SUITE(DeviceLinearAttention, Floats);

struct LinearCase {
  std::int64_t sequences, length;
  kernels::LinearSizes sizes;
  bool accumulate;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    using Data = Unrounded<D, T>;
    const std::int64_t rows = sequences * length, width = sizes.width();
    const auto array = [](const char* name, std::int64_t n, std::uint32_t stream) {
      return typename D::template Array<Data>(name, rounded<T>(random_values(n, stream)));
    };
    auto qkv = array("qkv", rows * 3 * width, 1), dy = array("dy", rows * width, 2);
    typename D::template Array<Data> y("y", rows * width), again("again", rows * width),
        dqkv("dqkv", rows * 3 * width);
    typename D::template Array<W> sums("sums", rows * sizes.heads),
        state("state", sequences * sizes.heads * sizes.state());
    Values runs(rows);
    for (std::int64_t r = 0; r < rows; ++r)
      runs[r] = static_cast<double>(r % length % 4 == 1 ? -1 : r % length / 5);
    typename D::template Array<std::int32_t> segments("segments", runs);
    if (accumulate) dqkv.assign(rounded<T>(random_values(rows * 3 * width, 3)));
    state.assign(Values(sequences * sizes.heads * sizes.state(), 0.5));
    auto& s = D::stream();
    kernels::LinearAttentionArgs<Data> a{
        sequences, length, sizes, qkv, accumulate ? static_cast<std::int32_t*>(segments) : nullptr,
        y,         sums};
    kernels::linear_attention(s, a);
    kernels::linear_attention_backward(
        s, kernels::LinearAttentionBackwardArgs<Data>{a, dy, dqkv, accumulate});
    Results all{{"y", y.values(), rounding<T>(2)},
                {"sums", sums.values(), rounding<W>(8000)},
                {"dqkv", dqkv.values(), rounding<T>(8)}};
    if (!sizes.causal) return all;
    a.segments = nullptr;
    a.y = again;
    a.sums = nullptr;
    a.state = state;
    kernels::linear_attention(s, a);
    all.push_back({"continued", again.values(), rounding<T>(2)});
    all.push_back({"state", state.values(), rounding<W>(200)});
    return all;
  }
};

TYPED_TEST(DeviceLinearAttention, AsTheCpus) {
  for (const LinearCase& c : {LinearCase{1, 1, {1, 3, true}, false},
                              {2, 21, {2, 6, true}, true},
                              {1, 67, {2, 9, true}, false},
                              {2, 21, {2, 6, false}, true},
                              {1, 67, {1, 9, false}, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TYPED_TEST(DeviceLinearAttention, DISABLED_AtRealShapes) {
  const LinearCase c{2, 256, {4, 64, true}, true};
  expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

}  // namespace
}  // namespace tfm::test
