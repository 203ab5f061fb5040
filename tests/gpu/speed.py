#!/usr/bin/env python3
"""Tokens per second in training: tfm and the same models in PyTorch, in turn, on the same GPU, random data, bf16, no dropout.

usage: tests/gpu/speed.py BIN [--models A,B] [--rounds N] [--steps N] [--out FILE.json] [--tiny]
--tiny: small shapes on the CPU, to see that everything runs.
"""
import argparse
import array
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "acceptance"))
import common  # noqa: E402
import launch  # noqa: E402

# Shapes, sequences a step, and FLOP a token (6 a weight of a product and 12 layers length width, masked scores counted; a token of a
# translation: one of the target, with its part of the source).
MODELS = {
    "gpt2-124m": ({"family": "decoder", "vocab_size": 50257, "d_model": 768, "n_layers": 12, "n_heads": 12, "length": 1024}, 64, 0.855e9),
    "gpt2-1.5b": ({"family": "decoder", "vocab_size": 50257, "d_model": 1600, "n_layers": 48, "n_heads": 25, "length": 1024}, 32, 10.274e9),
    "llama-1b": ({"family": "decoder", "vocab_size": 128256, "d_model": 2048, "n_layers": 16, "n_heads": 32, "n_kv_heads": 8, "d_ff": 8192,
                  "position": "rope", "norm": "rmsnorm", "activation": "swiglu", "bias": False, "length": 4096}, 8, 9.025e9),
    "bert-large": ({"family": "encoder", "vocab_size": 30522, "d_model": 1024, "n_layers": 24, "n_heads": 16, "norm_position": "post",
                    "activation": "gelu", "length": 512}, 128, 1.992e9),
    "transformer-big": ({"family": "encoder_decoder", "vocab_size": 32768, "d_model": 1024, "n_layers": 6, "n_heads": 16,
                         "position": "sinusoidal", "norm_position": "post", "activation": "relu", "length": 32}, 780, 1.258e9),
}
PEAK = 989e12  # dense bf16 of an H100 or H200, FLOP/s
AS_STARTED = dict(os.environ)  # PyTorch brings its own libraries


