#pragma once
#include <string>

namespace tfm {

std::string host_name();
std::string boot_id();  // kernel boot id; distinguishes machines of the same name, empty if unknown

// Whether a launcher (mpirun, mpiexec, srun) started this process as a rank of an MPI job. A
// program that was started alone does not need MPI.
bool launched_by_mpi();
// Number of processes that the launcher started; 1 if it does not tell.
int ranks_of_launch();
// Rank in the job, also before MPI_Init; 0 if unknown or started alone.
int rank_of_launch();

// Whether a signal or a debugger has stopped this process.
bool process_stopped(int pid);

}  // namespace tfm
