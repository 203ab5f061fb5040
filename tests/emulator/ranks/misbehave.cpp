#include <unistd.h>

#include "../../distributed/job.h"
#include "comm/device_mesh.h"
#ifdef TFM_EMULATOR_RANKS
#include "fake_nccl.h"
#endif

namespace tfm::test {

void misbehave(const comm::Mesh& host, comm::Watchdog& watchdog, const std::string& how, int rank) {
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
