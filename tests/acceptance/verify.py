#!/usr/bin/env python3
"""Runs tfm-verify on random configurations: families, layouts over all axes, ZeRO, recomputation, accumulation, precisions.

usage: verify.py BIN [--as-run] [--count 40] [--seed 1] [--ranks 8] [--device cuda] [--dir FOLDER]

Nothing is wrong with the programs, so every configuration must pass: one that does not is a false alarm. The table says how near
each came to its bounds (the largest error over its bound). Exit code 1 where there is a false alarm.
With --device cuda, ranks exchange tensors by NCCL or through the host; BIN is build/cpu/emulated (target emulated-verify) where
there is no GPU.
With --faults, BIN holds a tfm-verify built by tests/mutants/run.py: each bug of its room "as_run" (on a device: that kernels of CPUs
do not have, and those of "as_run_cuda") is switched on in turn, and tests/integration/test_as_run.py must fail in bf16 and in fp16.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys

import common

MUTANTS = common.ROOT / "tests/mutants"
HEADS = 8


def model_of(rng):
    family = rng.choice(["decoder", "decoder", "encoder", "encoder_decoder"])
    m = {"family": family, "vocab_size": rng.choice([97, 256, 301]), "d_model": rng.choice([64, 128]), "n_layers": rng.choice([1, 2, 3, 4]),
         "n_heads": HEADS, "d_ff": rng.choice([64, 192]), "bias": rng.random() < 0.6}
    m["norm"] = rng.choice(["layernorm", "rmsnorm"])
    m["norm_position"] = rng.choice(["pre", "pre", "post"])
    m["activation"] = rng.choice(["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"])
    m["position"] = rng.choice({"decoder": ["learned", "rope", "alibi", "sinusoidal"], "encoder": ["learned", "sinusoidal"],
                                "encoder_decoder": ["sinusoidal", "relative", "learned"]}[family])
    if rng.random() < 0.5:
        m["dropout"] = rng.choice([0.1, 0.3])
    if family != "encoder":
        m["n_kv_heads"] = rng.choice([HEADS, HEADS, HEADS // 2])
        m["tie_embeddings"] = rng.choice([True, False])
    else:
        m.update(head_transform=rng.random() < 0.5, type_vocab_size=rng.choice([0, 2]))
    m["embedding_norm"] = rng.random() < 0.3
    m["scale_embeddings"] = rng.random() < 0.2
    if rng.random() < 0.2:
        m["qk_norm"] = True
    return m


def layout(rng, ranks, model):
    """Settings of `parallel`: a size for every axis, and what goes with it."""
    blocks = model["n_layers"] * (2 if model["family"] == "encoder_decoder" else 1)
    left, sizes = ranks, {}
    for axis in rng.sample(["tensor", "pipeline", "context"], 3):
        legal = [n for n in (1, 2, 4) if left % n == 0]
        if axis == "pipeline":
            legal = [n for n in legal if n <= blocks]
        sizes[axis] = rng.choice(legal)
        left //= sizes[axis]
    sizes.update(sequence=rng.random() < 0.7, bucket_bytes=rng.choice(["8Ki", "64Ki", "32Mi"]),
                 zero=rng.randrange(4))
    if 1 < sizes["pipeline"] <= blocks // 2 and rng.random() < 0.5:
        sizes["schedule"] = "interleaved"
    if sizes["context"] > 1:
        sizes["context_exchange"] = rng.choice(["gather", "ring"])
    if left % 2 == 0 and sizes["zero"] > 0 and rng.random() < 0.4:
        sizes["replicas"] = 2
    return sizes, left


def configuration(rng, folder, name, most_ranks, as_run, device):
    """(file, ranks, layout)"""
    ranks = rng.choice([r for r in (1, 2, 4, 8) if r <= most_ranks]) if as_run else most_ranks
    model = model_of(rng)
    parallel, data = layout(rng, ranks, model)
    micro, accumulation = rng.choice([1, 2, 4]), rng.choice([1, 2, 3])
    source = {"decoder": "tokens", "encoder": "mlm", "encoder_decoder": "pairs"}[model["family"]]
    train = {"type": source, "path": "none.bin"}
    if source == "tokens" and rng.random() < 0.3:
        train["documents"] = "separate"
    sections = {
        "model": model, "precision": rng.choice(["fp32", "bf16", "bf16", "fp16", "fp16"]),
        "recompute": rng.choice(["none", "selective", "full"]), "parallel": parallel,
        "train": {"global_batch_size": micro * accumulation * data, "micro_batch_size": micro, "seq_len": rng.choice([16, 32, 64]),
                  "seed": rng.randint(1, 10**6)},
        "optimizer": {"type": rng.choice(["adamw", "adamw", "adam", "sgd"]), "lr": 0.001, "ema": rng.choice([0, 0.9])},
        "loss": {"label_smoothing": rng.choice([0, 0.1])}, "data": {"train": train}, "device": device,
    }
    if device == "cuda":
        parallel["backend"] = rng.choice(["nccl", "mpi"])
    shown = " ".join(f"{k}={v}" for k, v in {"data": data, **parallel}.items() if k == "zero" or v not in (1, False))
    return common.write_config(folder / f"{name}.yaml", sections), ranks, f"{model['family']} {shown}"


def run(bin_dir, config, ranks, as_run):
    command = [*([str(common.ROOT / "tests/mpirun.sh"), str(ranks)] if ranks > 1 else []), str(bin_dir / "tfm-verify"), str(config)]
    return subprocess.run(command + ["--as-run"] * as_run, capture_output=True, text=True, cwd=config.parent, timeout=600,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def clean(bin_dir, count, seed, most_ranks, as_run, device, folder):
    rng, rows, bad = random.Random(seed), [], 0
    for i in range(count):
        config, ranks, chosen = configuration(rng, folder, f"{i:03}", most_ranks, as_run, device)
        done = run(bin_dir, config, ranks, as_run)
        checks = re.findall(r"^(\w+)\s+(.*?)\s+error (\S+), bound (\S+)(.*)$", done.stdout, re.MULTILINE)
        nearest = max(((float(e) / float(b), what + where) for _, what, e, b, where in checks if float(b) > 0), default=(0, "-"))
        wrong = [what + where for verdict, what, _, _, where in checks if verdict == "WRONG"]
        problem = "" if done.returncode == 0 and checks else "; ".join(wrong) or f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
        bad += bool(problem)
        rows.append([config.name, ranks, chosen, f"{nearest[0]:.2f}", nearest[1], problem or "ok"])
        print(f"\r{i + 1} of {count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    common.table(["configuration", "ranks", "layout", "error/bound", "nearest", "result"], rows)
    print(f"{count} configurations, {bad} false alarms")
    return bad == 0


def faults(bin_dir, device):
    sys.path.insert(0, str(MUTANTS))
    from run import all_mutants
    missed = 0
    on_cpu = device == "cpu"
    chosen = [m for m in all_mutants() if m.room == "as_run" and (on_cpu or "kernels/cpu" not in m.file)
              or m.room == "as_run_cuda" and not on_cpu]
    test = [sys.executable, str(common.ROOT / "tests/integration/test_as_run.py"), "--device", device, str(bin_dir)]
    precisions = ("bf16", "fp16")
    subprocess.run([*test, *precisions], check=True)  # without a bug
    for m in chosen:
        for precision in precisions:
            done = subprocess.run([*test, precision], capture_output=True, text=True, env={**os.environ, "TFM_MUTANT": str(m.number)})
            found = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("WRONG")]
            missed += not found
            print(f"{'caught' if found else 'MISSED'} {precision} {m}\n       {found[0] if found else done.stderr[-300:]}", flush=True)
    print(f"{missed} missed")
    return missed == 0


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("bin_dir", type=pathlib.Path, metavar="BIN")
    args.add_argument("--count", type=int, default=40)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--ranks", type=int, default=8, help="with --as-run, at most")
    args.add_argument("--as-run", action="store_true", help="in the precision of each configuration, not in float64")
    args.add_argument("--faults", action="store_true", help="BIN is of tests/mutants/run.py")
    args.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args.add_argument("--dir", type=pathlib.Path, help="an empty folder to work in and keep")
    args = args.parse_args()
    bin_dir = args.bin_dir.resolve()
    if args.faults:
        return 0 if faults(bin_dir, args.device) else 1
    with common.work_folder(args.dir) as folder:
        return 0 if clean(bin_dir, args.count, args.seed, args.ranks, args.as_run, args.device, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
