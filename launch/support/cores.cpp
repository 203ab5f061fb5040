#include "launch/support/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/host.h"
#include "launch/support/control_group.h"

extern char** environ;

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCpus = 16384;
constexpr int kThreadsPerCore = 64;  // more are taken for a mistake
using CpuMask = std::array<cpu_set_t, kMostCpus / CPU_SETSIZE>;

Cpus cpus_of_process(pid_t pid) {
  CpuMask mask{};
  Cpus cpus;
  if (sched_getaffinity(pid, sizeof mask, mask.data()) != 0) return cpus;
  for (int c = 0; c < kMostCpus; ++c)
    if (CPU_ISSET_S(c, sizeof mask, mask.data())) cpus.push_back(c);
  return cpus;
}

bool bind_to(const Cpus& cpus) {
  CpuMask mask{};
  for (int c : cpus) CPU_SET_S(c, sizeof mask, mask.data());
  return sched_setaffinity(0, sizeof mask, mask.data()) == 0;
}

pid_t parent_of(pid_t pid) {
  const std::string status = text_of("/proc/" + std::to_string(pid) + "/status");
  const auto at = status.find("\nPPid:");
  return at == std::string::npos ? 0 : std::atoi(status.c_str() + at + 6);
}

std::vector<std::string> words_of(pid_t pid) {
  std::istringstream text(text_of("/proc/" + std::to_string(pid) + "/cmdline"));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

// The process that restart_on_share() started again, and its launcher. Children have other ids.
constexpr const char* kRestarted = "TFM_RESTARTED_BY";
pid_t launcher_before_restart() {
  const char* text = std::getenv(kRestarted);
  std::istringstream words(text ? text : "");
  pid_t process = 0, launcher = 0;
  return words >> process >> launcher && process == getpid() ? launcher : 0;
}

// The launcher binds a rank between fork and exec: the nearest ancestor with other cores is the
// launcher, and has all that the job may use. 0: none has.
pid_t binding_launcher() {
  if (const pid_t known = launcher_before_restart(); known != 0) return known;
  const Cpus own = cpus_of_process(0);
  for (pid_t pid = getppid(); pid > 1; pid = parent_of(pid))
    if (const Cpus cpus = cpus_of_process(pid); !cpus.empty() && cpus != own) return pid;
  return 0;
}

bool sets_cores_per_rank(std::string policy) {  // "slot:PE=2"
  for (char& c : policy) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return policy.find("pe=") != std::string::npos || policy.find("pe-list=") != std::string::npos;
}

bool bound_by_default_of_version_5(const std::map<std::string, std::string>& environment,
                                   const std::vector<std::string>& launcher) {
  if (launcher.empty() || fs::path(launcher[0]).filename() != "prterun") return false;
  if (environment.count("PRTE_MCA_hwloc_default_binding_policy")) return false;
  const auto mapping = environment.find("PRTE_MCA_rmaps_default_mapping_policy");
  if (mapping != environment.end() && sets_cores_per_rank(mapping->second)) return false;
  for (std::size_t i = 1; i < launcher.size(); ++i) {
    const std::string& word = launcher[i];
    for (const char* asked : {"--bind-to", "--cpu-set", "--cpu-list", "--cpus-per-proc",
                              "--rankfile", "--rf", "hwloc_default_binding_policy"})
      if (word == asked) return false;
    if (word == "--map-by" && i + 1 < launcher.size() && sets_cores_per_rank(launcher[i + 1]))
      return false;
  }
  return true;
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> all;
  for (char** e = environ; *e; ++e)
    if (const char* equals = std::strchr(*e, '='))
      all[std::string(static_cast<const char*>(*e), equals)] = equals + 1;
  return all;
}

std::optional<int> threads_asked_for() {
  const char* omp = std::getenv("OMP_NUM_THREADS");
  const std::string_view text = omp ? omp : "";
  if (text.empty()) return std::nullopt;
  const int most = kThreadsPerCore * static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || (*end != 0 && *end != ',') || n < 1 || n > most)
    throw Error(ExitCode::environment,
                "OMP_NUM_THREADS is '" + std::string(text) +
                    "'; expected the number of threads of a rank, from 1 to " +
                    std::to_string(most) + ", or unset it: ranks then share out the node's cores");
  return n;
}

// Threads of a rank, and the least that it should have.
struct Threads {
  int own = 0, expected = 0;
};

std::string warning_of(const std::vector<Threads>& ranks) {
  int fewer = 0;
  Threads worst;
  for (const Threads& n : ranks) {
    if (n.own >= n.expected) continue;
    if (fewer++ == 0 || n.own < worst.own) worst = n;
  }
  if (fewer == 0) return "";
  return std::to_string(fewer) + " of " + std::to_string(ranks.size()) +
         " ranks are bound to fewer cores than their share of the node: " +
         std::to_string(worst.own) + " of " + std::to_string(worst.expected) +
         "; bind each rank to its share (Open MPI: mpirun --map-by slot:PE=" +
         std::to_string(worst.expected) + ", or no binding options)";
}

}  // namespace

int threads_on(const std::vector<Cpus>& ranks, int local_rank, std::optional<double> quota) {
  std::map<int, int> users;
  for (const Cpus& cpus : ranks)
    for (int c : cpus) ++users[c];
  double share = 0;
  for (int c : ranks[static_cast<std::size_t>(local_rank)]) share += 1.0 / users[c];
  if (quota) share = std::min(share, *quota / static_cast<double>(ranks.size()));
  return std::max(1, static_cast<int>(share + 1e-6));
}

