#!/usr/bin/env bash
# Installs what is needed, builds everything and runs all tests. Arguments are further ones of cmake.
set -euo pipefail
unset CDPATH
cd "$(dirname "$0")/.."
launch/setup.sh --tests
cmake --preset cpu -DTFM_TESTS=ON "$@"
cmake --build --preset cpu -j "$(nproc)"
ctest --preset cpu -j "$(nproc)"
