#include "core/host.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace tfm {
namespace {

std::optional<LauncherVariable> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name); text && *text) return LauncherVariable{name, text};
  return {};
}

}  // namespace

std::string host_name() {
  char text[256] = {};
  ::gethostname(text, sizeof text - 1);
  return text;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string machine_id() { return host_name() + "/" + boot_id(); }

bool launched_by_mpi() {
  return first_set(
             {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
      .has_value();
}

std::optional<LauncherVariable> launcher_rank() {
  if (!launched_by_mpi()) return {};  // a rank that was left behind in the environment
  return first_set(kRankVariables);
}

std::optional<LauncherVariable> launcher_ranks() {
  if (auto ranks = first_set({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}))
    return ranks;
  // Tasks of a Slurm step. A batch script runs outside of any step, as one process; of a step with
  // a terminal (srun --pty) the first task alone has the terminal, and starts what is typed there.
  if (!std::getenv("SLURM_STEP_ID") || std::getenv("SLURM_PTY_PORT")) return {};
  return first_set({"SLURM_STEP_NUM_TASKS"});
}

int ranks_of_launch() {
  const auto ranks = launcher_ranks();
  return ranks ? std::atoi(ranks->text.c_str()) : 1;
}

int rank_of_launch() {
  const auto rank = launcher_rank();
  return rank ? std::atoi(rank->text.c_str()) : 0;
}

void die_with_parent() {
  if (!launched_by_mpi()) return;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::raise(SIGKILL);  // it died in between
}

bool process_stopped(int pid) {  // proc(5): field 3 of stat, after the name in parentheses
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

}  // namespace tfm
