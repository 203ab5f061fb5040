#!/usr/bin/env bash
# openmpi.sh HOSTFILE RANKS CONFIG CHECKPOINTS [section.key=value ...]: trains on the hosts of a hostfile, with Open MPI and ssh.
# Every host has the same programs on its PATH and the same folders: this one, the data, and CHECKPOINTS on a shared file system. Name the
# network that all hosts share where there are several: export OMPI_MCA_btl_tcp_if_include=10.0.0.0/8 OMPI_MCA_oob_tcp_if_include=10.0.0.0/8
set -euo pipefail
for stream in 0 1 2; do [[ -e /proc/$$/fd/$stream ]] || eval "exec $stream<>/dev/null"; done  # a launcher would put a pipe of its own there
usage() { sed -n '2,4s/^# //p' "$0"; }
if [[ ${1-} == -h || ${1-} == --help ]]; then usage; exit 0; fi
if [[ $# -lt 4 ]]; then usage >&2; exit 2; fi
hostfile=$1 ranks=$2 config=$3 checkpoints=$4
shift 4
job=(mpirun --hostfile "$hostfile" --map-by slot -np "$ranks")
stopped=""
trap 'stopped=yes' TERM INT HUP USR2
"${job[@]}" tfm-doctor ${DOCTOR_OPTIONS-} "$config" checkpoint.dir="$checkpoints" "$@"
[[ -z $stopped ]] || exit 0
exec "$(dirname "$0")/../supervise.sh" --checkpoints "$checkpoints" "${job[@]}" tfm-train "$config" checkpoint.dir="$checkpoints" "$@"
