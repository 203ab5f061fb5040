#include <unistd.h>

#include "job.h"

namespace tfm::test {

void misbehave(const comm::Mesh& mesh, comm::Watchdog& watchdog, const std::string& how, int rank) {
  std::vector<float> data(1000), sent(1000);
  const Tensor t{data.data(), DType::f32, {1000}}, buffer{sent.data(), DType::f32, {1000}};
  const auto work = [&] {
    in_messages(how) ? exchange(mesh, t, buffer) : mesh.group(comm::kData).all_reduce(t);
  };
  work();
  watchdog.set_timeout(1);
  if (mesh.rank() == rank && how.starts_with("die")) _exit(75);
  if (mesh.rank() == rank) pause();
  work();
  pause();  // of a pipeline: those that did not wait for the rank
}

}  // namespace tfm::test
