#!/usr/bin/env bash
# run.sh [--all] [ARGUMENTS OF CMAKE]: installs what is needed, builds everything and runs the tests; with --all also those that repeat
# them on further layouts.
set -euo pipefail
unset CDPATH
cd "$(dirname "$0")/.."
preset=cpu
if [ "${1:-}" = --all ]; then preset=all; shift; fi
launch/setup.sh --tests
cmake --preset cpu -DTFM_TESTS=ON "$@"
cmake --build --preset cpu -j "$(nproc)"
ctest --preset "$preset" -j $(($(nproc) + 2))  # some wait more than they compute
