// device/cuda and the products by cuBLASLt, against stand-ins of the runtime and the library.
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "core/error.h"
#include "device/cuda/blas.h"
#include "device/cuda/measure.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/replay.h"
#include "fake_runtime.h"
#include "kernel_runs.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace tfm::test {
namespace {

class DeviceRuntime : public testing::Test {
 protected:
  DeviceRuntime() {
    emulator::runtime = {};
    std::filesystem::remove_all(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~DeviceRuntime() override {
    emulator::runtime = {};
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path file() const {
    return folder_ / "tfm" / "products-cublaslt-130100-Block_emulator_1.txt";
  }
  std::string text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tfm-device-" + std::to_string(getpid()));
};

struct GemmCase {
  bool ta, tb;
  std::int64_t m, n, k, pad;  // pad: of every leading dimension
  double alpha, beta;
  bool bias;

  template <class D, class T, class C>
  Results run() const {
    using W = Accum<T>;
    const std::int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
    typename D::template Array<T> a("a", rounded<T>(random_values((ta ? k : m) * lda, 1))),
        b("b", rounded<T>(random_values((tb ? n : k) * ldb, 2))),
        shift("bias", rounded<T>(random_values(n, 3)));
    typename D::template Array<C> c("c", m * ldc);
    c.assign(rounded<C>(random_values(m * ldc, 4)));
    kernels::gemm(D::stream(),
                  kernels::GemmArgs<T, C>{.transpose_a = ta,
                                          .transpose_b = tb,
                                          .m = m,
                                          .n = n,
                                          .k = k,
                                          .alpha = static_cast<W>(alpha),
                                          .a = a,
                                          .lda = lda,
                                          .b = b,
                                          .ldb = ldb,
                                          .beta = static_cast<W>(beta),
                                          .c = c,
                                          .ldc = ldc,
                                          .bias = bias ? static_cast<T*>(shift) : nullptr});
    return {{"c", c.values(), rounding<C>(4 * std::sqrt(static_cast<double>(k) + 1))}};
  }
};
template <class T, class C = T>
void expect_products() {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (const GemmCase& c : {GemmCase{ta, tb, 1, 1, 1, 0, 1, 0, false},
                                {ta, tb, 7, 5, 9, 3, 0.5, 0, false},
                                {ta, tb, 16, 24, 33, 0, 1, 1, false},
                                {ta, tb, 4, 6, 5, 2, 2, 0.5, false},
                                {ta, tb, 9, 8, 3, 0, 1, 0, true},
                                {ta, tb, 6, 5, 4, 1, 1, 0, true},
                                {ta, tb, 3, 4, 0, 1, 1, 0.5, false},
                                {ta, tb, 3, 4, 0, 0, 1, 0, true},
                                {ta, tb, 9, 523, 6, 5, 0.5, 0, false},  // in two, where rows of
                                {ta, tb, 9, 517, 6, 3, 1, 0, true},     // 16 bits end unaligned
                                {ta, tb, 523, 8, 6, 5, 2, 0.5, false},
                                {ta, tb, 16, 8, 521, 7, 0.5, 1, false},
                                {ta, tb, 515, 8, 515, 5, 0.1, 0.5, false}}) {  // in four
        if (sizeof(T) == 2 && (c.k == 0 || (c.bias && sizeof(C) == 4))) continue;
        SCOPED_TRACE(testing::Message()
                     << ta << tb << " m " << c.m << " k " << c.k << " bias " << c.bias);
        const Results want = c.run<OnCpu, T, C>(), got = c.run<OnDevice, T, C>();
        expect_close(got[0].values, want[0].values, want[0].bound, "c");
      }
}
TEST_F(DeviceRuntime, AGpuIsDescribed) {
  emulator::runtime.free_bytes = 5000;
  const device::Device::Gpu gpu = device::Device::describe_gpu(3);
  EXPECT_EQ(gpu.name, "Block emulator/1");
  EXPECT_EQ(gpu.memory_bytes, 6000);
  emulator::runtime.bus_id = "0000:07:00.0";
  EXPECT_EQ(device::Device::bus_id(3), "0000:07:00.0");
  emulator::runtime.devices = 0;
  EXPECT_EQ(device::Device::bus_id(3), "");
}

TEST_F(DeviceRuntime, ProductsAsTheCpus) {
  for (const bool bias_epilogue : {true, false}) {
    emulator::runtime.bias_epilogue = bias_epilogue;
    expect_products<float>();
    expect_products<double>();
    expect_products<bf16>();
    expect_products<f16>();
    expect_products<bf16, float>();
    expect_products<f16, float>();
  }
}

struct LinearGradientsCase {
  bool accumulate_dw, accumulate_db;
  float scale;

  template <class D, class T>
  Results run(auto& s) const {
    constexpr std::int64_t rows = 37, in = 24, out = 13;
    typename D::template Array<T> dy("dy", rounded<T>(random_values(rows * out, 1))),
        x("x", rounded<T>(random_values(rows * in, 2)));
    typename D::template Array<Accum<T>> dw("dw", out * in), db("db", out);
    dw.assign(random_values(out * in, 3)), db.assign(random_values(out, 4));
    for (int time = 0; time < 2; ++time)  // measured, then known
      kernels::linear_gradients(
          s, kernels::LinearGradientsArgs<T>{rows, in, out, scale, dy, x, dw, accumulate_dw, db,
                                             accumulate_db});
    return {{"dw", dw.values(), rounding<Accum<T>>(50)},
            {"db", db.values(), rounding<Accum<T>>(50)}};
  }
};
TEST_F(DeviceRuntime, GradientsOfALinearLayer) {
  for (const LinearGradientsCase& c : {LinearGradientsCase{false, false, 1},
                                       {true, false, 1},
                                       {false, true, 1},
                                       {true, true, 1},
                                       {false, false, 0.5f}}) {
    SCOPED_TRACE(testing::Message() << c.accumulate_dw << c.accumulate_db << " " << c.scale);
    const auto compare = [&]<class T>() {
      cuda::Stream stream(0);
      const Results want = c.run<OnCpu, T>(OnCpu::stream()), got = c.run<OnDevice, T>(stream);
      for (std::size_t i = 0; i < want.size(); ++i)
        expect_close(got[i].values, want[i].values, want[i].bound, want[i].name);
    };
    compare.operator()<float>(), compare.operator()<double>(), compare.operator()<bf16>(),
        compare.operator()<f16>();
  }
}

struct ActivationBackwardCase {
  std::int64_t cols;
  kernels::Activation kind = kernels::Activation::gelu_tanh;
  int first = 0;  // element of its memory that x starts with

  template <class D, class T>
  Results run(auto& s) const {
    constexpr std::int64_t rows = 9, inner = 24;
    typename D::template Array<T> dy("dy", rounded<T>(random_values(rows * inner, 1))),
        w("w", rounded<T>(random_values(inner * cols, 2))),
        x("x", rounded<T>(random_values(rows * cols + first, 3, 2))),
        between("between", rows * cols), dx("dx", rows * cols);
    for (int time = 0; time < 2; ++time) {  // measured, then known
      emulator::runtime.gradient_epilogues = 0;
      const kernels::GemmArgs<T> product{.m = rows,
                                         .n = cols,
                                         .k = inner,
                                         .alpha = Accum<T>(0.5),
                                         .a = dy,
                                         .lda = inner,
                                         .b = w,
                                         .ldb = cols,
                                         .c = between,
                                         .ldc = cols};
      kernels::gemm_activation_backward(
          s, kernels::GemmActivationBackwardArgs<T>{
                 product, {rows, cols, kind, false, x + first, between, dx}});
    }
    return {{"dx", dx.values(), rounding<T>(8)}};
  }
};
TEST_F(DeviceRuntime, ActivationGradientsComeFromAnEpilogueWhereThatIsFaster) {
  for (const float cost : {0.f, 0.5f, 2.f})
    for (const ActivationBackwardCase& c : {ActivationBackwardCase{16},
                                            {16, kernels::Activation::relu},
                                            {12},
                                            {16, kernels::Activation::gelu_tanh, 1}}) {
      SCOPED_TRACE(testing::Message() << cost << " " << c.cols << " " << c.first);
      emulator::runtime.epilogue_cost = cost;
      std::filesystem::remove_all(folder_);
      const auto compare = [&]<class T>() {
        cuda::Stream stream(0);
        const Results want = c.run<OnCpu, T>(OnCpu::stream()), got = c.run<OnDevice, T>(stream);
        expect_close(got[0].values, want[0].values, want[0].bound, "dx");
        const bool able = sizeof(T) == 2 && c.kind == kernels::Activation::gelu_tanh &&
                          c.cols % 8 == 0 && c.first == 0;
        EXPECT_EQ(emulator::runtime.gradient_epilogues, cost == 0.5f && able ? 1 : 0);
      };
      compare.operator()<float>(), compare.operator()<double>(), compare.operator()<bf16>(),
          compare.operator()<f16>();
    }
}

void multiply(cuda::Stream& stream, std::int64_t n, float beta = 0, bool biased = false) {
  Buffer<float> a("a", random_values(16, 1)), b("b", random_values(4 * n, 2)), c("c", 4 * n),
      bias("bias", Values(n));
  c.assign(Values(4 * n, 1.0));
  kernels::gemm(stream, kernels::GemmArgs<float>{.m = 4,
                                                 .n = n,
                                                 .k = 4,
                                                 .a = a,
                                                 .lda = 4,
                                                 .b = b,
                                                 .ldb = n,
                                                 .beta = beta,
                                                 .c = c,
                                                 .ldc = n,
                                                 .bias = biased ? &bias[0] : nullptr});
  const bool capturing = std::exchange(emulator::runtime.capturing, false);
  for (const auto& work : std::exchange(emulator::runtime.recorded, {})) work();
  emulator::runtime.capturing = capturing;
  const Values product =
      reference::gemm(false, false, 4, n, 4, random_values(16, 1), 4, random_values(4 * n, 2), n);
  expect_close(c.values(), plus(product, Values(4 * n, 1.0), beta), 1e-5,
               "c");  // not disturbed by what was measured
}

// Of the three algorithms the second takes less than two thirds of the others' time, which run once
// less.
constexpr std::size_t kMeasured = 3 + 4 + 3;

TEST_F(DeviceRuntime, FastestAlgorithmIsMeasuredOnceAndKept) {
  auto& used = emulator::runtime.algorithms;
  {
    cuda::Stream stream(0);
    multiply(stream, 8);
    EXPECT_EQ(used.size(), kMeasured + 1);
    EXPECT_EQ(used.back(), 1u);
    used.clear();
    multiply(stream, 8);
    multiply(stream, 8);
    EXPECT_EQ(used, (std::vector<std::uint64_t>{1, 1}));
    multiply(stream, 8, 1);  // another key: C is read
    EXPECT_EQ(used.size(), 2 + kMeasured + 1);
  }
  emulator::runtime.cost = {1, 5, 5};
  used.clear();
  cuda::Stream next(0);
  multiply(next, 8);
  EXPECT_EQ(used, (std::vector<std::uint64_t>{1}));
}

TEST_F(DeviceRuntime, AlgorithmsOfThePlainProductAreTriedWithABias) {
  emulator::runtime.unproposed = 2;
  cuda::Stream stream(0);
  multiply(stream, 8, 0, true);
  EXPECT_EQ(emulator::runtime.algorithms.back(), 1u);
  emulator::runtime.algorithms.clear();
  multiply(stream, 8, 0, true);
  EXPECT_EQ(emulator::runtime.algorithms, (std::vector<std::uint64_t>{1}));
}

TEST_F(DeviceRuntime, StreamsThatMeasureAtOnceAgree) {
  cuda::Stream one(0), other(0);
  multiply(one, 4), multiply(other, 4);  // both have read the file
  multiply(one, 8);
  emulator::runtime.cost = {1, 5, 5};
  multiply(other, 8);
  EXPECT_EQ(emulator::runtime.algorithms.back(), 1u);
}

TEST_F(DeviceRuntime, BrokenLinesAndForeignAlgorithmsAreMeasuredAgain) {
  {
    cuda::Stream stream(0);
    multiply(stream, 8);
  }
  const std::string line = text();
  for (const std::string& content :
       {line.substr(0, line.size() / 2), std::string("x = y\n"),
        line.substr(0, line.find(" = ") + 3) + std::string(128, 'f') + "\n"}) {
    std::ofstream(file()) << content;
    emulator::runtime.algorithms.clear();
    cuda::Stream stream(0);
    multiply(stream, 8);
    EXPECT_EQ(emulator::runtime.algorithms.size(), kMeasured + 1) << content;
  }
}

TEST_F(DeviceRuntime, RefusedAlgorithmsAreNotChosen) {
  emulator::runtime.cost = {4, 0, 3};
  cuda::Stream stream(0);
  multiply(stream, 8);
  EXPECT_EQ(emulator::runtime.algorithms.back(), 2u);
}

TEST_F(DeviceRuntime, NothingIsMeasuredWhileAGraphIsCapturedOrWithoutMemory) {
  cuda::Stream stream(0);
  multiply(stream, 4);
  auto& used = emulator::runtime.algorithms;
  used.clear();
  emulator::runtime.capturing = true;
  multiply(stream, 8);
  EXPECT_EQ(used, (std::vector<std::uint64_t>{0}));
  emulator::runtime.capturing = false;
  used.clear();
  emulator::runtime.free_bytes = 1;
  multiply(stream, 12, 1);
  multiply(stream, 12, 1);
  EXPECT_EQ(used, (std::vector<std::uint64_t>{0, 0}));
  cuda::Choices ways(stream, "ways");
  const auto large = [&] { return device::allocate(stream, 100), true; };
  EXPECT_EQ(ways.fastest("a", {[] { return true; }, large}), 0);
  emulator::runtime.free_bytes = 1000;
  EXPECT_EQ(ways.fastest("a", {[] { return false; }, large}), 0) << "as before in this run";
  cuda::Choices next(stream, "ways");
  EXPECT_EQ(next.fastest("a", {[] { return false; }, large}), 1) << "but not in the next one";
}

TEST_F(DeviceRuntime, WorkIsRunThenRecordedThenReplayed) {
  cuda::Stream stream(0);
  Buffer<float> x("x", Values{1}), sum("sum", 1);
  sum.assign({0});
  device::Replay replay;
  int runs = 0;
  for (int i = 1; i <= 4; ++i) {
    replay.run(stream, [&] {
      ++runs;
      kernels::copy(stream, kernels::CopyArgs<float>{.n = 1, .x = x, .y = sum, .accumulate = true});
    });
    EXPECT_EQ(sum.values()[0], i);
    EXPECT_EQ(replay.recorded(), i > 1);
  }
  EXPECT_EQ(runs, 2);
}

TEST_F(DeviceRuntime, RecordedWorkMayNotWaitOrAllocate) {
  cuda::Stream stream(0);
  float host = 0;
  Buffer<float> x("x", Values{1});
  const auto memory = device::allocate_host(stream, 4);
  const std::vector<std::function<void()>> illegal{
      [&] { device::download(stream, &host, static_cast<float*>(x), 4); },
      [&] { device::download(stream, memory.get(), static_cast<float*>(x), 4); },
      [&] { device::allocate(stream, 4); },
      [&] { device::allocate_host(stream, 4); },
  };
  for (const auto& work : illegal) {
    device::Replay replay;
    replay.run(stream, work);
    EXPECT_THROW(replay.run(stream, work), std::logic_error);
    EXPECT_FALSE(stream.capturing());
  }
}

TEST_F(DeviceRuntime, WithoutAFileRanksTakeTheFirstProposal) {
  setenv("XDG_CACHE_HOME", "/proc/no/such/folder", 1);
  cuda::Stream stream(0);
  multiply(stream, 8);
  EXPECT_EQ(emulator::runtime.algorithms.back(), 0u);
}

// Ways that take some milliseconds each, 0: cannot run; and how often they were started.
struct Ways {
  std::vector<float> cost;
  std::vector<int> runs = std::vector<int>(2);

  int fastest(cuda::Choices& choices, const std::string& key) {
    const auto way = [&](int i) {
      return [this, i] { return ++runs[i], emulator::runtime.clock += cost[i], cost[i] > 0; };
    };
    return choices.fastest(key, {way(0), way(1)});
  }
};

TEST_F(DeviceRuntime, FastestWayIsMeasuredOnceAndKept) {
  cuda::Stream stream(0);
  cuda::Choices choices(stream, "ways"), other(stream, "ways");
  Ways ways{{2, 1}};
  EXPECT_EQ(ways.fastest(choices, "a"), 1);
  EXPECT_EQ(ways.runs, (std::vector{3, 4}));
  EXPECT_EQ(ways.fastest(choices, "a"), 1);
  EXPECT_EQ(ways.runs, (std::vector{3, 4}));
  ways.cost = {1, 2};
  EXPECT_EQ(ways.fastest(choices, "b"), 0);
  EXPECT_EQ(ways.fastest(other, "a"), 1);  // both had read the file: what it says counts
  cuda::Choices later(stream, "ways");
  ways.runs = {0, 0};
  EXPECT_EQ(ways.fastest(later, "a"), 1);
  EXPECT_EQ(ways.runs, (std::vector{0, 0}));
}

TEST_F(DeviceRuntime, StoredAlgorithmsThatAreNotAcceptedArePassedOver) {
  const std::filesystem::path path = folder_ / "algorithms";
  const cuda::Algorithm refused{1}, second{2}, third{3};
  const auto accepts = [&](const cuda::Algorithm& a) { return a != refused; };
  cuda::AlgorithmFile file(path), other(path);
  EXPECT_FALSE(file.find("key"));
  EXPECT_EQ(file.add("key", refused), refused);
  EXPECT_EQ(file.add("key", second, accepts), second);
  EXPECT_EQ(other.add("key", third, accepts), second);  // all ranks take the same
  EXPECT_EQ(cuda::AlgorithmFile(path).find("key", accepts), second);
  EXPECT_EQ(cuda::AlgorithmFile(path).find("key"), refused);
}

TEST_F(DeviceRuntime, GpusAreToldApart) {
  emulator::runtime.bus_id = "0000:07:00.0";
  EXPECT_EQ(device::Device::unique_id(0), "0000:07:00.0/abababababababababababababababab");
}

TEST_F(DeviceRuntime, WaysThatCannotRunAreNotChosen) {
  cuda::Stream stream(0);
  cuda::Choices choices(stream, "ways");
  Ways ways{{1, 0}};
  EXPECT_EQ(ways.fastest(choices, "a"), 0);
  EXPECT_EQ(ways.runs, (std::vector{4, 1}));
}

TEST_F(DeviceRuntime, WaysAreNotMeasuredWhereRunsAreToHaveTheSameBits) {
  cuda::Stream stream(0, {.deterministic = true});
  cuda::Choices choices(stream, "ways");
  Ways ways{{2, 1}};
  EXPECT_EQ(ways.fastest(choices, "a"), 0);
  EXPECT_EQ(ways.runs, (std::vector{0, 0}));
}

TEST_F(DeviceRuntime, WaysAreNotMeasuredWhileAGraphIsCaptured) {
  cuda::Stream stream(0);
  cuda::Choices choices(stream, "ways");
  Ways ways{{2, 1}};
  emulator::runtime.capturing = true;
  EXPECT_EQ(ways.fastest(choices, "a"), 0);
  EXPECT_EQ(ways.runs, (std::vector{0, 0}));
  emulator::runtime.capturing = false;
  EXPECT_EQ(ways.fastest(choices, "a"), 1);
}

TEST_F(DeviceRuntime, CountsNoDevicesWithoutADriver) {
  EXPECT_EQ(cuda::usable_devices(), std::vector{0});
  EXPECT_EQ(cuda::why_no_device(), "");
  EXPECT_EQ(cuda::why_unusable(), "");
  emulator::runtime.devices = 0;
  EXPECT_EQ(cuda::usable_devices(), std::vector<int>{});
  emulator::runtime.driver = 0;
  EXPECT_EQ(cuda::why_no_device(), "this machine has no GPU driver");
  EXPECT_EQ(cuda::why_unusable(), "") << "there is no GPU";
  emulator::runtime.driver = 12040;
  EXPECT_EQ(cuda::why_no_device(), "the driver supports CUDA 12.4, but CUDA 13.0 is required");
  EXPECT_EQ(cuda::why_unusable(), cuda::why_no_device());
}

TEST_F(DeviceRuntime, LeavesOutDevicesThatItHasNoCodeFor) {
  const auto runs = [](const char* architectures) {
    std::vector<int> on;
    for (const int capability : {75, 80, 89, 90, 100, 103, 120})
      if (cuda::has_code_for(capability, architectures)) on.push_back(capability);
    return on;
  };
  EXPECT_EQ(runs("80 90a-real"), (std::vector{80, 89, 90, 100, 103, 120}));
  EXPECT_EQ(runs("90a"), (std::vector{90}));
  EXPECT_EQ(runs("80-real 100f"), (std::vector{80, 89, 100, 103}));
  EXPECT_EQ(runs("90"), (std::vector{90, 100, 103, 120}));
  EXPECT_EQ(runs("native").size(), 7u);
  emulator::runtime.devices = 3;
  emulator::runtime.capability = {75, 90, 120};
  EXPECT_EQ(cuda::usable_devices(), (std::vector{1, 2}));
  emulator::runtime.devices = 1;
  EXPECT_EQ(cuda::usable_devices(), std::vector<int>{});
  EXPECT_EQ(cuda::why_no_device(),
            "this machine's GPU has compute capability 7.5, for which this build has no code "
            "(CMAKE_CUDA_ARCHITECTURES: 80)");
  EXPECT_EQ(cuda::why_unusable(), cuda::why_no_device());
}

std::int64_t available() {  // where 501 bytes are too many
  try {
    device::allocate(device_stream(), 501);
  } catch (const device::OutOfMemory& e) {
    return e.available_bytes;
  }
  return -1;
}

TEST_F(DeviceRuntime, SaysHowMuchMemoryIsMissing) {
  emulator::runtime.free_bytes = 500;
  try {
    device::allocate(device_stream(), 501);
    ADD_FAILURE();
  } catch (const device::OutOfMemory& e) {
    EXPECT_EQ(available(), e.available_bytes);
    emulator::runtime.free_bytes -= 100;
    EXPECT_EQ(available(), e.available_bytes - 100);
    emulator::runtime.free_bytes += 100;
    const auto held = device::allocate(device_stream(), 100);
    EXPECT_EQ(available(), e.available_bytes + 100) << "the stand-in's free memory stays as it is";
  }
  for (auto* wanted : {+[](cuda::Stream& s) { return device::allocate(s, 501); },
                       +[](cuda::Stream& s) { return device::allocate_host(s, 501); }})
    try {
      wanted(device_stream());
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::environment);
      EXPECT_NE(std::string(e.what()).find("501"), std::string::npos) << e.what();
    }
}

TEST_F(DeviceRuntime, ScratchSaysHowMuchMemoryIsMissing) {
  Buffer<float> x("x", 32000), sum("sum", 8);
  emulator::runtime.free_bytes = 30;
  try {
    kernels::column_sum(device_stream(), kernels::ColumnSumArgs<float>{4000, 8, 8, x, sum});
    ADD_FAILURE();
  } catch (const device::OutOfMemory& e) {
    EXPECT_EQ(e.available_bytes, available());
    EXPECT_NE(std::string(e.what()).find("30 of 1030 bytes free"), std::string::npos) << e.what();
  }
}

std::string out_of_memory(const std::function<void()>& start) {
  try {
    start();
  } catch (const device::OutOfMemory& e) {
    return e.what();
  }
  return "";
}

TEST_F(DeviceRuntime, SaysWhoHoldsTheMemory) {
  const auto allocate = [] { device::allocate(device_stream(), 2000); };
  emulator::runtime.free_bytes = 1000, emulator::runtime.held_bytes = 100;
  const std::string small = out_of_memory(allocate);
  EXPECT_NE(small.find("1000 of 1100 bytes free; reduce train.micro_batch_size"), small.npos)
      << small;
  emulator::runtime.held_bytes = std::size_t{1} << 40;
  const std::string shared = out_of_memory(allocate);
  EXPECT_NE(shared.find("this program has allocated "), shared.npos) << shared;
  EXPECT_NE(shared.find("; other programs hold it"), shared.npos) << shared;
  emulator::runtime.full = true;
  const std::string full = out_of_memory([] { cuda::Stream(0, {}); });
  EXPECT_NE(full.find("device 0 has no memory"), full.npos) << full;
}

TEST_F(DeviceRuntime, AllocatesZerosAndCopies) {
  const auto memory = device::allocate(device_stream(), 100);
  std::vector<char> host(100, 7);
  device::download(device_stream(), host.data(), memory.get(), 100);
  EXPECT_EQ(host, std::vector<char>(100, 0));
  host[99] = 5;
  device::upload(device_stream(), memory.get(), host.data(), 100);
  device::download(device_stream(), host.data(), memory.get(), 100);
  EXPECT_EQ(host[99], 5);
}

}  // namespace
}  // namespace tfm::test
