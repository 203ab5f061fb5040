#!/usr/bin/env python3
"""Trains a small BERT on masked bytes of a text with tfm and with PyTorch (pip install torch transformers) from the same weights,
on the same batches and masks, and prints both curves."""
import argparse
import pathlib
import sys

import numpy as np
import torch
import transformers

import common

LENGTH, BATCH, MASK, VOCABULARY, SEED = 64, 32, 259, 260, 1234
RATE, WARM_UP, DECAY = 1e-3, 20, 0.01


def stream_of(name):
    h = 2166136261
    for c in name.encode():
        h = ((h ^ c) * 16777619) & 0xFFFFFFFF
    return h


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al. 2011). counter: four uint64 arrays below 2^32; key: two integers."""
    c, (k0, k1), low = counter, key, np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def masked(ids, step):
    """What framework/data/masked_lm.cpp makes of the ids (B, T) of batch `step`: inputs and labels."""
    n = ids.size
    zero = np.zeros(n, np.uint64)
    purpose_data = 3 << 24
    words = philox([np.arange(n, dtype=np.uint64), zero, zero + np.uint64(step), zero + np.uint64(stream_of("masked_tokens"))],
                   (SEED, purpose_data))
    chance = ((words[0] >> np.uint64(8)).astype(np.float32) + np.float32(1)) * np.float32(2.0**-24)
    hidden, kind = chance <= np.float32(0.15), words[1] % np.uint64(10)
    flat = ids.reshape(-1)
    inputs = np.where(hidden & (kind < 8), MASK, np.where(hidden & (kind == 8), (words[2] % np.uint64(VOCABULARY)).astype(np.int64), flat))
    return inputs.reshape(ids.shape), np.where(hidden, flat, -100).reshape(ids.shape)


def pytorch_curve(model, ids, steps):
    model.train()
    matrices = [p for n, p in model.named_parameters() if p.dim() > 1 and "position" not in n]
    rest = [p for n, p in model.named_parameters() if p.dim() == 1 or "position" in n]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0}], betas=(0.9, 0.98))
    curve = {}
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP)
        rows = [(step * BATCH + i) % (len(ids) // LENGTH) * LENGTH for i in range(BATCH)]
        inputs, labels = masked(np.stack([ids[r:r + LENGTH] for r in rows]), step)
        loss = model(input_ids=torch.from_numpy(inputs), labels=torch.from_numpy(labels)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve[step + 1] = loss.item()
    return curve


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("text", type=pathlib.Path)
    args.add_argument("bin_dir", type=pathlib.Path)
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--ranks", type=int, default=1)
    args.add_argument("overrides", nargs="*", metavar="section.key=value")
    args = args.parse_intermixed_args()
    torch.manual_seed(SEED)
    model = transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, max_position_embeddings=LENGTH,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0))
    with common.work_folder(None) as folder:
        model.save_pretrained(folder / "weights")
        config = common.write_config(folder / "config.yaml", {
            "model": {"family": "encoder", "init": folder / "weights", "dropout": 0}, "device": "cpu",
            "train": {"steps": args.steps, "global_batch_size": BATCH, "seq_len": LENGTH, "seed": SEED},
            "optimizer": {"type": "adamw", "lr": RATE, "betas": [0.9, 0.98], "weight_decay": DECAY, "grad_clip": 1.0},
            "schedule": {"type": "constant", "warmup_steps": WARM_UP},
            "data": {"train": {"type": "mlm", "path": args.text.resolve()}, "tokenizer": "bytes"},
            "metrics": {"jsonl": folder / "metrics.jsonl"}})
        given = dict(o.split("=", 1) for o in args.overrides)
        common.train(args.bin_dir, args.ranks, config, given, folder / "log.txt")
        ours = common.losses(folder / "metrics.jsonl", range(1, args.steps + 1))
    theirs = pytorch_curve(model, np.frombuffer(args.text.read_bytes(), np.uint8).astype(np.int64), args.steps)
    shown = [1, 2, 5, 10, *range(20, args.steps + 1, 20)]
    common.table(["step", "tfm", "PyTorch"], [[s, f"{ours[s]:.6f}", f"{theirs[s]:.6f}"] for s in shown])
    worst = common.relative(ours, theirs)
    print(f"largest relative difference of a step: {worst:.2e}")
    if not worst <= 0.02:
        raise common.Failed("the curves differ by more than 2 %")


if __name__ == "__main__":
    common.run_main(main)
