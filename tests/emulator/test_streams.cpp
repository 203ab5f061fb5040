// What the stand-in of CUDA's streams, captures and memory allows, and scratch memory that is lent
// to a stream.
#include "device/cuda/scratch.h"
#include "device/memory.h"
#include "device_case.h"
#include "fake_runtime.h"
#include "kernels/elementwise.h"

namespace tfm::test {
namespace {

class Streams : public testing::Test {
 protected:
  Streams() { emulator::runtime = {}; }
  ~Streams() override { emulator::runtime = {}; }
  static void fill(cuda::Stream& s, float* p) {
    kernels::fill(s, kernels::FillArgs<float>{1, 5, p});
  }
};

TEST_F(Streams, LateWorkIsDoneWhenSomebodyWaits) {
  emulator::runtime.late = true;
  cuda::Stream stream(0);
  const auto device = device::allocate(stream, 4), host = device::allocate_host(stream, 4);
  auto* x = reinterpret_cast<float*>(host.get());
  *x = 1;
  device::upload_async(stream, device.get(), x, 4);
  *x = 2;  // too soon
  float got = 0;
  device::download(stream, &got, device.get(), 4);
  EXPECT_EQ(got, 2);
  device::download_async(stream, x, device.get(), 4);
  *x = 3;
  EXPECT_EQ(*x, 3);
  device::wait(stream);
  EXPECT_EQ(*x, 2);
}

TEST_F(Streams, TheHostCannotTouchTheDevicesMemory) {
  emulator::runtime.late = true;
  cuda::Stream stream(0);
  const auto device = device::allocate(stream, 4);
  EXPECT_DEATH(*reinterpret_cast<volatile float*>(device.get()) = 1, "");
  fill(stream, reinterpret_cast<float*>(device.get()));
  EXPECT_DEATH(EXPECT_EQ(*reinterpret_cast<volatile float*>(device.get()), 5), "");
  float got = 0;
  device::download(stream, &got, device.get(), 4);
  EXPECT_EQ(got, 5);
}

// Two streams, an event of each, and a capture of the first.
class Captures : public Streams {
 protected:
  Captures() {
    EXPECT_EQ(cudaEventCreate(&fork_), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&join_), cudaSuccess);
    EXPECT_EQ(cudaStreamBeginCapture(a_.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  ~Captures() override {
    cudaEventDestroy(fork_);
    cudaEventDestroy(join_);
  }
  void fork() {
    EXPECT_EQ(cudaEventRecord(fork_, a_.get()), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(b_.get(), fork_, 0), cudaSuccess);
  }
  void join() {
    EXPECT_EQ(cudaEventRecord(join_, b_.get()), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(a_.get(), join_, 0), cudaSuccess);
  }
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(a_.get(), &graph);
    cudaGraphDestroy(graph);
    return status;
  }

  cuda::Stream a_{0}, b_{0};
  Buffer<float> x_{"x", 1};
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
};

TEST_F(Captures, MayForkAndJoin) {
  fork();
  fill(b_, x_);
  join();
  EXPECT_EQ(end(), cudaSuccess);
}
TEST_F(Captures, MustJoinWhatTheyFork) {
  fork();
  fill(b_, x_);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
}
TEST_F(Captures, MustJoinAllOfIt) {
  fork();
  join();
  fill(b_, x_);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
}
TEST_F(Captures, HoldWorkOfTheirStreamsAlone) {
  EXPECT_THROW(fill(b_, x_), std::logic_error);
  EXPECT_EQ(end(), cudaSuccess);
}
TEST_F(Captures, DoNotWaitForWhatIsOutside) {
  EXPECT_EQ(cudaStreamWaitEvent(a_.get(), join_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(Streams, ScratchIsOfWhatIsLentWhereItFits) {
  cuda::Stream stream(0);
  const auto memory = device::allocate(stream, 3 * 256 + 64);
  const long before = emulator::runtime.scratch_allocations;
  {
    device::set_scratch(
        stream, {memory.get() + 64, 3 * 256});  // two pieces after the first multiple of 256
    const cuda::Scratch<float> first(stream, 1);
    EXPECT_EQ(reinterpret_cast<std::byte*>(static_cast<float*>(first)), memory.get() + 256);
    for (int again = 0; again < 2; ++again) {
      const cuda::Scratch<float> second(stream, 64);
      EXPECT_EQ(second - first, 64);
    }
    EXPECT_EQ(emulator::runtime.scratch_allocations, before);
    const cuda::Scratch<float> large(stream, 65);
    EXPECT_EQ(emulator::runtime.scratch_allocations, before + 1);
  }
  device::set_scratch(stream, {});
  const cuda::Scratch<float> after(stream, 1);
  EXPECT_EQ(emulator::runtime.scratch_allocations, before + 2);
}

}  // namespace
}  // namespace tfm::test
