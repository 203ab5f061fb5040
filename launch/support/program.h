#pragma once
// What all programs share: arguments, the guarded main, and the mesh of a launch.
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"
#include "comm/mpi.h"
#include "config/config.h"
#include "core/host.h"
#include "launch/support/cores.h"
#include "launch/support/give_way.h"

namespace tfm::launch {

inline constexpr std::int64_t kMostRanks = 1 << 20;  // the most ranks that are planned for

struct OptionSpec {
  std::string name;   // "--tokens"
  bool value = true;  // takes a value
};

// Options, `key=value` overrides and positional arguments; unknown options are Error(usage) with
// the nearest known one.
class Arguments {
 public:
  Arguments(int argc, char** argv, const std::vector<OptionSpec>& known);
  bool has(const std::string& option) const { return options_.count(option) > 0; }
  std::string get(const std::string& option, const std::string& fallback = {}) const;
  std::int64_t integer(const std::string& option, std::int64_t fallback, std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int32_t>::max()) const;
  double real(const std::string& option, double fallback) const;
  const std::vector<std::string>& positional() const { return positional_; }
  const std::vector<std::string>& overrides() const { return overrides_; }
  const std::string& only(const std::string& what) const;  // the single positional argument
  // On rank 0: Error(usage) if a file that is to be written at the end cannot be. Leaves no file
  // behind.
  void check_outputs(const std::vector<std::string>& options) const;

 private:
  std::map<std::string, std::string> options_;
  std::vector<std::string> positional_, overrides_;
};

// Loads a configuration file with overrides. model.init may name a directory, which then gives the
// shape.
config::Config load_config(const std::string& path, const std::vector<std::string>& overrides);

// What standard output carries: a log, without which the work is still done, or the results.
enum class Output : std::uint8_t { log, results };

// Which ranks of a launch do the work: all, or rank 0 alone if the program does not distribute it.
enum class Workers : std::uint8_t { all_ranks, first_rank };

// Runs `body` and turns an exception, or results that cannot be written, into a message and the
// contract's exit code, on all ranks. Handles --help and --version.
int guarded(int argc, char** argv, const std::string& help,
            const std::function<int(int, char**)>& body, Output output = Output::results,
            Workers workers = Workers::all_ranks);

// The ranks of this launch. Without a launcher no MPI is started.
struct Launch {
  std::optional<comm::MpiSession> session;
  int ranks = 1;
  RankCores cores;
  // Collective. `check`: Error(environment) if ranks run different programs, and rank 0 warns of a
  // binding that leaves cores idle; without it the caller checks both. `timeout`: seconds that
  // ranks wait for each other at the start; 0: comm::kStartTimeout.
  explicit Launch(bool check = true, double timeout = 0);
  // Collective. Called if every rank will compute on its GPU: binds this rank near its own, if
  // binding is left to this program.
  void take_cores_near_gpus();
  int threads() const { return cores.threads; }                    // of this rank
  std::vector<std::string> gather(const std::string& text) const;  // of all ranks; collective
  // Collective, before the first use of `config`. Error(environment) if ranks compute with
  // different kernels; Error(usage) with the first key that differs if their configurations do.
  void check_same(const config::Config& config) const;
  comm::Mesh mesh(comm::Layout layout) const;
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

}  // namespace tfm::launch
