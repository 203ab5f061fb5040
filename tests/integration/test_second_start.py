"""A run that was stopped and started again leaves what an unbroken one leaves: checkpoints with their manifest, the best value, where
the weights came from, the export and the logged numbers, byte for byte.

usage: test_second_start.py BIN
"""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
DECODER = """
model: {family: decoder, vocab_size: 260, d_model: 16, n_layers: 2, n_heads: 2, max_seq_len: 16, dropout: 0.1}
train: {steps: 12, global_batch_size: 4, seq_len: 16}
optimizer: {lr: 1.0e-2, ema: 0.9}
schedule: {type: wsd, warmup_steps: 2, decay_steps: 4}
data:
  train: {type: text, path: text.jsonl, shuffle: true, documents: separate}
  validation: {type: text, path: other.txt}
  tokenizer: bytes
eval: {every: 2, batches: 2, metrics: [accuracy], stop: {metric: accuracy, patience: 50}}
checkpoint: {dir: ck, every: 3, keep: 3}
metrics: {jsonl: run.jsonl}
"""
PAIRS = """
model: {family: encoder_decoder, vocab_size: 260, d_model: 16, n_layers: 1, n_heads: 2, dropout: 0.1, norm_position: post, position: sinusoidal,
        sinusoid: halves}
train: {steps: 12, global_batch_tokens: 60, seq_len: 24}
optimizer: {type: adafactor, lr: 1.0e-2}
data:
  train: {type: pairs, source: a.src, target: a.tgt, shuffle: true}
  validation: {type: pairs, source: a.src, target: a.tgt}
  tokenizer: bytes
eval: {every: 4, metrics: [chrf], stop: {metric: chrf, patience: 50}}
checkpoint: {dir: ck, every: 3, keep: 3}
metrics: {jsonl: run.jsonl}
"""


