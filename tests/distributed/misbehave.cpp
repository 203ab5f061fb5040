#include <unistd.h>

#include "job.h"

namespace tfm::test {

void misbehave(const comm::Mesh& mesh, comm::Watchdog& watchdog, const std::string& how, int rank) {
  std::vector<float> data(1000);
  const Tensor t{data.data(), DType::f32, {1000}};
  mesh.group(comm::kData).all_reduce(t);
  watchdog.set_timeout(1);
  if (mesh.rank() == rank && how == "die") _exit(75);
  if (mesh.rank() == rank) pause();
  mesh.group(comm::kData).all_reduce(t);
}

}  // namespace tfm::test
