#!/usr/bin/env bash
# mpirun.sh RANKS PROGRAM [ARGS...]: starts the program on this machine, also as root and on fewer cores than ranks.
set -euo pipefail
ranks=$1; shift
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=${OMPI_MCA_btl:-^tcp}  # version 5 complains of networks that it does not need here
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
  exec mpirun --oversubscribe --bind-to none -np "$ranks" "$@"
fi
exec mpirun -np "$ranks" "$@"
