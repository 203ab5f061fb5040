#pragma once
// What all programs share: arguments, the guarded main, and the mesh of a launch.
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "comm/mpi.h"
#include "config/config.h"
#include "core/host.h"
#include "launch/support/arguments.h"
#include "launch/support/cores.h"
#include "launch/support/foreign_launcher.h"
#include "launch/support/give_way.h"
#include "launch/support/guarded.h"
#include "tokenizer/tokenizer.h"

namespace tfm::launch {

inline constexpr std::int64_t kMostRanks = 1 << 20;  // the most ranks that are planned for

// Loads a configuration file with overrides. model.init may name a directory, which then gives the
// shape.
config::Config load_config(const std::string& path, const std::vector<std::string>& overrides);

// Error(retryable) if the file cannot be written.
void write_text(const std::string& path, const std::string& text);

// The ranks of this launch. Without a launcher no MPI is started.
struct Launch {
  std::optional<comm::MpiSession> session;
  int ranks = 1;
  RankCores cores;
  std::optional<ForeignLauncher> foreign;
  // Collective. `check`: Error(environment) if the launcher is another MPI's or ranks run different
  // programs, and rank 0 warns of a binding that leaves cores idle; without it the caller checks
  // all three. `timeout`: seconds that ranks wait for each other at the start; 0:
  // comm::kStartTimeout.
  explicit Launch(bool check = true, double timeout = 0);
  // Collective. Called if every rank will compute on its GPU: binds this rank near its own, if
  // binding is left to this program.
  void take_cores_near_gpus();
  int rank() const { return session ? session->rank() : 0; }
  int threads() const { return cores.threads; }  // of this rank
  int local_rank() const { return session ? session->local_rank() : 0; }
  int ranks_per_node() const { return session ? session->ranks_per_node() : 1; }
  // Collective: the values of all ranks.
  std::vector<std::string> gather(const std::string& text) const;
  template <comm::Packable T>
  std::vector<T> gather(const T& mine) const {
    return comm::unpack_each<T>(gather(comm::pack(mine)));
  }
  // Collective: the value of rank 0.
  template <class T>
  T broadcast(const T& value) const {
    return gather(rank() == 0 ? value : T{}).front();
  }
  // Collective, before the first use of `config`. Error(environment) if ranks compute with
  // different kernels; Error(usage) with the first key that differs if their configurations do.
  void check_same(const config::Config& config) const;
  comm::Mesh mesh(comm::Layout layout) const;
  // Collective: inference::verified_path(), under a watchdog.
  std::string verified_path(const std::string& path) const;
  // The device of `config`; `auto` is the CPU unless choose_device() has resolved it.
  // Error(environment) if the device is missing.
  device::Device device(const config::Config& config) const;
  // Collective: the context on the device that choose_device() chooses.
  comm::RankContext rank_context(const config::Config& config);

 private:
  void take_cores_near(const std::string& gpu);
  const int cores_at_start_;
  NodeCpus node_;
  std::optional<GiveWay> give_way_;
};

// Error(input) where the model of `dir` was trained with another tokenizer than the one that is
// found for it; a warning where the command line names it.
void check_tokenizer(const Arguments& args, const std::string& dir,
                     const tokenizer::Tokenizer& tokenizer, const config::DataConfig& data);

}  // namespace tfm::launch
