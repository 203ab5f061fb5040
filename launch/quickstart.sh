#!/usr/bin/env bash
# Installs what is needed, builds what it uses for the CPU, trains an encoder-decoder on two ranks to read dates, and shows its answers for
# dates that it has not seen beside the truth. Exit code 1 where fewer than 95 % are right.
# usage: quickstart.sh [section.key=value ...]; BIN=FOLDER takes programs that are built.
set -euo pipefail
unset CDPATH
[ -z "${BIN:-}" ] || BIN=$(realpath "$BIN")
cd "$(dirname "$0")/.."
if [ -z "${BIN:-}" ]; then
  launch/setup.sh
  cmake --preset cpu -DTFM_TESTS=OFF
  cmake --build --preset cpu -j "$(nproc)" --target tfm-data tfm-train tfm-generate
  BIN=build/cpu/bin
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
data=data/quickstart run=runs/quickstart
rm -rf "$run" && mkdir -p "$data" "$run"  # a finished run would be resumed, with nothing left to do
awk -v dir="$data" -f launch/quickstart/make_data.awk
"$BIN/tfm-data" train-tokenizer --input "$data/train.en" --vocab-size 400 --special '<s>' '</s>' --output "$data/tokenizer.json"
mpirun --version | grep -q 'Open MPI' && anywhere=(--oversubscribe --bind-to none) || anywhere=()
mpirun "${anywhere[@]}" -np 2 "$BIN/tfm-train" configs/quickstart.yaml "$@"
"$BIN/tfm-generate" "$run/checkpoints" < "$data/test.en" > "$run/test.answers"
echo
launch/quickstart/show.sh "$data/test.en" "$run/test.answers" "$data/test.iso"
cat <<'E2'

What next:
  the other programs     cmake --build --preset cpu
  ask it yourself        echo "the day after the 31st of October, 2031" | build/cpu/bin/tfm-generate runs/quickstart/checkpoints
  now on your text       build/cpu/bin/tfm-train configs/tiny_decoder.yaml data.train.path=YOUR.txt data.validation.path=OTHER.txt
  now from Hugging Face  build/cpu/bin/tfm-train cfg.yaml model.init=HF_DIRECTORY
  now on 8 GPUs          mpirun -np 8 tfm-train cfg.yaml device=cuda precision=bf16    (a build with cmake --preset cuda)
E2
