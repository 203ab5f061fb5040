#!/usr/bin/env python3
"""Trains small models on objectives with tfm and with PyTorch (pip install torch transformers) from the same weights and on the same
batches (tfm-train --samples N --ids), and prints how far the losses of a step differ."""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import torch
import transformers

import common

BATCH, LENGTH, RATE, SEED = 8, 48, 1e-3, 1234
SIZES = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
         "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "max_position_embeddings": LENGTH, "dropout": 0.0, "pad_token_id": 258,
         "bos_token_id": 256, "eos_token_id": 257, "decoder_start_token_id": 257, "forced_eos_token_id": None}
BPE = common.ROOT / "tests/fixtures/bpe600"


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=264, n_embd=64, n_layer=2, n_head=4, n_positions=LENGTH, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def bart(vocabulary=264):
    return transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=vocabulary, **SIZES))


def t5():
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=264, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, dropout_rate=0, pad_token_id=258, eos_token_id=257,
        decoder_start_token_id=258))


def marian():
    return transformers.MarianMTModel(transformers.MarianConfig(
        vocab_size=600, decoder_vocab_size=264, share_encoder_decoder_embeddings=False, activation_function="swish", **SIZES))


def cases(folder):
    rng, words = random.Random(7), "the sun moon sea hill wind sings sleeps over under and then a bird stone".split()
    lines = [" ".join(rng.choices(words, k=rng.randint(2, 7))) + "." for _ in range(1200)]
    text, source, target = folder / "text.txt", folder / "a.txt", folder / "b.txt"
    text.write_text(" ".join(lines))
    source.write_text("\n".join(lines) + "\n")
    target.write_text("\n".join(line[::-1] for line in lines) + "\n")
    bytes_of = {"path": text, "shuffle": True}
    return {
        "denoise": ("encoder_decoder", bart, {"train": {"type": "denoise", **bytes_of, "rotate": 0.3, "delete": 0.1, "mask_tokens": 0.05}}),
        "prefix_lm": ("encoder_decoder", t5, {"train": {"type": "prefix_lm", **bytes_of}}),
        "prefix_lm of a decoder": ("decoder", gpt2, {"train": {"type": "prefix_lm", **bytes_of}}),
        "fill in the middle": ("decoder", gpt2, {"train": {
            "type": "text", **bytes_of, "fim": {"rate": 0.9, "prefix": 261, "middle": 262, "suffix": 263}}}),
        "two vocabularies": ("encoder_decoder", marian, {
            "train": {"type": "pairs", "source": source, "target": target, "shuffle": True}, "source_tokenizer": BPE}),
        "BPE dropout": ("encoder_decoder", lambda: bart(600), {
            "train": {"type": "pairs", "source": source, "target": target, "shuffle": True, "bpe_dropout": 0.2}, "tokenizer": BPE}),
    }


def pytorch_losses(model, rows, steps):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = {}
    for step in range(steps):
        batch = [row for row in rows if row["batch"] == step]
        field = {name: torch.tensor([row[name] for row in batch])
                 for name in ("ids", "labels", "source_ids", "source_mask") if name in batch[0]}
        labels = field["labels"].masked_fill(field["labels"] < 0, -100)
        if "source_ids" in field:
            logits = model(input_ids=field["source_ids"], attention_mask=(field["source_mask"] >= 0).long(),
                           decoder_input_ids=field["ids"]).logits
        else:
            logits = model(input_ids=field["ids"]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses[step + 1] = loss.item()
    return losses


def compare(name, family, make, data, args, folder):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(SEED)
    model = make()
    for p in model.parameters():
        if p.dim() == 1:  # norms and biases that do something
            torch.nn.init.normal_(p, p.mean().item(), 0.1)
    model.save_pretrained(folder / "weights")
    config = common.write_config(folder / "config.yaml", {
        "model": {"family": family, "init": folder / "weights", "dropout": 0}, "device": "cpu",
        "train": {"steps": args.steps, "global_batch_size": BATCH, "seq_len": LENGTH, "seed": SEED},
        "optimizer": {"type": "adamw", "lr": RATE, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0, "grad_clip": 1.0},
        "schedule": {"type": "constant"}, "data": {"tokenizer": "bytes", **data}, "checkpoint": {"dir": "none"},
        "metrics": {"jsonl": folder / "metrics.jsonl"}})
    samples = subprocess.run([args.bin_dir / "tfm-train", config, "--samples", str(BATCH * args.steps), "--ids"],
                             capture_output=True, text=True)
    if samples.returncode != 0:
        raise common.Failed(f"{name}: {samples.stderr}")
    rows = [json.loads(line) for line in samples.stdout.splitlines()]
    common.train(args.bin_dir, args.ranks, config, {}, folder / "log.txt")
    ours = common.losses(folder / "metrics.jsonl", range(1, args.steps + 1))
    theirs = pytorch_losses(model, rows, args.steps)
    return [name, f"{ours[1]:.6f}", f"{ours[args.steps]:.6f}", f"{max(abs(ours[s] - theirs[s]) for s in ours):.1e}"]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("bin_dir", type=lambda p: pathlib.Path(p).resolve())
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--ranks", type=int, default=1)
    args = args.parse_args()
    with common.work_folder(None) as folder:
        rows = []
        for i, (name, (family, make, data)) in enumerate(cases(folder).items()):
            place = folder / str(i)
            place.mkdir()
            rows.append(compare(name, family, make, data, args, place))
    common.table(["objective", "first loss", "last loss", "largest difference"], rows)
    if not all(float(row[-1]) <= 1e-5 for row in rows):
        raise common.Failed("losses differ by more than 1e-5")


if __name__ == "__main__":
    common.run_main(main)
