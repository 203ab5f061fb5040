#!/usr/bin/env bash
# mpich.sh HOSTFILE RANKS CONFIG CHECKPOINTS [section.key=value ...]: trains on the hosts of a hostfile, with MPICH (Hydra) and ssh, and programs
# that were built with MPICH. Every host has the same programs on its PATH and the same folders: this one, the data, and CHECKPOINTS on a
# shared file system. Name the network that all hosts share where there are several: export HYDRA_IFACE=eth0
set -euo pipefail
hostfile=$1 ranks=$2 config=$3 checkpoints=$4
shift 4
hosts=$(sed -nE 's/#.*//; s/^ *([^ ]+) +slots=([0-9]+).*/\1:\2/p' "$hostfile" | paste -sd,)  # node1 slots=8 is node1:8 here
job=(mpiexec -hosts "$hosts" -n "$ranks")
"${job[@]}" tfm-doctor ${DOCTOR_OPTIONS-} "$config" checkpoint.dir="$checkpoints" "$@"
# mpiexec would die of SIGUSR2, and where a signal ended a rank it ends with that signal's number, not 128 more.
as_others='trap "touch \"$0/STOP\"" USR2
"$@" & while kill -0 $! 2>/dev/null; do wait $!; code=$?; done
exit $((code > 5 && code < 65 ? code + 128 : code))'
exec "$(dirname "$0")/../supervise.sh" --checkpoints "$checkpoints" bash -c "$as_others" "$checkpoints" \
  "${job[@]}" tfm-train "$config" checkpoint.dir="$checkpoints" "$@"
