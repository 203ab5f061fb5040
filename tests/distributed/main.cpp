// Runs the distributed tests on every rank of a job. Rank 0 prints; the others print their failures
// only. The exit code is non-zero if any rank failed. `--hang=N`: ranks wait for rank N, which
// never comes; `--die=N`: rank N leaves without a word; `--fail=N`: its library of collectives
// fails; `--hang-message=N`, `--die-message=N`: the same between two stages of a pipeline;
// `--hang-ahead=N`: while its next step is under way on a device of the emulator.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "job.h"

namespace tfm::test {
namespace {

const comm::MpiSession* session = nullptr;
std::map<std::string, comm::Mesh> meshes;  // by layout

class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    test_ = std::string(info.test_suite_name()) + "." + info.name();
  }
  void OnTestPartResult(const testing::TestPartResult& r) override {
    if (!r.failed()) return;
    std::cerr << "rank " << job().rank() << ": " << test_ << ": "
              << (r.file_name() ? r.file_name() : "") << ":" << r.line_number() << ": "
              << r.message() << std::endl;
  }

  std::string test_;
};

int run_tests() {
  if (job().rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const comm::Mesh mesh = tfm::comm::make_mesh(job(), {job().size(), 1});
  const comm::Watchdog watchdog(mesh, 120);
  std::int32_t failed = RUN_ALL_TESTS();
  mesh.world().all_reduce({&failed, DType::i32, {1}}, comm::Collective::all_reduce_max);
  meshes.clear();
  return failed;
}

}  // namespace

const comm::MpiSession& job() { return *session; }

const comm::Mesh& mesh_of(comm::Layout layout) {
  const auto [at, fresh] = meshes.try_emplace(layout.str());
  if (fresh) at->second = comm::make_mesh(job(), layout);
  return at->second;
}

std::vector<comm::Layout> layouts() {
  std::vector<comm::Layout> all;
  for (int data = 1; data <= job().size(); ++data)
    if (job().size() % data == 0) all.push_back({data, job().size() / data});
  return all;
}

}  // namespace tfm::test

int main(int argc, char** argv) {
  const tfm::comm::MpiSession session;
  tfm::test::session = &session;
  testing::InitGoogleTest(&argc, argv);
  const std::string option = argc > 1 ? argv[1] : "";
  const auto equals = option.find('=');
  if (equals == option.npos) return tfm::test::run_tests();
  const std::string how = option.substr(2, equals - 2);
  tfm::comm::Layout::Sizes sizes{.data = session.size()};
  if (tfm::test::in_messages(how)) sizes.data /= sizes.pipeline = 2;
  const tfm::comm::Mesh mesh = tfm::comm::make_mesh(session, sizes);
  tfm::comm::Watchdog watchdog(mesh, 60);
  watchdog.heartbeat(7);
  tfm::test::misbehave(mesh, watchdog, how, std::stoi(option.substr(equals + 1)));
}
