"""The share of a step that ranks wait for collectives, from the plans of this build: the record exposed-communication of docs/results.

usage: exposed_communication.py BIN
"""
import json
import pathlib
import subprocess
import sys

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
LLAMA = ["train.seq_len=8192", "train.micro_batch_size=1", "recompute=selective"]
COLUMNS = [("GPT-2 1.5B on 8", "gpt2_1.5b", 8, []), ("Llama 8B on 8", "llama_8b", 8, LLAMA), ("Llama 8B on 64", "llama_8b", 64, LLAMA)]
ROWS = [
    *((f"data, ZeRO {zero}", [f"parallel.zero={zero}"]) for zero in range(4)),
    ("data in 8 replicas, ZeRO 3", ["parallel.zero=3", "parallel.replicas=8"]),
    ("tensor 8 x data, sequence parallelism", ["parallel.tensor=8"]),
    ("tensor 8 x data, without it", ["parallel.tensor=8", "parallel.sequence=false"]),
    ("tensor 2 x context 2 x data", ["parallel.tensor=2", "parallel.context=2"]),
    ("pipeline 4 x data", ["parallel.pipeline=4"]),
    ("pipeline 4 x data, interleaved", ["parallel.pipeline=4", "parallel.schedule=interleaved"]),
    ("pipeline 4 x data, ZeRO 3", ["parallel.pipeline=4", "parallel.zero=3"]),
]


def cell(binaries, config, ranks, overrides):
    done = subprocess.run([binaries / "tfm-plan", CONFIGS / f"{config}.yaml", "--ranks", str(ranks), "--device", "h200", "--json",
                           "precision=bf16", "parallel.tensor=1", *overrides], capture_output=True, text=True)
    if done.returncode:
        return ""
    plan = json.loads(done.stdout)
    if not plan["fits"]:
        return "does not fit"
    limits, seconds = plan["seconds_by_limit"], plan["step_seconds"]
    share = [f"{100 * limits['communication'] / seconds:.1f} %"]
    if limits.get("bubble"):
        share.append(f"bubble {100 * limits['bubble'] / seconds:.1f} %")
    return ", ".join(share)


def main():
    binaries = pathlib.Path(sys.argv[1])
    print("| layout | " + " | ".join(name for name, *_ in COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for row, overrides in ROWS:
        print(f"| {row} | " + " | ".join(cell(binaries, config, ranks, [*given, *overrides]) for _, config, ranks, given in COLUMNS) + " |", flush=True)


main()