def model_of(name, tiny=False):
    m, sequences, _ = MODELS[name]
    if tiny:
        m = {**m, "vocab_size": 300, "d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 128, "length": 16}
        if "n_kv_heads" in m:
            m["n_kv_heads"] = 2
        sequences = 4
    return m, sequences


def write_tokens(path, most, count, words):
    """Random ids below `most` in the format of llm.c, of 16 or 32 bits."""
    wide = most > 1 << 16
    header = array.array("i", [20240801 if wide else 20240520, 7 if wide else 1, count] + [0] * 253)
    ids = array.array("I" if wide else "H", (words.randrange(most) for _ in range(count)))
    path.write_bytes(header.tobytes() + ids.tobytes())


def config_of(name, folder, steps, micro, tiny, together=None):
    """`together`: sequences of a step; those of the comparison where it is not given."""
    m, sequences = model_of(name, tiny)
    m, sequences = dict(m), together or sequences
    length, words = m.pop("length"), random.Random(1)
    train = {"steps": steps, "seq_len": length, "micro_batch_size": micro, "global_batch_size": sequences}
    if m["family"] == "encoder_decoder":
        train = {"steps": steps, "seq_len": length, "micro_batch_size": micro, "global_batch_tokens": sequences * length}
        for side in ("source", "target"):
            (folder / side).write_text("".join("".join(words.choices("abcdefgh", k=length - 1)) + "\n" for _ in range(4 * sequences)))
        data = {"type": "pairs", "source": folder / "source", "target": folder / "target"}
    else:
        write_tokens(folder / "tokens.bin", m["vocab_size"] - 1, max(1 << 16, 4 * sequences * length), words)
        data = {"type": "mlm" if m["family"] == "encoder" else "tokens", "path": folder / "tokens.bin"}
    if m["family"] == "encoder":
        m["head_transform"] = m["embedding_norm"] = True
    return common.write_config(folder / "config.yaml", {
        "model": {**m, "max_seq_len": length, "dropout": 0}, "device": "cpu" if tiny else "cuda", "precision": "bf16", "train": train,
        "optimizer": {"type": "adamw", "lr": 1e-4, "weight_decay": 0.1, "grad_clip": 1.0},
        "data": {"train": data, "tokenizer": "bytes"}, "metrics": {"jsonl": folder / "metrics.jsonl"}})


class NoMemory(common.Failed):
    pass


def output(*command, **options):
    done = launch.launch(*command, **options)
    if done.code in (1, 4) and re.search("allocat|out of memory|alloc_failed", done.err, re.I):
        raise NoMemory(f"no memory: {done.err[-600:]}")
    if done.code != 0:
        raise common.Failed(f"exit code {done.code}: {done.err[-600:]}")
    return done.out


def time_tfm(bin_dir, name, micro, steps, tiny):
    with tempfile.TemporaryDirectory(prefix="tfm-speed-") as folder:
        folder = pathlib.Path(folder)
        output(bin_dir / "tfm-train", config_of(name, folder, steps + 5, micro, tiny), cwd=folder)
        return statistics.median(e["step_seconds"] for e in common.events(folder / "metrics.jsonl") if e["event"] == "step" and e["step"] > 5)


def time_pytorch(name, micro, steps, tiny):
    where = ["--tiny", "--device", "cpu"] if tiny else []
    return float(output(sys.executable, HERE / "pytorch_speed.py", name, micro, "--steps", steps, *where, seconds=900, env=AS_STARTED).split()[-1])


def fitting(measure, micro):
    """Seconds of a step, and the sequences of a micro-batch: halved until they fit the memory, each time in a new process."""
    while True:
        try:
            return measure(micro), micro
        except NoMemory:
            if micro % 2:
                raise
            micro //= 2


def compare(bin_dir, names, rounds, steps, tiny=False):
    """A row of figures for each model: the best round of each, measured in turn."""
    rows = []
    for name in names:
        m, sequences = model_of(name, tiny)
        tokens = sequences * m["length"]
        row = {"model": name, "tokens_per_step": tokens}
        measures = {"tfm": lambda micro: time_tfm(bin_dir, name, micro, steps, tiny), "pytorch": lambda micro: time_pytorch(name, micro, steps, tiny)}
        for who in list(measures) * rounds:
            try:
                seconds, micro = fitting(measures[who], row.get(who + "_micro_batch_size", sequences))
            except (common.Failed, launch.OutOfTime, OSError, ValueError, IndexError) as failure:
                row[who + "_error"] = str(failure)
                continue
            if seconds < row.get(who + "_seconds", float("inf")):
                row.update({who + "_seconds": seconds, who + "_tokens_per_second": tokens / seconds, who + "_micro_batch_size": micro,
                            who + "_mfu": tokens / seconds * MODELS[name][2] / PEAK})
        if "tfm_seconds" in row and "pytorch_seconds" in row:
            row["ratio"] = row["pytorch_seconds"] / row["tfm_seconds"]
        rows.append(row)
    return rows


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("bin", type=pathlib.Path)
    args.add_argument("--models", default=",".join(MODELS))
    args.add_argument("--rounds", type=int, default=2)
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--out", type=pathlib.Path)
    args.add_argument("--tiny", action="store_true")
    args = args.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = compare(args.bin.resolve(), args.models.split(","), args.rounds, args.steps, args.tiny)
    shown = lambda row, key, form: form.format(row[key]) if key in row else "-"
    common.table(["model", "tfm tokens/s", "PyTorch tokens/s", "ratio", "tfm MFU"],
                 [[r["model"], shown(r, "tfm_tokens_per_second", "{:.0f}"), shown(r, "pytorch_tokens_per_second", "{:.0f}"),
                   shown(r, "ratio", "{:.2f}"), shown(r, "tfm_mfu", "{:.1%}")] for r in rows])
    for row in rows:
        for who in ("tfm", "pytorch"):
            if who + "_error" in row:
                print(f"{row['model']}: {row[who + '_error']}", file=sys.stderr)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if all("ratio" in r for r in rows) else 1)


if __name__ == "__main__":
    main()
