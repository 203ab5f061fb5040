// Heads of latent attention on the emulator.
#include "kernel_runs.h"
#include "kernels/latent_heads.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceLatentHeads : public testing::Test {};
TYPED_TEST_SUITE(DeviceLatentHeads, Floats);

struct LatentCase {
  std::int64_t rows, length;
  kernels::LatentSizes sizes;
  bool accumulate;

  template <class D, class T>
  Results run() const {
    const auto array = [](const char* name, std::int64_t n, std::uint32_t stream) {
      return typename D::template Array<T>(name, rounded<T>(random_values(n, stream)));
    };
    const std::int64_t q_width = sizes.heads * sizes.head(),
                       kv_width = sizes.heads * (sizes.plain + sizes.values);
    Values angles(sizes.turning / 2);
    for (std::size_t i = 0; i < angles.size(); ++i) angles[i] = 1 / (1.0 + static_cast<double>(i));
    typename D::template Array<double> frequency("frequency", angles);
    auto q = array("q", rows * q_width, 1), kv = array("kv", rows * kv_width, 2),
         shared = array("shared", rows * sizes.turning, 3),
         dqkv = array("dqkv", rows * 3 * q_width, 4);
    typename D::template Array<T> dq("dq", rows * q_width), dkv("dkv", rows * kv_width),
        dshared("dshared", rows * sizes.turning);
    if (accumulate) {
      dq.assign(rounded<T>(random_values(rows * q_width, 5)));
      dkv.assign(rounded<T>(random_values(rows * kv_width, 6)));
      dshared.assign(rounded<T>(random_values(rows * sizes.turning, 7)));
    }
    typename D::template Array<T> qkv("qkv", rows * 3 * q_width),
        turned("turned", rows * sizes.heads * sizes.turning);
    const kernels::Positions positions{length, 5, frequency};
    auto& s = D::stream();
    kernels::latent_heads(s,
                          kernels::LatentHeadsArgs<T>{rows, sizes, positions, q, kv, shared, qkv});
    kernels::latent_heads_backward(
        s, kernels::LatentHeadsBackwardArgs<T>{rows, sizes, positions, dqkv, dq, dkv, dshared,
                                               accumulate, accumulate, accumulate});
    kernels::turn(s, kernels::TurnArgs<T>{rows, sizes.heads, sizes.turning, positions,
                                          static_cast<T*>(q) + sizes.plain, q_width, sizes.head(),
                                          turned, sizes.heads * sizes.turning, sizes.turning});
    return {{"qkv", qkv.values(), rounding<T>(2)},
            {"dq", dq.values(), rounding<T>(4)},
            {"dkv", dkv.values(), rounding<T>(2)},
            {"dshared", dshared.values(), rounding<T>(8)},
            {"turned", turned.values(), rounding<T>(2)}};
  }
};

TYPED_TEST(DeviceLatentHeads, AsTheCpus) {
  for (const LatentCase& c : {LatentCase{1, 1, {1, 0, 2, 1}, false},
                              {6, 3, {3, 5, 4, 7}, true},
                              {40, 40, {2, 16, 8, 16}, false},
                              {33, 11, {4, 8, 6, 14}, true}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TYPED_TEST(DeviceLatentHeads, DISABLED_AtRealShapes) {
  const LatentCase c{256, 128, {16, 128, 64, 128}, true};
  expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

}  // namespace
}  // namespace tfm::test
