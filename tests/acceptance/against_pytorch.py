#!/usr/bin/env python3
"""Times training steps of tfm beside PyTorch, eager and compiled, in turn, on this machine's CPU.

usage: against_pytorch.py BIN --python PYTHON [--models gpt2,gpt2-1024,bert,transformer,llama] [--precision bf16]
                          [--pytorch-precision fp32] [--optimizer adamw] [--threads 2] [--steps 4] [--rounds 2] [--eager-only]
                          [--json FILE]

PYTHON has torch. Both sides train the same model with AdamW or Muon, without dropout, on random tokens: PyTorch with SDPA, its fused
AdamW and, for bf16, autocast. Its Muon takes the fused weights of queries, keys and values as one matrix, with up to a twelfth fewer
multiplications in the iterations. In each round tfm runs before and after each of PyTorch's two; each run takes the median of its
steps. The table has medians of the rounds and the ratio to the faster of PyTorch's two, by medians and by PyTorch's best single
step, and peak memory against the leaner of the two. Of BERT 15 % of the positions have a label, and both compute logits
of these alone. Where the processor has no instructions for bf16, a step of PyTorch in bf16 takes minutes: give its faster precision.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT2 = {"family": "decoder", "vocab_size": 50257, "n_layers": 12, "d_model": 768, "n_heads": 12}
# Of each: sequences, and the model as tests/gpu/pytorch_speed.py takes it; tfm's configuration.
MODELS = {
    "gpt2": (4, {**GPT2, "length": 256}, ["configs/gpt2_124m.yaml"]),
    "gpt2-1024": (4, {**GPT2, "length": 1024}, ["configs/gpt2_124m.yaml"]),
    "bert": (8, {**GPT2, "family": "encoder", "vocab_size": 30522, "length": 128, "norm_position": "post", "activation": "gelu"},
             ["configs/bert_base.yaml"]),
    "transformer": (32, {"family": "encoder_decoder", "vocab_size": 8000, "n_layers": 6, "d_model": 512, "n_heads": 8, "length": 32,
                         "norm_position": "post", "activation": "relu", "label_smoothing": 0.1},
                    ["configs/transformer_base.yaml", "model.vocab_size=8000"]),
    "llama": (4, {**GPT2, "vocab_size": 32000, "n_layers": 10, "n_kv_heads": 4, "d_ff": 2048, "length": 512, "position": "rope",
                  "norm": "rmsnorm", "activation": "swiglu", "bias": False, "tie_embeddings": False},
              ["configs/llama_1b.yaml", "model.vocab_size=32000", "model.n_layers=10", "model.d_model=768", "model.n_heads=12",
               "model.n_kv_heads=4", "model.d_head=64", "model.d_ff=2048", "model.max_seq_len=512", "model.tie_embeddings=false"]),
}


def pytorch_steps(sequences, shape, precision, muon, threads, compiled, steps):
    """Seconds of each step, and the number of parameters."""
    import torch
    sys.path.insert(0, str(ROOT / "tests/gpu"))
    from pytorch_speed import Model, batch_of
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model(shape)
    matrices = {name: p for name, p in model.named_parameters() if muon and p.dim() > 1 and name.startswith(("blocks", "encoder"))}
    rest = [p for name, p in model.named_parameters() if name not in matrices]
    optimizers = [torch.optim.AdamW(rest, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)]
    if muon:
        optimizers.append(torch.optim.Muon(matrices.values(), lr=0.02, weight_decay=0.1))
    run = torch.compile(model) if compiled else model
    batch = batch_of(shape, sequences, "cpu")
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = run(**batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return seconds, sum(p.numel() for p in model.parameters())


def run_measured(command, threads):
    """Its standard output, and its peak memory in bytes."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, stdout=out, env=environment, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"exit status {os.waitstatus_to_exitcode(status)}: {' '.join(map(str, command))}")
        out.seek(0)
        return out.read(), usage.ru_maxrss * 1024