bool bound_by_default(const std::map<std::string, std::string>& environment,
                      const std::vector<std::string>& launcher) {
  if (environment.count("PRTE_LAUNCHED"))
    return bound_by_default_of_version_5(environment, launcher);
  if (!environment.count("OMPI_MCA_orte_bound_at_launch")) return false;
  for (const char* asked : {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_list",
                            "OMPI_MCA_hwloc_base_cpu_set", "OMPI_MCA_hwloc_base_slot_list",
                            "OMPI_MCA_rmaps_rank_file_path", "OMPI_MCA_rmaps_base_cpus_per_rank",
                            "OMPI_MCA_orte_rankfile"})
    if (environment.count(asked)) return false;
  const auto mapping = environment.find("OMPI_MCA_rmaps_base_mapping_policy");
  return mapping == environment.end() || !sets_cores_per_rank(mapping->second);
}

NodeCpus cpus_of_node() {
  const std::map<std::string, std::string> variables = environment();
  if (!variables.count("OMPI_MCA_orte_bound_at_launch") && !variables.count("PRTE_LAUNCHED"))
    return {};
  const pid_t launcher = binding_launcher();
  if (launcher == 0) return {};
  return {cpus_of_process(launcher), bound_by_default(variables, words_of(launcher))};
}

void restart_on_share(char** argv) {
  if (!launched_by_mpi() || launcher_before_restart() != 0) return;
  const NodeCpus node = cpus_of_node();
  const auto number = [](const char* name) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : 0;
  };
  const int rank = number("OMPI_COMM_WORLD_LOCAL_RANK"),
            ranks = number("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!node.shared || rank < 0 || rank >= ranks) return;
  const Cpus share = share_cpus(
      topology_of_machine().get(), node.cpus,
      std::vector<std::string>(static_cast<std::size_t>(ranks)))[static_cast<std::size_t>(rank)];
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  const std::string text = std::to_string(getpid()) + " " + std::to_string(binding_launcher());
  if (unknown || share.size() <= cpus_of_process(0).size() || !bind_to(share)) return;
  ::setenv(kRestarted, text.c_str(), 1);
  ::execv(program.c_str(), argv);  // where it fails, teams sleep early and all else is the same
}

RankCores take_cores(const comm::MpiSession* session, const NodeCpus& node,
                     const std::string& gpu) {
  const int local = session ? session->local_rank() : 0,
            ranks = session ? session->ranks_per_node() : 1;
  const std::vector<std::string> gpus =
      session ? session->gather(gpu, comm::MpiSession::Scope::node) : std::vector{gpu};
  const bool bound = node.shared && bind_to(share_cpus(topology_of_machine().get(), node.cpus,
                                                       gpus)[static_cast<std::size_t>(local)]);
  const Cpus own = cpus_of_process(0);
  std::vector<Cpus> all{own};
  if (session) all = session->gather(own, comm::MpiSession::Scope::node);
  std::set<int> usable(node.cpus.begin(), node.cpus.end());
  for (const Cpus& cpus : all) usable.insert(cpus.begin(), cpus.end());
  const std::optional<int> asked = threads_asked_for();
  const std::optional<double> quota = cpu_quota_of_this_process();
  const std::vector<Cpus> fair(static_cast<std::size_t>(ranks), Cpus(usable.begin(), usable.end()));
  std::set<int> taken;
  for (const Cpus& cpus : all) taken.insert(cpus.begin(), cpus.end());
  RankCores cores{.threads = asked.value_or(threads_on(all, local, quota)),
                  .cpus = own,
                  .share = bound ? static_cast<int>(own.size()) : threads_on(fair, local, quota),
                  .together = threads_on({Cpus(taken.begin(), taken.end())}, 0, quota),
                  .ranks = ranks,
                  .oversubscribed = false,
                  .warning = {}};
  cores.oversubscribed = cores.threads > cores.together;
  if (!session) return cores;
  using Scope = comm::MpiSession::Scope;
  int threads = 0;  // of this node
  for (const int n : session->gather(cores.threads, Scope::node)) threads += n;
  const int oversubscribed = threads > cores.together;
  cores.oversubscribed = std::ranges::count(session->gather(oversubscribed, Scope::job), 1) > 0;
  const Threads mine{cores.threads, asked || bound ? 0 : cores.share};
  const auto everybody = session->gather(mine, Scope::job);
  if (session->rank() == 0) cores.warning = warning_of(everybody);
  return cores;
}

std::string cpu_model() {
  const std::string all = text_of("/proc/cpuinfo");
  const auto at = all.find("model name");
  if (at == std::string::npos) return "";
  const auto value = all.find(": ", at), end = all.find('\n', at);
  return value < end ? all.substr(value + 2, end - value - 2) : "";
}

int cores_at_hand() { return threads_on({cpus_of_process(0)}, 0, cpu_quota_of_this_process()); }

int threads_of_rank(int ranks_of_node) {
  const std::vector<Cpus> ranks(static_cast<std::size_t>(ranks_of_node), cpus_of_process(0));
  return threads_asked_for().value_or(threads_on(ranks, 0, cpu_quota_of_this_process()));
}

}  // namespace tfm::launch
