#include <unistd.h>

#include "../../distributed/job.h"
#include "comm/device_mesh.h"
#ifdef TFM_EMULATOR_RANKS
#include "ahead_engine.h"
#include "fake_nccl.h"
#include "find_device.h"
#endif

namespace tfm::test {
#ifdef TFM_EMULATOR_RANKS
namespace {

// `rank` launches the third step, and finishes no second one.
void hang_ahead(const comm::Mesh& mesh, comm::Watchdog& watchdog, int rank) {
  find_device();
  train::Engine e = poisoned_engine(mesh, "fp32", 0, "nccl");
  const PoisonedData data(4, {});
  int steps = 0;
  const auto hang = [&] {
    watchdog.set_timeout(1);
    watchdog.heartbeat(++steps);
    if (steps == 2 && mesh.rank() == rank) pause();
  };
  train_steps(e, data, 5, true, hang);
}

}  // namespace
#endif

void misbehave(const comm::Mesh& host, comm::Watchdog& watchdog, const std::string& how, int rank) {
#ifdef TFM_EMULATOR_RANKS
  if (how == "hang-ahead") return hang_ahead(host, watchdog, rank);
#endif
  device::Device device = device::Device::gpu(0, 1);
  comm::DeviceMeshOptions options{.backend = comm::Backend::nccl};
  if (in_messages(how)) options.channels = {{0, 1, 0}, {1, 0, 0}};
  const comm::Mesh mesh = comm::device_mesh(host, device, options);
  std::vector<float> data(1000);
  const auto memory = device.allocate(8000);
  const Tensor t{memory.get(), DType::f32, {1000}}, buffer{memory.get() + 4000, DType::f32, {1000}};
  const auto work = [&] {
    in_messages(how) ? exchange(mesh, t, buffer) : mesh.group(comm::kData).all_reduce(t);
    device::download(device.stream(), data.data(), t.data, t.bytes());
  };
  work();
  watchdog.set_timeout(1);
  if (host.rank() == rank && how.starts_with("die")) _exit(75);
#ifdef TFM_EMULATOR_RANKS
  if (host.rank() == rank && how == "fail") emulator::nccl.async_error = ncclRemoteError;
#endif
  if (host.rank() == rank) pause();
  work();
  pause();  // of a pipeline: those that did not wait for the rank
}

}  // namespace tfm::test