def tfm(args, name):
    batch, shape, (config, *overrides) = MODELS[name]
    length = shape["length"]
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = [args.bin / "tfm-bench", "step", config, *overrides, f"precision={args.precision}", "model.dropout=0",
                   f"train.seq_len={length}", "parallel.tensor=1", f"train.micro_batch_size={batch}",
                   f"optimizer.type={args.optimizer}", "--random-data", "--warmup", "1",
                   "--steps", str(args.steps), "--json", result.name]
        if name == "transformer":  # a batch of `batch` pairs of `length` tokens
            command.append(f"train.global_batch_tokens={batch * length}")
        else:
            command.append(f"train.global_batch_size={batch}")
        _, memory = run_measured(command, args.threads)
        step = json.loads(pathlib.Path(result.name).read_text())
    return {"seconds": step["step_seconds"], "best": step["step_seconds"], "memory": memory, "tokens": step["tokens_per_step"]}


def pytorch(args, name, compiled):
    command = [args.python, __file__, "--child", name, "--precision", args.pytorch_precision or args.precision,
               "--optimizer", args.optimizer, "--threads", str(args.threads), "--steps", str(args.steps)]
    out, memory = run_measured(command + (["--compiled"] if compiled else []), args.threads)
    result = json.loads(out.splitlines()[-1])
    timed = result["seconds"][1:]
    return {"seconds": statistics.median(timed), "best": min(timed), "memory": memory, "parameters": result["parameters"]}


def compare(args, name):
    runs = {"tfm": [], "eager": [], "compiled": []}
    for _ in range(args.rounds):
        for kind in ("eager",) if args.eager_only else ("eager", "compiled"):
            runs["tfm"].append(tfm(args, name))
            runs[kind].append(pytorch(args, name, kind == "compiled"))
            runs["tfm"].append(tfm(args, name))
    rows = {kind: {"ms": 1e3 * statistics.median(r["seconds"] for r in of), "best_ms": 1e3 * min(r["best"] for r in of),
                   "worst_ms": 1e3 * max(r["seconds"] for r in of), "memory": max(r["memory"] for r in of)}
            for kind, of in runs.items() if of}
    peers = [rows[k] for k in ("eager", "compiled") if k in rows]
    return {"model": name, "parameters": runs["eager"][0]["parameters"], "tokens": runs["tfm"][0]["tokens"], **rows,
            "ratio": min(p["ms"] for p in peers) / rows["tfm"]["ms"],
            "ratio_best": min(p["best_ms"] for p in peers) / rows["tfm"]["ms"],
            "memory_ratio": rows["tfm"]["memory"] / min(p["memory"] for p in peers)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, nargs="?")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--pytorch-precision", choices=("fp32", "bf16"), help="where it is not that of --precision")
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--eager-only", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        seconds, parameters = pytorch_steps(*MODELS[args.child][:2], args.precision, args.optimizer == "muon", args.threads,
                                            args.compiled, args.steps + 1)
        print(json.dumps({"seconds": seconds, "parameters": parameters}))
        return
    if not args.bin:
        parser.error("BIN, the folder of tfm's programs, is missing")
    args.bin = args.bin.resolve()
    rows = []
    print(f"{'model':12} {'tokens':>6} {'tfm ms':>20} {'eager ms (best)':>20} {'compiled ms (best)':>20} "
          f"{'ratio (best)':>14} {'memory GB':>10} {'ratio':>6}")
    for name in args.models.split(","):
        row = compare(args, name)
        rows.append(row)
        peer = {k: f"{row[k]['ms']:.0f} ({row[k]['best_ms']:.0f})" if k in row else "-" for k in ("eager", "compiled")}
        own = row["tfm"]
        print(f"{name:12} {row['tokens']:6} {own['ms']:8.0f} ({own['best_ms']:.0f}-{own['worst_ms']:.0f}) {peer['eager']:>18} "
              f"{peer['compiled']:>20} {row['ratio']:7.2f} ({row['ratio_best']:.2f}) "
              f"{own['memory'] / 1e9:10.2f} {row['memory_ratio']:6.2f}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
