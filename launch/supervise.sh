#!/usr/bin/env bash
# supervise.sh [--checkpoints DIR] [--tries N] [--wait SECONDS] COMMAND...
# Runs a job, for instance mpirun ... tfm-train cfg.yaml, and runs it again where that may help: after exit code 75 (a rank hung or died,
# a file system failed) and where a signal ended it. It waits before each start, twice as long each time, and gives up after N starts in a row
# (default: 3) without progress, with the last exit code. Progress is another name in DIR/latest; without DIR a start has none.
# A launcher that does not end after tfm's watchdog ended the job, because a host no longer answers, is ended, too.
# SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal is gone) and SIGUSR2 are passed on as SIGUSR2, on which tfm-train writes a checkpoint and stops,
# and end the supervision; SIGUSR1 is passed on as it is.
set -uo pipefail
for stream in 0 1 2; do [[ -e /proc/$$/fd/$stream ]] || eval "exec $stream<>/dev/null"; done  # a launcher would put a pipe of its own there

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
checkpoints="" tries=3 wait=5
while [[ ${1-} == -* ]]; do
  case $1 in
    --checkpoints | --tries | --wait) [[ $# -ge 2 ]] || { echo "supervise: $1 needs a value; see --help" >&2; exit 2; } ;;&
    --checkpoints) checkpoints=$2 ;;
    --tries) tries=$2 ;;
    --wait) wait=$2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "supervise: $1: unknown option" >&2; usage >&2; exit 2 ;;
  esac
  shift 2
done
for number in "--tries $tries" "--wait $wait"; do
  [[ ${number#* } =~ ^[0-9]{1,6}$ ]] || { echo "supervise: $number: expected a whole number" >&2; exit 2; }
done
tries=$((10#$tries)) wait=$((10#$wait))  # 08 is eight
[[ $# -gt 0 ]] || { echo "supervise: expected a command; see --help" >&2; exit 2; }

readonly grace=2   # seconds that a launcher has to end by itself
readonly again=2   # seconds after which a request to stop is passed on again: a launcher that has no ranks yet drops it
readonly usr2=140  # exit code of what SIGUSR2 ended, which had not begun to train
say() { echo "supervise: $*" >&2; }
latest() { [[ -n $checkpoints ]] && cat "$checkpoints/latest" 2>/dev/null; }

job="" stop="" ended=""
pass_on() { [[ -n $job ]] && kill "-$1" "$job" 2>/dev/null; }
trap 'stop=$SECONDS; pass_on USR2' TERM INT HUP USR2
trap 'pass_on USR1' USR1
trap : PIPE  # the reader of this text may go; the job stays
trap 'ended=yes' ALRM  # of listen

# Passes on what the job says, and notes that its watchdog has ended it.
listen() {
  local line
  trap '' PIPE
  while IFS= read -r line || [[ -n $line ]]; do  # the last one may have no end
    printf '%s\n' "$line" >&2
    # Some launchers tag lines with their rank.
    [[ $line == *"tfm: watchdog: "* ]] && kill -ALRM $$
  done
}

# Runs the job once; its exit code.
run_once() {
  ended=""
  set -m  # the job gets a process group of its own, and not the Ctrl-C of a terminal; all else stays in that of the terminal
  "$@" 2> >(listen) &
  job=$!
  set +m
  [[ -z $stop ]] || pass_on USR2  # asked for before there was a job
  local since=""
  while kill -0 "$job" 2>/dev/null; do
    sleep 0.2
    [[ -z $stop ]] || ((SECONDS - stop < again)) || { stop=$SECONDS; pass_on USR2; }
    [[ -n $ended ]] || continue
    since=${since:-$SECONDS}
    if ((SECONDS - since >= grace)); then
      say "the launcher has not ended $grace s after the job: ending it"
      kill -KILL -- "-$job" 2>/dev/null
      wait "$job" 2>/dev/null
      job=""
      return 75
    fi
  done
  wait "$job"
  local code=$?
  job=""
  return $code
}

without_progress=0
while :; do
  before=$(latest)
  run_once "$@"
  code=$?
  [[ -z $stop || $code != "$usr2" ]] || exit 0
  [[ $code == 75 || $code -gt 128 ]] && [[ -z $stop ]] || exit "$code"
  if [[ -n $checkpoints && $(latest) != "$before" ]]; then
    without_progress=0
  else
    ((++without_progress))
  fi
  if ((without_progress >= tries)); then
    say "exit code $code; giving up after $without_progress starts without progress"
    exit "$code"
  fi
  pause=$((wait * (1 << (without_progress > 0 ? without_progress - 1 : 0))))
  say "exit code $code; starting again in $pause s"
  for ((i = 0; i < 5 * pause; ++i)); do
    [[ -z $stop ]] || exit "$code"
    sleep 0.2
  done
done
