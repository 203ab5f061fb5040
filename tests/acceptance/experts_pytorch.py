#!/usr/bin/env python3
"""Times training steps of a decoder with experts on this machine's CPU, in turn with a dense one of the same active size and with
transformers' Mixtral (pip install torch transformers).

usage: experts_pytorch.py BIN [--precision fp32] [--threads 2] [--rounds 3] [--steps 4] [--json FILE]

Six layers of 512 columns, 8 experts of 704 of which 2 take each token, 4 x 512 tokens; dense: d_ff 1,408. `one pair`: weights of
routers are zero, so that all tokens go to the same two experts. Tokens/s, medians of the rounds; transformers' experts in the
faster of its implementations eager and grouped_mm; its batched_mm copies weights for each token, tens of GB here.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

import torch
import transformers

import common

SEQUENCES, LENGTH, VOCABULARY = 4, 512, 256
SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8,
         "max_position_embeddings": LENGTH, "tie_word_embeddings": False}


def tfm(args, folder, weights):
    """Seconds of a step."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    config = common.write_config(folder / "config.yaml", {
        "model": {"family": "decoder", "init": weights, "dropout": 0}, "precision": args.precision,
        "train": {"steps": args.steps + 2, "global_batch_size": SEQUENCES, "micro_batch_size": SEQUENCES, "seq_len": LENGTH},
        "optimizer": {"type": "adamw", "lr": 1e-9}, "schedule": {"type": "constant"}, "checkpoint": {"dir": "none"},
        "data": {"train": {"type": "text", "path": folder / "text.txt"}, "tokenizer": "bytes"}, "metrics": {"jsonl": metrics}})
    done = subprocess.run([args.bin / "tfm-train", config], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(args.threads)))
    if done.returncode != 0:
        raise common.Failed(done.stderr)
    return statistics.median([e["step_seconds"] for e in common.events(metrics) if e.get("event") == "step"][-args.steps:])


def pytorch(args, weights, implementation):
    model = transformers.MixtralForCausalLM.from_pretrained(weights, experts_implementation=implementation, dtype=torch.float32)
    ids = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH))
    return statistics.median(common.pytorch_steps(model, ids, args.precision, 1e-9, args.steps))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with common.work_folder(None) as folder:
        rng = random.Random(7)
        (folder / "text.txt").write_text("".join(rng.choice("abcdefgh etaoin\n") for _ in range(1 << 16)))
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.manual_seed(1)
        experts = transformers.MixtralForCausalLM(transformers.MixtralConfig(
            **SHAPE, intermediate_size=704, num_local_experts=8, num_experts_per_tok=2, sliding_window=None))
        experts.save_pretrained(folder / "experts")
        for name, parameter in experts.named_parameters():
            if name.endswith("gate.weight"):
                torch.nn.init.zeros_(parameter)
        experts.save_pretrained(folder / "one_pair")
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, intermediate_size=1408)).save_pretrained(folder / "dense")
        runs = {name: [] for name in ("experts", "dense", "one pair", "eager", "grouped_mm")}
        for _ in range(args.rounds):
            for name in ("dense", "experts", "one pair"):
                runs[name].append(tfm(args, folder, folder / name.replace(" ", "_")))
            for name in ("eager", "grouped_mm"):
                try:
                    runs[name].append(pytorch(args, folder / "experts", name))
                except Exception as error:
                    print(f"{name}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
    tokens = {name: SEQUENCES * LENGTH / statistics.median(seconds) for name, seconds in runs.items() if seconds}
    peer = max(tokens[name] for name in ("eager", "grouped_mm") if name in tokens)
    result = {"precision": args.precision, **{f"{k} tokens/s": v for k, v in tokens.items()},
              "of dense": tokens["experts"] / tokens["dense"],
              "one pair's time": tokens["experts"] / tokens["one pair"], "of transformers": tokens["experts"] / peer}
    print("  ".join(f"{k} {v if isinstance(v, str) else f'{v:.4g}'}" for k, v in result.items()))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    common.run_main(main)
