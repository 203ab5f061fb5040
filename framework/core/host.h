#pragma once
#include <string>

namespace tfm {

std::string host_name();  // of this machine

// True where a launcher (mpirun, mpiexec, srun) has started this process as one of a job's ranks; a
// program that was started alone needs no MPI.
bool launched_by_mpirun();
// The rank in such a job, before MPI is started; 0 for a program that was started alone.
int rank_of_launch();

}  // namespace tfm
