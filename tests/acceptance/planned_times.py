"""Step times that tfm-plan predicts for this machine beside those that it takes.

usage: planned_times.py BIN [--steps 6] [--rounds 1] [--only SUBSTRING]

Twenty configurations of the three families, on one rank with all cores and on two ranks that share them. Rates are measured by
tfm-plan --measure right before each run, of which the median step counts. Of several rounds the shortest prediction and the shortest run
count, as what else the machine does makes either longer. Needs an idle machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DECODER = "family: decoder, vocab_size: 8000, max_seq_len: 1024, dropout: 0"
LLAMA = f"{DECODER}, position: rope, norm: rmsnorm, activation: swiglu, bias: false, tie_embeddings: false"
ENCODER = "family: encoder, vocab_size: 8000, max_seq_len: 512, dropout: 0"
SEQ2SEQ = "family: encoder_decoder, vocab_size: 8000, max_seq_len: 512, dropout: 0"
SMALL, MIDDLE, LARGE = "n_layers: 6, d_model: 256, n_heads: 4, d_ff: 1024", "n_layers: 6, d_model: 512, n_heads: 8, d_ff: 2048", "n_layers: 4, d_model: 1024, n_heads: 16, d_ff: 4096"
# Name, model, data, sequences, their length, ranks, overrides.
CASES = [
    ("gpt small", f"{DECODER}, {SMALL}", "tokens", 8, 256, 1, []),
    ("gpt middle", f"{DECODER}, {MIDDLE}", "tokens", 4, 256, 1, []),
    ("gpt large", f"{DECODER}, {LARGE}", "tokens", 4, 256, 1, []),
    ("gpt middle, long", f"{DECODER}, {MIDDLE}", "tokens", 2, 1024, 1, []),
    ("gpt large, bf16", f"{DECODER}, {LARGE}", "tokens", 4, 256, 1, ["precision=bf16"]),
    ("gpt middle, micro-batches", f"{DECODER}, {MIDDLE}", "tokens", 8, 256, 1, ["train.micro_batch_size=2"]),
    ("llama middle", f"{LLAMA}, {MIDDLE}", "tokens", 4, 256, 1, []),
    ("llama large, bf16", f"{LLAMA}, {LARGE}", "tokens", 4, 256, 1, ["precision=bf16"]),
    ("llama middle, recompute", f"{LLAMA}, {MIDDLE}", "tokens", 4, 512, 1, ["recompute=full"]),
    ("bert small", f"{ENCODER}, {SMALL}", "mlm", 16, 128, 1, []),
    ("bert middle", f"{ENCODER}, {MIDDLE}", "mlm", 8, 128, 1, []),
    ("bert large, bf16", f"{ENCODER}, {LARGE}", "mlm", 8, 128, 1, ["precision=bf16"]),
    ("transformer small", f"{SEQ2SEQ}, {SMALL}", "pairs", 32, 32, 1, []),
    ("transformer middle", f"{SEQ2SEQ}, {MIDDLE}", "pairs", 16, 64, 1, []),
    ("gpt middle, data 2", f"{DECODER}, {MIDDLE}", "tokens", 4, 256, 2, []),
    ("gpt large, data 2", f"{DECODER}, {LARGE}", "tokens", 4, 256, 2, []),
    ("gpt large, tensor 2", f"{DECODER}, {LARGE}", "tokens", 4, 256, 2, ["parallel.tensor=2"]),
    ("llama middle, ZeRO 1", f"{LLAMA}, {MIDDLE}", "tokens", 4, 256, 2, ["parallel.zero=1"]),
    ("bert middle, data 2", f"{ENCODER}, {MIDDLE}", "mlm", 8, 128, 2, []),
    ("transformer middle, tensor 2", f"{SEQ2SEQ}, {MIDDLE}", "pairs", 16, 64, 2, ["parallel.tensor=2"]),
]


def output(ranks, *command):
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    start = [ROOT / "mpirun.sh", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*start, *map(str, command)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")


def measure(bin_dir, ranks, steps, given):
    """Predicted and measured seconds of a step."""
    with open("plan.json", "w") as plan:
        subprocess.run([bin_dir / "tfm-plan", "cfg.yaml", "--ranks", str(ranks), "--device", "cpu", "--measure", "--json", *given], stdout=plan, check=True,
                       env={**os.environ, "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // ranks))})
    output(ranks, bin_dir / "tfm-bench", "step", "cfg.yaml", "--random-data", "--steps", steps, "--json", "step.json", *given)
    return [json.load(open(file))["step_seconds"] for file in ("plan.json", "step.json")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    bin_dir, errors = args.bin.resolve(), []
    print("| configuration | ranks | predicted | measured | error |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, model, data, sequences, length, ranks, overrides in CASES:
            if args.only not in name:
                continue
            given = [f"train.seq_len={length}", f"train.global_batch_size={sequences}", *overrides]
            pathlib.Path("cfg.yaml").write_text(f"model: {{{model}}}\ndata: {{train: {{type: {data}, path: none.bin}}}}\n")
            predicted, measured = map(min, zip(*(measure(bin_dir, ranks, args.steps, given) for _ in range(args.rounds))))
            errors.append(predicted / measured - 1)
            print(f"| {name} | {ranks} | {predicted:.3f} s | {measured:.3f} s | {100 * errors[-1]:+.0f} % |", flush=True)
    sizes = sorted(map(abs, errors))
    print(f"\nmedian error {100 * statistics.median(sizes):.1f} %, worst {100 * sizes[-1]:.1f} %, of {len(sizes)}")


main()
