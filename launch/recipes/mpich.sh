#!/usr/bin/env bash
# mpich.sh HOSTFILE RANKS CONFIG CHECKPOINTS [section.key=value ...]: trains on the hosts of a hostfile, with MPICH (Hydra) and ssh, and programs
# that were built with MPICH. Every host has the same programs on its PATH and the same folders: this one, the data, and CHECKPOINTS on a
# shared file system. Name the network that all hosts share where there are several: export HYDRA_IFACE=eth0
set -euo pipefail
for stream in 0 1 2; do [[ -e /proc/$$/fd/$stream ]] || eval "exec $stream<>/dev/null"; done  # a launcher would put a pipe of its own there
usage() { sed -n '2,4s/^# //p' "$0"; }
if [[ ${1-} == -h || ${1-} == --help ]]; then usage; exit 0; fi
if [[ $# -lt 4 ]]; then usage >&2; exit 2; fi
hostfile=$1 ranks=$2 config=$3 checkpoints=$4
shift 4
# Open MPI's `node1 slots=8` is node1:8 here; a name alone is one slot.
hosts=$(awk '
  { line = $0; sub(/#.*/, "") }
  NF {
    known = $1 ~ /^[^:=]+(:[1-9][0-9]*)?$/
    host = $1 ~ /:/ ? $1 : $1 ":1"
    for (i = 2; i <= NF; ++i) {
      if ($i ~ /^slots=[1-9][0-9]*$/ && $1 !~ /:/) host = $1 ":" substr($i, 7)
      else if ($i !~ /^max[-_]slots=[0-9]+$/) known = 0
    }
    if (!known) {
      error = ":" FNR ": expected NAME slots=N, found: " line
      exit
    }
    hosts = hosts (hosts ? "," : "") host
  }
  END {
    if (!error && !hosts) error = ": no hosts"
    if (error) { print "mpich.sh: " FILENAME error > "/dev/stderr"; exit 2 }
    print hosts
  }' "$hostfile")
job=(mpiexec -hosts "$hosts" -n "$ranks")
stopped=""
trap 'stopped=yes' TERM INT HUP USR2
"${job[@]}" tfm-doctor ${DOCTOR_OPTIONS-} "$config" checkpoint.dir="$checkpoints" "$@"
[[ -z $stopped ]] || exit 0
# mpiexec would die of SIGUSR2, and where a signal ended a rank it ends with that signal's number, not 128 more.
as_others='stop() { trap : USR2; touch "$0/STOP"; }
trap stop USR2; trap : USR1
"$@" & while kill -0 $! 2>/dev/null; do wait $!; done
wait $!; code=$?
exit $((code > 5 && code < 65 ? code + 128 : code))'
exec "$(dirname "$0")/../supervise.sh" --checkpoints "$checkpoints" bash -c "$as_others" "$checkpoints" \
  "${job[@]}" tfm-train "$config" checkpoint.dir="$checkpoints" "$@"