def run(folder, program, *args, ranks=1, code=0):
    command = [*([MPIRUN, str(ranks)] if ranks > 1 else []), BIN / program, *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def files_of(folder):
    return {str(f.relative_to(folder)): (os.readlink(f) if f.is_symlink() else f.read_bytes())
            for f in sorted(folder.rglob("*")) if f.is_symlink() or f.is_file()}


def numbers_of(folder):
    """The logged numbers that do not tell the time; each step once."""
    timed = ("seconds", "per_second", "time", "memory", "mfu", "phase", "eta")
    events = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return [{k: v for k, v in e.items() if not any(word in k for word in timed)} for e in events if e["event"] in ("step", "eval")]


def start(folder, config):
    folder.mkdir(parents=True)
    (folder / "cfg.yaml").write_text(config)
    for file in ("text.jsonl", "other.txt", "a.src", "a.tgt", "start"):
        os.symlink(f"../../{file}", folder / file)


def end(folder, name):
    """All that is left, where it does not matter for what was written."""
    run(folder, "tfm-convert", "export", "ck", "out")
    return folder.rename(folder.with_name(name))


def check(name, config, stops, *args, ranks=1):
    folder = pathlib.Path(name, "run")
    train = lambda: run(folder, "tfm-train", "cfg.yaml", *args, ranks=ranks)
    start(folder, config)
    train()
    whole = end(folder, "whole")
    start(folder, config)
    for stop in stops:
        (folder / "ck").mkdir(exist_ok=True)
        if stop == "STOP":
            (folder / "ck/STOP").touch()
            assert "stopped on request" in train()
            continue
        train()  # as killed behind a checkpoint: what was done after it is done again
        for later in folder.glob("ck/step-*"):
            if int(later.name[5:]) > stop:
                shutil.rmtree(later)
    out = train()
    assert "resumed from" in out, out
    assert "the learning rate goes" not in out, out
    broken = end(folder, "broken")
    one, other = files_of(whole / "ck"), files_of(broken / "ck")
    newest = f"step-{12:08}/"
    assert {n for n in one if n.startswith(newest)} == {n for n in other if n.startswith(newest)}, (list(one), list(other))
    for file in one:
        if file.startswith(newest) or file in ("best", "latest"):
            assert one[file] == other[file], f"{name}: {file} differs after a resume\n{one[file][-3000:]}\n{other[file][-3000:]}"
    assert numbers_of(whole) == numbers_of(broken), f"{name}: other numbers after a resume"
    assert files_of(whole / "out") == files_of(broken / "out"), f"{name}: other exports after a resume"


def check_another_metric():
    """The best of a metric that no longer decides is forgotten."""
    folder = pathlib.Path("metric", "run")
    start(folder, DECODER)
    run(folder, "tfm-train", "cfg.yaml", "train.steps=6")
    run(folder, "tfm-train", "cfg.yaml", "eval.stop.metric=loss")
    best = json.loads((folder / f"ck/step-{12:08}/manifest.json").read_text())["best"]
    evaluated = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    losses = {e["step"]: e["loss"] for e in evaluated if e["event"] == "eval" and e["step"] > 6}
    assert best["metric"] == "loss" and best["value"] == min(losses.values()) == losses[best["step"]], (best, losses)


def check_other_weights():
    """Weights that a resumed run does not read are named."""
    folder = pathlib.Path("weights", "run")
    start(folder, DECODER.replace("{type: wsd, warmup_steps: 2, decay_steps: 4}", "{type: constant}"))
    shutil.copytree(folder / "start", folder / "other")
    run(folder, "tfm-train", "cfg.yaml", "model.init=start", "train.steps=3")
    again = lambda init, steps: run(folder, "tfm-train", "cfg.yaml", f"model.init={init}", f"train.steps={steps}")
    assert "is not read" not in again("start", 6)
    assert "model.init other is not read: the run goes on from ck/step-00000006, and began with start" in again("other", 9)
    assert "began with start" in again("other", 12)


def check_another_tokenizer():
    """A file that was replaced by one of the same size is not taken for the run's."""
    folder = pathlib.Path("tokenizer", "run")
    start(folder, DECODER.replace("tokenizer: bytes", "tokenizer: tokenizer.json"))
    make = lambda text: run(folder, "tfm-data", "train-tokenizer", "--input", text, "--vocab-size", "260", "--output", "tokenizer.json")
    make("other.txt")
    train = lambda **how: run(folder, "tfm-train", "cfg.yaml", "train.steps=6", **how)
    programs = (("tfm-generate", "ck", "--prompt", "the", "--max-tokens", "3"), ("tfm-eval", "ck"),
                ("tfm-convert", "export", "ck", "out", "--force"))
    train()
    first = [run(folder, *p) for p in programs]
    shutil.copy(folder / "tokenizer.json", folder / "kept.json")
    (folder / "a.txt").write_text("a different text of other letters, xyz xyz qqq " * 9)
    make("a.txt")
    for p in programs:
        assert "is not the tokenizer that ck/step-00000006 was trained with" in run(folder, *p, code=3), p
    assert "warning: tokenizer.json is not the tokenizer that" in run(folder, *programs[0], "--tokenizer", "tokenizer.json")
    assert "data.tokenizer: tokenizer.json is not the tokenizer that ck/step-00000003 was trained with" in run(
        folder, "tfm-train", "cfg.yaml", "checkpoint.resume=ck/step-00000003", code=3)
    assert "is not the tokenizer that ck/step-00000006 was trained with" in run(
        folder, "tfm-train", "cfg.yaml", "model.init=ck", "checkpoint.dir=next", "data.tokenizer=tokenizer.json", code=3)
    os.replace(folder / "kept.json", folder / "moved.json")
    assert run(folder, *programs[0], "--tokenizer", "moved.json") == first[0]
    os.replace(folder / "moved.json", folder / "tokenizer.json")
    assert [run(folder, *p) for p in programs] == first
    train()


def check_targets_of_another_tokenizer():
    """Targets that a tokenizer begins are those of the tokenizer of the run."""
    folder = pathlib.Path("targets", "run")
    start(folder, PAIRS.replace("tokenizer: bytes", "tokenizer: tokenizer.json").replace("size: 260", "size: 260, padding_idx: 0"))
    make = lambda text: run(folder, "tfm-data", "train-tokenizer", "--input", text, "--vocab-size", "260", "--output", "tokenizer.json")
    make("other.txt")
    run(folder, "tfm-train", "cfg.yaml", "train.steps=3")
    header = json.dumps({name: {"dtype": "I64", "shape": [1, 4], "data_offsets": [at, at + 32]}
                         for name, at in (("input_ids", 0), ("labels", 32))})
    (folder / "in.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode() + struct.pack("<8q", *range(40, 48)))
    probe = lambda *args, **how: run(folder, "tfm-probe", "ck", "--batch", "in.safetensors", "--out", "out.safetensors", *args, **how)
    probe()
    (folder / "a.txt").write_text("a different text of other letters, xyz xyz qqq " * 9)
    make("a.txt")
    for args in ([], ["--list"]):
        assert "is not the tokenizer that ck/step-00000003 was trained with" in probe(*args, code=3), args
    assert "warning: tokenizer.json is not the tokenizer that" in probe("data.tokenizer=tokenizer.json")


def check_early_stop():
    """A run that stopped early has its last steps, and stops at once when started again."""
    folder = pathlib.Path("early", "run")
    start(folder, DECODER)
    train = lambda: run(folder, "tfm-train", "cfg.yaml", "optimizer.lr=0", "eval.stop.patience=1", "checkpoint.every=100")
    for _ in range(2):
        out = train()
        assert "early stop at step 4: " in out, out
        kept = sorted(f.name for f in folder.glob("ck/step-*"))
        assert kept == [f"step-{2:08}", f"step-{4:08}"], kept  # the best, the last
    assert "resumed from" in out and "step 5/" not in out, out


def main():
    rng = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        words = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs"]
        text = [" ".join(rng.choices(words, k=rng.randint(2, 6))) for _ in range(120)]
        pathlib.Path("text.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in text))
        pathlib.Path("other.txt").write_text(" ".join(text[:20]))
        pathlib.Path("a.src").write_text("".join(line[:20] + "\n" for line in text[:60]))
        pathlib.Path("a.tgt").write_text("".join(line[:20][::-1] + "\n" for line in text[:60]))
        # Weights of another run, whose origin the export has.
        pathlib.Path("first").mkdir()
        pathlib.Path("first/cfg.yaml").write_text(DECODER.replace("text.jsonl", "../text.jsonl").replace("other.txt", "../other.txt"))
        run("first", "tfm-train", "cfg.yaml", "train.steps=6")
        run("first", "tfm-convert", "export", "ck", "../start")
        check("stopped", DECODER, ["STOP"])
        check("killed", DECODER, [6], ranks=2)
        check("twice", DECODER, ["STOP", 6], "precision=fp16")
        check("tuned", DECODER, ["STOP", 6], "model.init=start", "optimizer.type=sgd", "optimizer.momentum=0.9")
        check("pairs", PAIRS, ["STOP", 6], ranks=2)
        check_another_metric()
        check_other_weights()
        check_another_tokenizer()
        check_targets_of_another_tokenizer()
        check_early_stop()
        os.chdir("/")
    print("a second start leaves what an unbroken run leaves: ok")


main()
