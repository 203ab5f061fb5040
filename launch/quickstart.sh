#!/usr/bin/env bash
# Installs what is needed, builds tfm for the CPU, trains a small decoder on the project's own text with two ranks, and lets it
# write a sample. quickstart.sh [section.key=value ...]
set -euo pipefail
cd "$(dirname "$0")/.."
launch/setup.sh
cmake --preset cpu -DTFM_TESTS=OFF
cmake --build --preset cpu -j "$(nproc)"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
rm -rf runs/tiny_decoder
mpirun --oversubscribe --bind-to none -np 2 build/cpu/bin/tfm-train configs/tiny_decoder.yaml "$@"
echo
echo "--- a sample of 300 bytes:"
build/cpu/bin/tfm-generate runs/tiny_decoder/checkpoints --prompt "// The " --max-tokens 300 --temperature 0.7
