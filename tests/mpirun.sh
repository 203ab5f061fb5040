#!/usr/bin/env bash
# mpirun.sh RANKS PROGRAM [ARGS...]: starts the program on this machine, also as root and on fewer cores than ranks.
set -euo pipefail
ranks=$1; shift
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Networks are not needed here. Version 5 complains of them; version 4 looks for them for 0.4 s and sleeps a second when it closes ofi.
export OMPI_MCA_btl=${OMPI_MCA_btl:-^tcp,ofi} OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
  exec mpirun --oversubscribe --bind-to none -np "$ranks" "$@"
fi
exec mpirun -np "$ranks" "$@"
