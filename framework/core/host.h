#pragma once
#include <initializer_list>
#include <optional>
#include <string>

namespace tfm {

std::string host_name();
std::string boot_id();     // of the kernel; empty if unknown
std::string machine_id();  // name and boot id, in one word: machines may have equal names

// Whether a launcher (mpirun, mpiexec, srun) started this process as a rank of an MPI job. A
// program that was started alone does not need MPI.
bool launched_by_mpi();
// Where launchers put a process's rank in the job: Open MPI, PMIx, Hydra and Slurm, MVAPICH2.
inline constexpr std::initializer_list<const char*> kRankVariables = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"};
struct LauncherVariable {
  std::string name, text;
};
// What the launcher says of this process's rank and of the number of ranks, if it does.
std::optional<LauncherVariable> launcher_rank(), launcher_ranks();
// Number of processes that the launcher started; 1 if it does not tell.
int ranks_of_launch();
// Rank in the job, also before MPI_Init; 0 if unknown or started alone.
int rank_of_launch();

// Makes the kernel kill this rank when its parent, the MPI launcher, dies in whatever way. Does
// nothing without a launcher.
void die_with_parent();

// Whether a signal or a debugger has stopped this process.
bool process_stopped(int pid);

}  // namespace tfm
