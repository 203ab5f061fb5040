#!/usr/bin/env python3
"""Times kinds of attention on this machine's CPU, beside PyTorch (pip install torch transformers), in turn.

usage: attention_pytorch.py BIN [--precision fp32] [--threads 2] [--rounds 3] [--only window,length,delta,long] [--json FILE]

window: forward and backward of attention with a window of 1,024 of 8,192 tokens (8 heads of 64), beside the better of scaled dot
product attention with the mask and compiled flex attention (no backward on CPUs in PyTorch 2.15). length: the same of a window, of
linear attention and of all keys by length, with the planned memory of a step. delta: a training step of four layers with the gated
delta rule of 512 columns, with two small experts of which one takes each token, 4 x 512 tokens, beside the better of transformers'
Qwen3-Next eager and compiled. long: a step of 131,072 tokens of four layers of 256 columns with that window. Medians of the rounds;
milliseconds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import transformers
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import common

WINDOW, HEADS, SIZE = 1024, 8, 64
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def run(args, *command):
    """Its output."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    if done.returncode != 0:
        raise common.Failed(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def config_of(args, folder, length, attention):
    return common.write_config(folder / "config.yaml", {
        "model": {"family": "decoder", "vocab_size": 256, "d_model": HEADS * SIZE, "n_layers": 1, "n_heads": HEADS, "d_ff": 64,
                  "position": "none", "attention": attention},
        "precision": args.precision, "train": {"steps": 1, "global_batch_size": 1, "seq_len": length},
        "data": {"train": {"type": "tokens", "path": "none.bin"}, "tokenizer": "bytes"}})


def tfm_attention(args, folder, length, attention):
    """Milliseconds of attention, forward and backward."""
    run(args, args.bin / "tfm-bench", "kernels", config_of(args, folder, length, attention), "--json", folder / "kernels.json")
    kernels = json.loads((folder / "kernels.json").read_text())["kernels"]
    return 1e3 * sum(k["seconds"] for k in kernels if k["op"] in ("attention", "linear_attention"))


def planned_bytes(args, folder, length, attention):
    plan = json.loads(run(args, args.bin / "tfm-plan", config_of(args, folder, length, attention), "--json"))
    return plan["memory"][0]["total_bytes"]


def best_ms(step, times):
    step()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        step()
        found.append(1e3 * (time.perf_counter() - begin))
    return min(found)


def pytorch_window(args, length):
    """Milliseconds by kind."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, HEADS, length, SIZE, dtype=DTYPES[args.precision], requires_grad=True) for _ in range(3))
    dy = torch.randn_like(q)

    def sees(b, h, t, s):
        return (s <= t) & (t - s < WINDOW)
    t, s = torch.arange(length)[:, None], torch.arange(length)[None]
    mask, blocks = sees(0, 0, t, s), create_block_mask(sees, None, None, length, length, device="cpu")
    compiled = torch.compile(flex_attention)
    kinds = {"sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask),
             "flex": lambda: compiled(q, k, v, block_mask=blocks)}
    found = {}
    for name, forward in kinds.items():
        def step():
            forward().backward(dy)
        try:
            found[name] = best_ms(step, 2)
        except Exception as error:  # what compiled flex attention has no backward for on CPUs
            print(f"{name}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
    return found


def window(args, folder):
    length, rounds = 8192, []
    for _ in range(args.rounds):
        before = tfm_attention(args, folder, length, {"window": WINDOW})
        theirs = pytorch_window(args, length)
        rounds.append((min(before, tfm_attention(args, folder, length, {"window": WINDOW})), theirs))
    ours = statistics.median(r[0] for r in rounds)
    peers = {name: statistics.median(r[1][name] for r in rounds) for name in rounds[0][1]}
    return [{"check": f"window {WINDOW} of {length}", "tfm": ours, **peers, "ratio": min(peers.values()) / ours}]


def length(args, folder):
    rows = []
    for name, attention in {f"window {WINDOW}": {"window": WINDOW}, "linear": {"type": "linear"}, "all keys": {"type": "softmax"}}.items():
        for tokens in (4096, 16384, 65536):
            if name == "all keys" and tokens > 16384:
                continue
            ms = statistics.median(tfm_attention(args, folder, tokens, attention) for _ in range(args.rounds))
            rows.append({"check": f"{name}, {tokens} tokens", "tfm": ms, "us_per_token": 1e3 * ms / tokens,
                         "bytes_per_token": planned_bytes(args, folder, tokens, attention) / tokens})
    return rows


def pytorch_delta(args, model, compiled):
    run_of = torch.compile(model) if compiled else model
    return 1e3 * min(common.pytorch_steps(run_of, torch.randint(0, 1024, (4, 512)), args.precision, 1e-4, 2))


def delta(args, folder):
    layers = 4
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(
        vocab_size=1024, hidden_size=512, num_hidden_layers=layers, layer_types=["linear_attention"] * layers,
        num_experts=2, num_experts_per_tok=1, moe_intermediate_size=64, shared_expert_intermediate_size=512,
        num_attention_heads=8, num_key_value_heads=8, head_dim=64, linear_num_key_heads=4,
        linear_num_value_heads=8, linear_key_head_dim=64, linear_value_head_dim=64, max_position_embeddings=512))
    model.save_pretrained(folder / "weights")
    config = common.write_config(folder / "config.yaml", {
        "model": {"family": "decoder", "init": folder / "weights", "dropout": 0}, "precision": args.precision,
        "train": {"steps": 1, "global_batch_size": 4, "micro_batch_size": 4, "seq_len": 512},
        "data": {"train": {"type": "tokens", "path": "none.bin"}, "tokenizer": "bytes"}})

    def ours():
        run(args, args.bin / "tfm-bench", "step", config, "--random-data", "--steps", 3, "--warmup", 1, "--json", folder / "step.json")
        return 1e3 * json.loads((folder / "step.json").read_text())["step_seconds"]
    rounds = [(ours(), pytorch_delta(args, model, False), ours(), pytorch_delta(args, model, True)) for _ in range(args.rounds)]
    own = statistics.median(ms for r in rounds for ms in (r[0], r[2]))
    eager, compiled = (statistics.median(r[i] for r in rounds) for i in (1, 3))
    return [{"check": "gated delta rule, a step", "tfm": own, "eager": eager, "compiled": compiled, "ratio": min(eager, compiled) / own}]


def long(args, folder):
    (folder / "text.txt").write_text("a step of a long text. " * 12000)
    config = common.write_config(folder / "config.yaml", {
        "model": {"family": "decoder", "vocab_size": 256, "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "position": "rope",
                  "attention": {"window": WINDOW}},
        "precision": args.precision, "train": {"steps": 2, "global_batch_size": 1, "seq_len": 131072},
        "data": {"train": {"type": "text", "path": folder / "text.txt"}, "tokenizer": "bytes"}, "checkpoint": {"dir": "none"},
        "metrics": {"jsonl": folder / "metrics.jsonl"}})
    run(args, args.bin / "tfm-train", config)
    step = [e for e in common.events(folder / "metrics.jsonl") if e.get("event") == "step"][-1]
    return [{"check": "a step of 131072 tokens", "tfm": 1e3 * step["step_seconds"], "bytes": step["peak_memory_bytes"]}]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--precision", choices=DTYPES, default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="window,length,delta,long")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    with common.work_folder(None) as folder:
        for name in args.only.split(","):
            for row in {"window": window, "length": length, "delta": delta, "long": long}[name](args, folder):
                rows.append(row)
                print("  ".join(f"{k} {v if isinstance(v, str) else f'{v:.4g}'}" for k, v in row.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    common.run_main(main)
