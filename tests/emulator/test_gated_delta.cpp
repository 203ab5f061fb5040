// The gated delta rule and state spaces, their gates and convolution on the emulator.
#include "kernel_runs.h"
#include "kernels/gate.h"
#include "kernels/gated_delta.h"
#include "kernels/short_convolution.h"

namespace tfm::test {
namespace {

using kernels::DeltaSizes;

template <class T>
class DeviceGatedDelta : public testing::Test {};
TYPED_TEST_SUITE(DeviceGatedDelta, Floats);

Values documents(std::int64_t rows) {
  Values v(rows);
  for (std::int64_t r = 0; r < rows; ++r) v[r] = static_cast<double>(r / 5 % 3);
  return v;
}

struct DeltaCase {
  std::int64_t sequences, length;
  DeltaSizes sizes;
  bool accumulate;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    using Data = Unrounded<D, T>;
    const std::int64_t rows = sequences * length, width = sizes.heads * sizes.values;
    typename D::template Array<Data> qkv("qkv", rounded<T>(random_values(rows * sizes.width(), 1))),
        dy("dy", rounded<T>(random_values(rows * width, 3))), y("y", rows * width),
        again("again", rows * width), dqkv("dqkv", rows * sizes.width()),
        skip("skip", rounded<T>(random_values(sizes.heads, 7)));
    Values steps = random_values(rows * 2 * sizes.heads, 2);
    for (std::size_t i = 0; i < steps.size(); ++i)
      steps[i] = i / sizes.heads % 2 == 0 ? (steps[i] + 1) / 2 : steps[i] - 1;
    typename D::template Array<W> gates("gates", steps), dgates("dgates", rows * 2 * sizes.heads),
        borders("borders", sequences * DeltaSizes::chunks(length) * sizes.heads * sizes.state()),
        state("state", sequences * sizes.heads * sizes.state()),
        skip_terms("skip terms", rows * sizes.heads);
    state.assign(random_values(sequences * sizes.heads * sizes.state(), 4));
    typename D::template Array<std::int32_t> segments("segments", documents(rows));
    if (accumulate) {
      dqkv.assign(rounded<T>(random_values(rows * sizes.width(), 5)));
      dgates.assign(random_values(rows * 2 * sizes.heads, 6));
    }
    auto& s = D::stream();
    const kernels::DeltaInputs<Data> in{
        sequences,
        length,
        sizes,
        qkv,
        gates,
        sizes.corrects ? nullptr : static_cast<Data*>(skip),
        accumulate ? static_cast<std::int32_t*>(segments) : nullptr};
    kernels::gated_delta(s, kernels::GatedDeltaArgs<Data>{in, y, nullptr, borders});
    kernels::gated_delta_backward(
        s, kernels::GatedDeltaBackwardArgs<Data>{
               in, borders, dy, dqkv, dgates,
               sizes.corrects ? nullptr : static_cast<W*>(skip_terms), accumulate, accumulate});
    kernels::gated_delta(s, kernels::GatedDeltaArgs<Data>{in, again, state, nullptr});
    return {{"y", y.values(), rounding<T>()},
            {"continued", again.values(), rounding<T>(4)},
            {"state", state.values(), rounding<W>(4)},
            {"dqkv", dqkv.values(), rounding<T>(8)},
            {"dgates", dgates.values(), rounding<W>(16)},
            {"skip_terms", sizes.corrects ? Values{} : skip_terms.values(), rounding<W>(16)}};
  }
};

TYPED_TEST(DeviceGatedDelta, AsTheCpus) {
  for (const DeltaCase& c : {DeltaCase{1, 1, {1, 1, 3, 2}, false},
                             {2, 21, {1, 2, 9, 6}, true},
                             {1, 67, {1, 1, 8, 70}, false},
                             {2, 67, {1, 2, 9, 6, false}, true},
                             {1, 5, {2, 2, 8, 70, false}, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TYPED_TEST(DeviceGatedDelta, DISABLED_AtRealShapes) {
  for (const DeltaCase& c :
       {DeltaCase{1, 256, {2, 4, 128, 128}, true}, {1, 256, {1, 4, 128, 64, false}, true}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TEST(DeviceGatedDeltaBarriers, AreAllNeeded) {
  const DeltaCase c{1, 66, {1, 1, 5, 4}, true};
  expect_needs_barriers([&]<class D>() { return c.run<D, float>(); });
}

struct DeltaGatesCase {
  std::int64_t rows, heads;
  bool accumulate, two = true;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    const std::int64_t n = rows * 2 * heads;
    const auto array = [](const char* name, std::int64_t size, std::uint32_t stream) {
      return typename D::template Array<T>(name, rounded<T>(random_values(size, stream, 3)));
    };
    auto x = array("x", n, 1), log_rate = array("log_rate", heads, 2),
         bias = array("bias", heads, 3), z = array("z", n, 4), dy = array("dy", n, 5);
    typename D::template Array<W> gates("gates", n), terms("terms", n),
        dgates("dgates", random_values(n, 6));
    typename D::template Array<T> dx("dx", n), y("y", n), dgated("dgated", n), dz("dz", n);
    if (accumulate)
      for (auto* d : {&dx, &dgated, &dz}) d->assign(rounded<T>(random_values(n, 7)));
    auto& s = D::stream();
    const kernels::DeltaGatesArgs<T> a{rows, heads, two, x, log_rate, bias, gates};
    kernels::delta_gates(s, a);
    kernels::delta_gates_backward(
        s, kernels::DeltaGatesBackwardArgs<T>{a, dgates, dx, accumulate, terms});
    const kernels::Gate kind = accumulate ? kernels::Gate::silu : kernels::Gate::sigmoid;
    kernels::gate(s, kernels::GateArgs<T>{n, kind, x, z, y});
    kernels::gate_backward(
        s, kernels::GateBackwardArgs<T>{n, kind, x, z, dy, dgated, dz, accumulate, accumulate});
    return {{"gates", gates.values(), rounding<W>(64)},  {"terms", terms.values(), rounding<W>(64)},
            {"dx", dx.values(), rounding<T>(64)},        {"y", y.values(), rounding<T>(8)},
            {"dgated", dgated.values(), rounding<T>(8)}, {"dz", dz.values(), rounding<T>(8)}};
  }
};

TYPED_TEST(DeviceGatedDelta, GatesAsTheCpus) {
  for (const DeltaGatesCase& c :
       {DeltaGatesCase{1, 1, false}, {13, 5, true}, {40, 8, false}, {13, 5, true, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

struct ConvolutionCase {
  std::int64_t sequences, length, cols;
  int kernel;
  bool accumulate, biased = false;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    const std::int64_t n = sequences * length * cols;
    const auto array = [](const char* name, std::int64_t size, std::uint32_t stream) {
      return typename D::template Array<T>(name, rounded<T>(random_values(size, stream)));
    };
    auto x = array("x", n, 1), w = array("w", cols * kernel, 2), dy = array("dy", n, 3),
         bias = array("bias", cols, 7);
    typename D::template Array<T> y("y", n), dx("dx", n), continued("continued", n),
        state("state", sequences * (kernel - 1) * cols);
    state.assign(rounded<T>(random_values(sequences * (kernel - 1) * cols, 4)));
    typename D::template Array<W> dw("dw", cols * kernel), dbias("dbias", cols);
    typename D::template Array<std::int32_t> segments("segments", documents(sequences * length));
    if (accumulate) {
      dx.assign(rounded<T>(random_values(n, 5)));
      dw.assign(random_values(cols * kernel, 6));
      dbias.assign(random_values(cols, 8));
    }
    auto& s = D::stream();
    kernels::ShortConvolutionArgs<T> a{sequences,
                                       length,
                                       cols,
                                       kernel,
                                       x,
                                       w,
                                       biased ? static_cast<T*>(bias) : nullptr,
                                       accumulate ? static_cast<std::int32_t*>(segments) : nullptr,
                                       nullptr,
                                       y};
    kernels::short_convolution(s, a);
    kernels::short_convolution_backward(
        s, kernels::ShortConvolutionBackwardArgs<T>{a, dy, dx, dw,
                                                    biased ? static_cast<W*>(dbias) : nullptr,
                                                    accumulate, accumulate, accumulate});
    a.segments = nullptr;
    a.state = state;
    a.y = continued;
    kernels::short_convolution(s, a);
    return {{"y", y.values(), rounding<T>(4)},
            {"dx", dx.values(), rounding<T>(8)},
            {"dw", dw.values(), rounding<W>(32)},
            {"dbias", biased ? dbias.values() : Values{}, rounding<W>(32)},
            {"continued", continued.values(), rounding<T>(4)},
            {"state", state.values(), 0}};
  }
};

TYPED_TEST(DeviceGatedDelta, ConvolutionAsTheCpus) {
  for (const ConvolutionCase& c : {ConvolutionCase{1, 1, 1, 4, false},
                                   {2, 9, 37, 4, true},
                                   {1, 90, 20, 8, false},
                                   {3, 2, 5, 3, true},
                                   {2, 40, 37, 4, true, true},
                                   {1, 9, 70, 3, false, true}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

}  // namespace
}  // namespace tfm::test
