#include <unistd.h>

#include "../../distributed/job.h"
#include "comm/device_mesh.h"
#ifdef TFM_EMULATOR_RANKS
#include "fake_nccl.h"
#endif

namespace tfm::test {

void misbehave(const comm::Mesh& host, comm::Watchdog& watchdog, const std::string& how, int rank) {
  device::Device device = device::Device::gpu(0, 1);
  const comm::Mesh mesh = comm::device_mesh(host, device, {.backend = comm::Backend::nccl});
  std::vector<float> data(1000);
  const auto memory = device.allocate(4000);
  const Tensor t{memory.get(), DType::f32, {1000}};
  mesh.group(comm::kData).all_reduce(t);
  device::download(device.stream(), data.data(), t.data, t.bytes());
  watchdog.set_timeout(1);
  if (host.rank() == rank && how == "die") _exit(75);
#ifdef TFM_EMULATOR_RANKS
  if (host.rank() == rank && how == "fail") emulator::nccl.async_error = ncclRemoteError;
#endif
  if (host.rank() == rank) pause();
  mesh.group(comm::kData).all_reduce(t);
  device::download(device.stream(), data.data(), t.data, t.bytes());
}

}  // namespace tfm::test
